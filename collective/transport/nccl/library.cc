#include "collective/transport/nccl/library.h"

#include <dlfcn.h>
#include <link.h>

#include "absl/strings/str_cat.h"

namespace spccl::transport::nccl {
namespace {

// As the loader found it; the name that was asked for if it does not say.
std::string PathOf(void* handle, const std::string& asked) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map->l_name[0] == '\0') return asked;
  return map->l_name;
}

absl::StatusCode CodeOf(Result result) {
  switch (result) {
    case kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case kInvalidUsage:
      return absl::StatusCode::kFailedPrecondition;
    case kSystemError:
    case kRemoteError:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Library>> Library::Load(const std::string& path) {
  const std::string name = path.empty() ? "libnccl.so.2" : path;
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("NCCL cannot be loaded: ", ::dlerror()));
  }
  auto library = std::shared_ptr<Library>(new Library());
  library->path_ = PathOf(handle, name);
#define SPCCL_NCCL_LOOK_UP(RETURNS, NAME, SYMBOL, PARAMETERS)                                     \
  library->NAME = reinterpret_cast<RETURNS(*) PARAMETERS>(::dlsym(handle, #SYMBOL));              \
  if (library->NAME == nullptr) {                                                                 \
    return absl::FailedPreconditionError(absl::StrCat(library->path_, " has no function " #SYMBOL \
                                                                      ": NCCL 2.18 or later is "  \
                                                                      "needed"));                 \
  }
  SPCCL_NCCL_FUNCTIONS(SPCCL_NCCL_LOOK_UP)
#undef SPCCL_NCCL_LOOK_UP
  if (const Result result = library->GetVersion(&library->version_); result != kSuccess) {
    return library->ToStatus(result, absl::StrCat("ncclGetVersion of ", library->path_));
  }
  if (library->version_ < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(
        library->path_, " is NCCL ", library->FormatVersion(), "; 2.18 or later is needed"));
  }
  library->is_ncclx_ = ::dlsym(handle, "ncclAllReduceSparseBlock") != nullptr ||
                       ::dlsym(handle, "ncclCommDumpAll") != nullptr;
  return std::shared_ptr<const Library>(std::move(library));
}

std::string Library::FormatVersion(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string Library::NameOf(int version, bool is_ncclx) {
  return absl::StrCat(is_ncclx ? "NCCLX " : "NCCL ", FormatVersion(version));
}

std::string Library::Describe() const {
  return absl::StrCat(NameOf(version_, is_ncclx_), " (", path_, ")");
}

absl::Status Library::ToStatus(Result result, std::string_view what, Comm comm) const {
  if (result == kSuccess) return absl::OkStatus();
  const char* const error = GetErrorString(result);
  const char* const last = GetLastError(comm);
  std::string text =
      absl::StrCat(std::string(what), ": ", error == nullptr ? "unknown error" : error);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (", last, ")");
  return {CodeOf(result), text};
}

}  // namespace spccl::transport::nccl
