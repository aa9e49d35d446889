#include "client/threads.h"

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace spccl::client {

absl::StatusOr<std::thread> StartThread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::StatusOr<std::thread> thread = absl::UnknownError("not started");
  try {
    thread = std::thread(std::move(body));
    ::pthread_setname_np(thread->native_handle(), name);
  } catch (const std::system_error& error) {
    thread = absl::ResourceExhaustedError(absl::StrCat("starting a thread: ", error.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace spccl::client
