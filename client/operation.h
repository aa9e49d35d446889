// One collective of one rank, from the call to its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective_call.h"
#include "client/memory.h"
#include "client/region.h"
#include "client/rings.h"
#include "proto/shm/slot.h"

namespace spccl::client {

class Comm;

// What an operation on a GPU's memory has beside the others.
class GpuPart {
 public:
  virtual ~GpuPart() = default;
  // Once, when it has ended, however: lets the stream go on. `by_daemon`: which has done so
  // already. Any thread, with locks held: calls neither the driver nor the rings, and waits for
  // nothing.
  virtual void End(const absl::Status& result, bool by_daemon) = 0;
};

// Made by the caller's thread, then driven by its stream: under the stream's lock until it is
// submitted, or by the stream's worker. Its end may be noticed by any thread. What drives it throws
// nothing: as it has its place in the communicator's order, lack of memory is its failure.
class Operation final : public Ticket, public std::enable_shared_from_this<Operation> {
 public:
  // Looks up the memory and registers what the daemon does not know yet (blocks for the reply).
  // `memory` and `staging` outlive the operation.
  static absl::StatusOr<std::shared_ptr<Operation>> Create(std::shared_ptr<Comm> comm,
                                                           const CollectiveCall& call,
                                                           const Footprint& bytes,
                                                           const MemoryTable& memory,
                                                           StagingPool* staging);
  // An operation on a GPU's memory, or on a copy of it: `send` and `recv` name what the daemon has.
  // `order`, if not 0: the slot plus 1.
  struct GpuMemory {
    shm::BufferRef send, recv;
    uint32_t order_slot, order_value;
  };
  static std::shared_ptr<Operation> CreateOnGpu(std::shared_ptr<Comm> comm,
                                                const CollectiveCall& call, const Footprint& bytes,
                                                const GpuMemory& memory,
                                                std::shared_ptr<GpuPart> part);
  // Takes the operation's uses of memory back if it was never issued.
  ~Operation() override;

  Comm& comm() const { return *comm_; }
  // Whether this process copies data before, while or after it runs.
  bool is_staged() const { return stage_send_ || stage_recv_ || relayed_; }
  // Nobody will ask for its result.
  void Detach() { is_detached_ = true; }
  // Its place in the communicator's order; set once, when it is issued.
  void set_sequence(uint64_t sequence) { submission_.sequence = sequence; }

  // For operations that are not staged. False: there is no room now. True: it was submitted, or has
  // failed and is finished.
  bool SubmitIfRoom() noexcept;
  // Likewise; waits for room.
  void SubmitWhenRoom() noexcept;
  // For staged operations: everything, until it is finished. Blocks.
  void RunStaged() noexcept;
  // It cannot be run: finishes it, and fails the communicator, in whose order it leaves a gap.
  void Fail(const absl::Status& status) noexcept;

  // Looks at the rings once. True: finished.
  bool Poll();
  // Waits for the end of an operation that is submitted and not staged; deadline as Rings::Wait.
  bool WaitSubmitted(int64_t deadline_ns);
  bool is_submitted() const { return submitted_.load(std::memory_order_acquire); }
  bool is_finished() const { return finished_.load(std::memory_order_acquire); }
  // Once finished.
  const absl::Status& result() const { return result_; }

 private:
  Operation(std::shared_ptr<Comm> comm, const CollectiveCall& call, const Footprint& bytes,
            StagingPool* staging);
  absl::StatusOr<shm::BufferRef> Locate(const MemoryTable& memory, const void* data, size_t bytes,
                                        bool* stage, std::shared_ptr<Region>* region);
  absl::StatusOr<Rings::Push> TrySubmit(uint32_t* seen);
  // Whether to offer passing through relays: an all-reduce of much ordinary memory.
  bool WantsRelay() const;
  absl::StatusOr<std::shared_ptr<Region>> CopyIn();
  absl::Status RunCopied();
  absl::Status RunRelayed();
  void OnDone(absl::Status result, bool by_daemon) override;
  void Finish(absl::Status result, bool by_daemon);
  void ReleaseMemory();

  const std::shared_ptr<Comm> comm_;
  const CollectiveCall call_;
  const Footprint bytes_;
  StagingPool* const staging_;         // null: it is on a GPU
  std::shared_ptr<GpuPart> gpu_part_;  // null: it is not
  shm::Submission submission_{};
  std::shared_ptr<Region> send_region_, recv_region_;
  bool stage_send_ = false, stage_recv_ = false;
  bool relayed_ = false;  // the daemon may decline
  bool is_detached_ = false;
  size_t recv_offset_ = 0;  // in the staging buffer

  absl::Status result_;
  std::atomic<bool> submitted_{false};
  std::atomic<bool> finished_{false};
};

}  // namespace spccl::client
