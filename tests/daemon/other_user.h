// Clients of other users than the one that runs the tests, which must be root.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <future>
#include <string>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"

namespace spccl::daemon {

inline constexpr uid_t kUser = 65534, kOther = 65533;

// What `connect` gives, called as another user: the system call itself changes the calling thread
// only.
template <typename Connect>
auto As(uid_t uid, Connect connect) {
  return std::async(std::launch::async,
                    [&]() -> decltype(connect()) {
                      if (::syscall(SYS_setresuid, uid, uid, uid) != 0) {
                        return ErrnoStatus(errno, "setresuid");
                      }
                      return connect();
                    })
      .get();
}

inline absl::StatusOr<testing::RawClient> OpenAs(uid_t uid, const std::string& socket_path) {
  return As(uid, [&] { return testing::RawClient::Open(socket_path); });
}

inline void LetOthersIn(const testing::DaemonEnv& env) {
  std::filesystem::permissions(std::filesystem::path(env.socket_path()).parent_path(),
                               std::filesystem::perms(0755));
}

}  // namespace spccl::daemon
