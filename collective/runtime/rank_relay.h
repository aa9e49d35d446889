// One rank's offer to pass an operation through relays, memory that the ranks share: they reduce it
// among themselves.
#pragma once

namespace spccl::runtime {

// Of one rank and one operation. Either Begin() or Decline() is called, once, as soon as it is
// decided. Thread-safe.
class RankRelay {
 public:
  virtual ~RankRelay() = default;

  // All ranks have offered: they may begin.
  virtual void Begin() = 0;
  // Whether the rank has all its results. The task is nudged when the last one has.
  virtual bool IsDone() const = 0;
  // The operation runs on the ranks' buffers instead.
  virtual void Decline() = 0;
};

}  // namespace spccl::runtime
