#include "bench/support/output.h"

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/status.h"

namespace spccl::bench {

absl::Status FlushOutput() {
  constexpr char kWhat[] = "standard output could not be written";
  if (std::fflush(stdout) != 0) return ErrnoStatus(errno, kWhat);
  return std::ferror(stdout) == 0 ? absl::OkStatus() : absl::InternalError(kWhat);
}

int EndOutput(const std::string& program, int code) {
  const absl::Status status = FlushOutput();
  if (status.ok()) return code;
  std::fprintf(stderr, "%s: %s\n", program.c_str(), std::string(status.message()).c_str());
  return code == 0 ? 2 : code;
}

}  // namespace spccl::bench
