// Those who wait for a snapshot, which they share: taking one holds the core thread up.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/control.h"
#include "daemon/engine.h"

namespace spccl::daemon {

struct TakenSnapshot {
  Snapshot snapshot;
  std::vector<EndedOp> uncounted;  // operations that it does not count although they have ended
};

class SnapshotCalls {
 public:
  using Post = std::function<void(std::function<void()>)>;  // as EventLoop::Post
  using Take = std::function<std::shared_ptr<const TakenSnapshot>()>;
  using Answer = std::function<void(const std::shared_ptr<const TakenSnapshot>&)>;

  SnapshotCalls(Post post, Take take) : post_(std::move(post)), take_(std::move(take)) {}

  // Calls `answer` on the loop's thread with a snapshot that is taken after whatever the caller has
  // posted before, and so is not older than the call. Thread-safe.
  void Ask(Answer answer);
  // Answers who waits, if anybody does. Loop's thread; for the end, when nothing posted runs more.
  void AnswerAll();

 private:
  const Post post_;
  const Take take_;
  std::vector<Answer> waiting_;  // loop's thread
};

}  // namespace spccl::daemon
