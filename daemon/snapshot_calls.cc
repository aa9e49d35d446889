#include "daemon/snapshot_calls.h"

#include <utility>

namespace spccl::daemon {

void SnapshotCalls::Ask(Answer answer) {
  post_([this, answer = std::move(answer)]() mutable {
    waiting_.push_back(std::move(answer));
    // In a turn of its own: all who are in this turn's queue wait for the same one, and the loop
    // looks at its sockets before each.
    if (waiting_.size() == 1) post_([this] { AnswerAll(); });
  });
}

void SnapshotCalls::AnswerAll() {
  if (waiting_.empty()) return;
  const std::shared_ptr<const TakenSnapshot> taken = take_();
  for (const Answer& answer : std::exchange(waiting_, {})) answer(taken);
}

}  // namespace spccl::daemon
