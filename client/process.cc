#include "client/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "base/cuda/driver.h"
#include "base/status.h"

namespace spccl::client {
namespace {

std::atomic<Process*> g_process{nullptr};
std::atomic<Process*> g_parent{nullptr};

std::string SocketPath() {
  const char* folder = std::getenv("SPCCL_RUNTIME_DIR");
  return std::string(folder != nullptr && *folder != '\0' ? folder : "/run/spccl") +
         "/session.sock";
}

}  // namespace

Process::Process(const Process* parent)
    : comms_(HandleKind::kComm, "communicator", parent ? parent->comms_.next() : 1),
      streams_(HandleKind::kStream, "stream", parent ? parent->streams_.next() : 1),
      registrations_(HandleKind::kRegistration, "registration",
                     parent ? parent->registrations_.next() : 1) {}

Process& Process::Get() {
  // Acquire: the object that another thread made is whole.
  Process* process = g_process.load(std::memory_order_acquire);
  if (process != nullptr) return *process;
  static const bool at_fork = [] {
    if (::pthread_atfork(cuda::HoldLoader, cuda::ReleaseLoader, OnForkInChild) != 0)
      throw std::bad_alloc();
    return true;
  }();
  static_cast<void>(at_fork);
  auto* made = new Process(g_parent.load(std::memory_order_acquire));
  if (g_process.compare_exchange_strong(process, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *process;
}

// The child shares the parent's socket: as long as a copy is open, the daemon cannot see the
// parent's end by the hang-up. Nothing else of it is touched.
void Process::OnForkInChild() {
  cuda::ReleaseLoaderInChild();
  Process* process = g_process.exchange(nullptr, std::memory_order_acq_rel);
  if (process == nullptr) return;
  if (const int socket = process->socket_.load(std::memory_order_relaxed); socket >= 0) {
    ::close(socket);
  }
  g_parent.store(process, std::memory_order_release);
}

absl::StatusOr<std::shared_ptr<Session>> Process::LiveSession() {
  std::shared_ptr<Session> dead;  // outlives the lock: its end waits for a thread
  const std::lock_guard lock(mutex_);
  if (session_ != nullptr && session_->IsOpen()) return session_;
  dead = std::move(session_);
  socket_.store(-1, std::memory_order_relaxed);
  SPCCL_ASSIGN_OR_RETURN(session_, Session::Open(SocketPath()));
  socket_.store(session_->socket(), std::memory_order_relaxed);
  return session_;
}

void Process::Keep(std::shared_ptr<Comm> comm) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(comm));
}

}  // namespace spccl::client
