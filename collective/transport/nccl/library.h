// NCCL, met at run time: nothing of spccl links to it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/transport/nccl/abi.h"

namespace spccl::transport::nccl {

// A loaded NCCL, or NCCLX, which has the same functions and more. Immutable and thread-safe; the
// library stays loaded until the process ends, as unloading it is not supported. Functions are
// members of their own name: library->GroupStart().
class Library {
 public:
  // Empty: libnccl.so.2. NotFound: there is no such library, or it needs one that is not there.
  // FailedPrecondition: it lacks a function, which is named, or is older than kOldest.
  static absl::StatusOr<std::shared_ptr<const Library>> Load(const std::string& path = "");

  // Whose communicators need not block, and whose configuration is what Config says.
  static constexpr int kOldest = VersionCode(2, 18, 0);

  int version() const { return version_; }
  // "2.28.9"
  std::string FormatVersion() const { return FormatVersion(version_); }
  // Whether it has functions that only NCCLX has. False is no proof.
  bool is_ncclx() const { return is_ncclx_; }
  // "NCCL 2.28.9", "NCCLX 2.28.9": of any node's, by what it says of itself.
  static std::string NameOf(int version, bool is_ncclx);
  // "NCCL 2.28.9 (/usr/lib/libnccl.so.2)", for people.
  std::string Describe() const;

  // OK for success, else what NCCL says: "WHAT: unhandled cuda error (its last words)". `comm` may
  // be null; it is asked only here, so call this on the thread that the communicator is used on.
  absl::Status ToStatus(Result result, std::string_view what, Comm comm = nullptr) const;

#define SPCCL_NCCL_DECLARE(RETURNS, NAME, SYMBOL, PARAMETERS) RETURNS(*NAME) PARAMETERS = nullptr;
  SPCCL_NCCL_FUNCTIONS(SPCCL_NCCL_DECLARE)
#undef SPCCL_NCCL_DECLARE

 private:
  Library() = default;
  static std::string FormatVersion(int version);

  std::string path_;
  int version_ = 0;
  bool is_ncclx_ = false;
};

}  // namespace spccl::transport::nccl
