#include "client/threads.h"

#include <pthread.h>

#include <csignal>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/error.h"

namespace spccl::client {

absl::StatusOr<std::thread> StartThread(const char* name, std::function<void()> body) {
  absl::StatusOr<std::thread> thread = absl::UnknownError("not started");
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread = std::thread(std::move(body));
    ::pthread_setname_np(thread->native_handle(), name);
  } catch (const std::system_error& error) {
    thread = CatchAll([&]() -> absl::Status {
      return absl::ResourceExhaustedError(absl::StrCat("starting a thread: ", error.what()));
    });
  } catch (const std::bad_alloc&) {
    thread = StatusOfException();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace spccl::client
