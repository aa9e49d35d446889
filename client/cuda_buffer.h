// GPU memory that the daemon was given, and the table of it.
//
// Kept by the driver's buffer id, never by address: after a free the address may be another
// allocation's. What was freed is given up when new memory is handed over, and now and then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cuda_memory.h"
#include "client/session.h"

namespace spccl::client {

// Owner of the registration. Thread-safe.
class CudaBuffer {
 public:
  // Asks the daemon (blocks for the reply). Unimplemented: the daemon does not take it; the text
  // says why. Unavailable: it has not answered in time, or the session has ended.
  static absl::StatusOr<std::shared_ptr<CudaBuffer>> Register(
      const std::shared_ptr<Session>& session, CudaExport exported, int64_t timeout_ns);
  // Takes the registration back, if its session lives. Waits for nothing.
  ~CudaBuffer();

  uint64_t id() const { return id_; }
  const std::vector<DeviceMemory>& pieces() const { return pieces_; }
  bool Contains(uint64_t address, uint64_t bytes) const {
    return address >= base_ && address - base_ <= size_bytes_ &&
           bytes <= size_bytes_ - (address - base_);
  }
  uint64_t OffsetOf(uint64_t address) const { return address - base_; }

  // Registrations by the program.
  void AddHandle() { handles_.fetch_add(1, std::memory_order_relaxed); }
  uint32_t RemoveHandle() { return handles_.fetch_sub(1, std::memory_order_relaxed) - 1; }

 private:
  CudaBuffer(const std::shared_ptr<Session>& session, uint64_t id, const CudaExport& exported);

  const std::weak_ptr<Session> session_;
  const uint64_t id_;
  const uint64_t base_, size_bytes_;
  const std::vector<DeviceMemory> pieces_;
  std::atomic<uint32_t> handles_{0};
};

// Thread-safe.
class CudaBuffers {
 public:
  explicit CudaBuffers(CudaMemory* memory) : memory_(memory) {}
  // For tests: how long a daemon may take for its answer.
  void SetTimeout(int64_t timeout_ns);

  // The buffer that holds [address, address + bytes), which begins in `first`; handed over if the
  // session's daemon does not have it yet. Unimplemented: it must be copied, and why; asked again
  // only for ranges that end before all that were refused. After other errors the next call asks
  // again: a rank that copied what the others hand over would fail all their operations.
  absl::StatusOr<std::shared_ptr<CudaBuffer>> Get(const std::shared_ptr<Session>& session,
                                                  const DeviceMemory& first, uint64_t address,
                                                  uint64_t bytes);
  // Operations that have not ended keep it.
  void Forget(const std::shared_ptr<CudaBuffer>& buffer);

 private:
  struct Entry {
    std::shared_ptr<CudaBuffer> buffer;  // null: nothing of it has been handed over
    uint64_t session_serial = 0;
    DeviceMemory first;
    absl::Status refusal;
    uint64_t refused_end = UINT64_MAX;  // of the shortest range that was refused
  };
  void DropFreedLocked(std::vector<std::shared_ptr<CudaBuffer>>* dropped);

  CudaMemory* const memory_;
  std::mutex mutex_;
  int64_t timeout_ns_ = Session::kReplyTimeoutNs;
  uint32_t gets_ = 0;
  std::unordered_map<uint64_t, Entry> entries_;  // by the first piece's buffer id
};

}  // namespace spccl::client
