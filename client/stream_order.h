// The session's order memory (proto/shm/order.h), as the program's CUDA streams use it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "base/memory.h"
#include "client/session.h"
#include "proto/shm/order.h"

namespace spccl::client {

// A daemon of the protocol's minor version 0 would end the session at requests that it does not
// know.
absl::Status CheckTakesGpuMemory(const Session& session);

// Thread-safe. The memory stays mapped and registered until the process ends: streams may still
// wait for its words when nothing else knows of it any more.
class StreamOrder {
 public:
  // Asks the daemon for the memory (blocks for the reply) and registers it with the driver;
  // `context` is any of the process's.
  static absl::StatusOr<std::shared_ptr<StreamOrder>> Open(Session& session,
                                                           const cuda::Driver& driver,
                                                           cuda::Context context);

  // One use of a slot.
  struct Use {
    uint32_t slot = shm::kNoOrder;
    uint32_t value = 0;
    uint32_t comm_id = 0;
    bool is_captured() const { return slot >= shm::kEagerSlots; }
  };
  // For an operation of the communicator, which may have all but one of its share at once, and
  // leaves as many as it has: else one that is ahead could leave none for the one whose operations
  // it waits for, also if that is made only then. Null: it has them, or all are in use. kOneMore:
  // the last of the share, too; or, as where that has shrunk, one more, as long as there are so
  // many as communicators. Whoever has some leaves one to each that has none.
  enum class Room : uint8_t { kUsual, kOneMore };
  std::optional<Use> Take(uint32_t comm_id, uint32_t share, Room room = Room::kUsual);
  std::optional<Use> TakeForCapture();
  // The operation has completed. With `was_passed` false its stream may still have to write
  // `ready`, and the daemon `done`: the slot is used again when both have.
  void GiveBack(const Use& use, bool was_passed);
  // The daemon has told an error of a captured operation, whose slot stays taken; it may still have
  // to write `done`.
  void NoteError(const Use& captured);
  // The session is dead, and no more completions come of it: what its daemon still had to write it
  // may not have lived to.
  void OnSessionDead();

  // What a stream does at the operation's place; `stream`'s context, or the thread's for those that
  // have none, is the one it runs in.
  absl::Status EnqueueReady(const Use& use, cuda::Stream stream) const;
  absl::Status EnqueueWait(const Use& use, cuda::Stream stream) const;

  // By the CPU.
  void StoreReady(const Use& use);
  void StoreDone(const Use& use);

 private:
  StreamOrder(const cuda::Driver& driver, SharedMapping* mapping, uint64_t pointer);
  shm::OrderMemory* memory() const { return reinterpret_cast<shm::OrderMemory*>(mapping_->data()); }
  uint64_t PointerTo(const std::atomic<uint32_t>& word) const;
  void TakeBackPassedLocked();
  void FreeLocked(const Use& use);

  const cuda::Driver& driver_;
  SharedMapping* const mapping_;
  const uint64_t pointer_;  // of the memory, as streams have it

  std::mutex mutex_;
  uint32_t values_[shm::kEagerSlots] = {};  // of each slot's last use
  std::vector<uint32_t> free_, free_captured_;
  std::vector<Use> passing_;          // not written yet, when last looked at
  std::vector<Use> failed_captured_;  // each slot once
  bool session_is_dead_ = false;
  std::unordered_map<uint32_t, uint32_t> held_;  // eager slots, by communicator
};

// A use of a slot that nothing is enqueued for yet: given back with this, unless it is released.
class OrderSlot {
 public:
  explicit OrderSlot(std::shared_ptr<StreamOrder> order) : order_(std::move(order)) {}
  ~OrderSlot() {
    if (use_.slot != shm::kNoOrder) order_->GiveBack(use_, /*was_passed=*/true);
  }
  OrderSlot(const OrderSlot&) = delete;
  OrderSlot& operator=(const OrderSlot&) = delete;

  const std::shared_ptr<StreamOrder>& order() const { return order_; }
  // Once; until then it has none.
  void Hold(const StreamOrder::Use& use) { use_ = use; }
  StreamOrder::Use Release() { return std::exchange(use_, {}); }

 private:
  const std::shared_ptr<StreamOrder> order_;
  StreamOrder::Use use_;
};

}  // namespace spccl::client
