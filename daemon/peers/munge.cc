#include "daemon/peers/munge.h"

#include <munge.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace spccl::daemon::peers {
namespace {

constexpr int kTtlSeconds = 60;  // of a credential; both hosts' clocks must agree within it

struct FreeContext {
  void operator()(munge_ctx_t context) const { ::munge_ctx_destroy(context); }
};

using Context = std::unique_ptr<std::remove_pointer_t<munge_ctx_t>, FreeContext>;

class LibMunge final : public Munge {
 public:
  // libmunge writes into a context what it finds in a credential, down to the cipher, and would use
  // it for the next one: each call has a copy of this one.
  explicit LibMunge(munge_ctx_t context) : context_(context) {}

  absl::StatusOr<std::string> Encode(const std::string& payload) override {
    const Context context(::munge_ctx_copy(context_.get()));
    char* credential = nullptr;
    const munge_err_t error = ::munge_encode(&credential, context.get(), payload.data(),
                                             static_cast<int>(payload.size()));
    if (error != EMUNGE_SUCCESS) {
      return absl::UnavailableError(
          absl::StrCat("MUNGE makes no credential: ", Reason(context, error)));
    }
    std::string made(credential);
    std::free(credential);
    return made;
  }

  absl::Status Verify(const std::string& credential, const std::string& payload) override {
    const Context context(::munge_ctx_copy(context_.get()));
    void* bytes = nullptr;
    int size = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    const munge_err_t error =
        ::munge_decode(credential.c_str(), context.get(), &bytes, &size, &uid, &gid);
    const std::string found(static_cast<const char*>(bytes),
                            bytes == nullptr ? 0 : static_cast<size_t>(size));
    std::free(bytes);
    if (error == EMUNGE_SOCKET) {
      return absl::UnavailableError(
          absl::StrCat("MUNGE checks no credential: ", Reason(context, error)));
    }
    if (error != EMUNGE_SUCCESS) {
      return absl::UnauthenticatedError(
          absl::StrCat("the MUNGE credential is not accepted: ", Reason(context, error)));
    }
    if (uid != 0 && uid != ::geteuid()) {
      return absl::UnauthenticatedError(
          absl::StrCat("the MUNGE credential is of uid ", uid, ", expected 0 or ", ::geteuid()));
    }
    if (found != payload) {
      return absl::UnauthenticatedError(
          "the MUNGE credential is for another connection: its nonces, boot ids or role differ");
    }
    return absl::OkStatus();
  }

 private:
  static std::string Reason(const Context& context, munge_err_t error) {
    const char* text = ::munge_ctx_strerror(context.get());
    return text != nullptr ? text : ::munge_strerror(error);
  }

  const Context context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Munge>> Munge::Create(const std::string& socket) {
  munge_ctx_t context = ::munge_ctx_create();
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for MUNGE");
  auto munge = std::make_unique<LibMunge>(context);
  munge_err_t error = ::munge_ctx_set(context, MUNGE_OPT_TTL, kTtlSeconds);
  if (error == EMUNGE_SUCCESS && !socket.empty()) {
    error = ::munge_ctx_set(context, MUNGE_OPT_SOCKET, socket.c_str());
  }
  if (error != EMUNGE_SUCCESS) {
    return absl::InternalError(absl::StrCat("MUNGE: ", ::munge_strerror(error)));
  }
  return munge;
}

}  // namespace spccl::daemon::peers
