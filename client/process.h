// What the library keeps for the process it is loaded into.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "client/comm.h"
#include "client/gpu_launch.h"
#include "client/handle_table.h"
#include "client/memory.h"
#include "client/region.h"
#include "client/session.h"
#include "client/stream.h"

namespace spccl::client {

// What spcclCommRegister gave out.
struct Registration {
  std::shared_ptr<Comm> comm;
  std::shared_ptr<Region> region;      // of host memory, or
  std::shared_ptr<CudaBuffer> buffer;  // of a GPU's; null also where that has to be copied
};

// Thread-safe. Never destroyed: threads may still be at work when the program exits.
class Process {
 public:
  // Of this very process: after fork() the child gets a new one, and the parent's is left alone
  // (its locks may be held, its threads are not there).
  static Process& Get();

  // The session with the daemon; opened at the first call, and anew after the last one has died.
  absl::StatusOr<std::shared_ptr<Session>> LiveSession();

  HandleTable<Comm>& comms() { return comms_; }
  HandleTable<Stream>& streams() { return streams_; }
  HandleTable<Registration>& registrations() { return registrations_; }
  MemoryTable& memory() { return memory_; }
  StagingPool& staging() { return staging_; }
  GpuClient& gpu() { return gpu_; }

  // Keeps for good what the daemon may still use.
  void Keep(std::shared_ptr<Comm> comm);

 private:
  // The parent's: ids go on where its ended. It may be null.
  explicit Process(const Process* parent);
  static void OnForkInChild();

  HandleTable<Comm> comms_;
  HandleTable<Stream> streams_;
  HandleTable<Registration> registrations_;
  MemoryTable memory_;
  StagingPool staging_;
  GpuClient gpu_;

  std::mutex mutex_;
  std::shared_ptr<Session> session_;
  std::atomic<int> socket_{-1};  // of session_, for OnForkInChild
  std::vector<std::shared_ptr<Comm>> kept_;
};

}  // namespace spccl::client
