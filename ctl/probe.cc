#include "ctl/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "ctl/client.h"
#include "ctl/fetch.h"
#include "spccl/spccl.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace spccl::ctl {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// On the library path, or beside this program, as the archive has it.
void* OpenClientLibrary() {
  const std::string name = absl::StrCat("libspccl.so.", kVersionMajor);
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return nullptr;
  const std::string beside = self.parent_path().parent_path() / "lib" / name;
  return ::dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// In the child: a line with the version, then "ok" or the library's error.
void UseClientLibrary(const std::string& runtime_dir, int out) {
  void* const library = OpenClientLibrary();
  if (library == nullptr) return;
  const auto version =
      reinterpret_cast<decltype(&spcclGetVersion)>(::dlsym(library, "spcclGetVersion"));
  const auto unique_id =
      reinterpret_cast<decltype(&spcclGetUniqueId)>(::dlsym(library, "spcclGetUniqueId"));
  const auto last_error =
      reinterpret_cast<decltype(&spcclGetLastError)>(::dlsym(library, "spcclGetLastError"));
  if (version == nullptr || unique_id == nullptr || last_error == nullptr) return;
  int code = 0;
  version(&code);
  ::dprintf(out, "%d\n", code);
  ::setenv("SPCCL_RUNTIME_DIR", runtime_dir.c_str(), 1);
  spcclUniqueId id;
  const bool reached = unique_id(&id) == spcclSuccess;
  ::dprintf(out, "%s", reached ? "ok" : last_error(nullptr));
}

LibraryFacts ParseFacts(const std::string& said) {
  LibraryFacts facts;
  const size_t line = said.find('\n');
  facts.found =
      line != std::string::npos && absl::SimpleAtoi(said.substr(0, line), &facts.version_code);
  if (!facts.found) return facts;
  const std::string rest = said.substr(line + 1);
  facts.reached = rest == "ok";
  if (!facts.reached) facts.error = rest.empty() ? "it ended without a word" : rest;
  return facts;
}

bool Collapses(const UniqueFd& memfd) {
  const absl::StatusOr<SharedMapping> mapping = SharedMapping::Create(memfd.get(), 2 * kHugePage);
  if (!mapping.ok()) return false;
  const auto address = reinterpret_cast<uintptr_t>(mapping->data());
  const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  auto* const huge = mapping->data() + (aligned - address);
  *huge = std::byte{1};  // one page is there from which to collapse
  return ::madvise(huge, kHugePage, MADV_COLLAPSE) == 0;
}

std::string TryReadingOwnMemory() {
  const UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  if (!memory.valid()) return std::strerror(errno);
  volatile uint64_t value = 42;
  uint64_t seen = 0;
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(&value));
  if (::pread(memory.get(), &seen, sizeof seen, at) != sizeof seen) return std::strerror(errno);
  return seen == 42 ? "" : absl::StrCat("read ", seen, ", expected 42");
}

// It stays loaded: not every library bears to be unloaded.
bool Loads(const char* name) {
  return ::dlopen(name, RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

}  // namespace

absl::StatusOr<Listener> ListenerOf(const std::string& path, int type) {
  SPCCL_ASSIGN_OR_RETURN(const UniqueFd socket, ConnectSocket(path, type));
  ucred credentials;
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("SO_PEERCRED of ", path));
  }
  return Listener{.pid = credentials.pid, .uid = credentials.uid};
}

LibraryFacts TryClientLibrary(const std::string& runtime_dir, int64_t deadline_ns) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    UseClientLibrary(runtime_dir, in.get());
    ::_exit(0);
  }
  in.Reset();
  const absl::StatusOr<std::string> said = ReadToEnd(out.get(), {.nanos = deadline_ns});
  if (!said.ok()) ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (said.ok()) return ParseFacts(*said);
  return {.found = true, .error = "it has no answer within the deadline"};
}

KernelFacts TryKernel() {
  KernelFacts facts;
  const absl::StatusOr<UniqueFd> memfd = CreateSealedMemfd("spccl-doctor", 2 * kHugePage);
  if (memfd.ok()) {
    facts.collapses = Collapses(*memfd);
  } else {
    facts.memfd_seals = std::string(memfd.status().message());
  }
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!pidfd.valid()) facts.pidfd = std::strerror(errno);
  facts.reads_own = TryReadingOwnMemory();
  return facts;
}

ClockFacts AskClock() {
  timex query = {};
  const int state = ::adjtimex(&query);
  if (state < 0) return {.error = errno};
  return {.synchronised = state != TIME_ERROR && (query.status & STA_UNSYNC) == 0,
          .most_error_us = query.maxerror};
}

GpuFacts TryGpuLibraries() {
  return {.cuda = Loads("libcuda.so.1"), .nccl = Loads("libnccl.so.2")};
}

}  // namespace spccl::ctl
