#include "collective/transport/fake/fake_transport.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"

namespace spccl::transport {

void FakeTransport::Start(Sink* sink) {
  const std::lock_guard lock(mutex_);
  sink_ = sink;
}

absl::Status FakeTransport::Send(const Tag& tag, Frame frame) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return absl::CancelledError("the transport has stopped");
  if (DeadLocked(tag.to)) return absl::UnavailableError(absl::StrCat("rank ", tag.to, " is dead"));
  if (DeadLocked(tag.from)) return absl::OkStatus();
  edges_[Edge(tag.from, tag.to, tag.lane)].push_back({tag, std::move(frame)});
  most_waiting_ = std::max(most_waiting_, ++waiting_);
  return absl::OkStatus();
}

void FakeTransport::Stop() {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  left_sink_.wait(lock, [&] {
    return deliverer_ == std::thread::id() || deliverer_ == std::this_thread::get_id();
  });
  edges_.clear();
  waiting_ = 0;
}

bool FakeTransport::DiesLocked() {
  if (!killing_ || died_ || delivered_ < after_) return false;
  died_ = true;
  for (auto it = edges_.begin(); it != edges_.end();) {
    const bool dead = std::get<0>(it->first) == victim_ || std::get<1>(it->first) == victim_;
    if (dead) waiting_ -= it->second.size();
    it = dead ? edges_.erase(it) : std::next(it);
  }
  return true;
}

bool FakeTransport::DeliverOne() {
  std::optional<Waiting> next;
  bool dies;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || sink_ == nullptr) return false;
    dies = DiesLocked();
    if (!dies) {
      if (edges_.empty()) return false;
      auto edge = std::next(edges_.begin(), static_cast<ptrdiff_t>(random_() % edges_.size()));
      next = std::move(edge->second.front());
      edge->second.pop_front();
      if (edge->second.empty()) edges_.erase(edge);
      --waiting_;
      ++delivered_;
      if (corrupt_) std::exchange(corrupt_, nullptr)(&next->frame);
      if (retag_) std::exchange(retag_, nullptr)(&next->tag);
    }
    deliverer_ = std::this_thread::get_id();
  }
  if (dies) {
    sink_->OnPeerFailed(victim_, reason_);
  } else {
    sink_->OnFrame(next->tag, std::move(next->frame));
  }
  const std::lock_guard lock(mutex_);
  deliverer_ = std::thread::id();
  left_sink_.notify_all();
  return true;
}

void FakeTransport::CorruptNext(std::function<void(Frame*)> change) {
  const std::lock_guard lock(mutex_);
  corrupt_ = std::move(change);
}

void FakeTransport::RetagNext(std::function<void(Tag*)> change) {
  const std::lock_guard lock(mutex_);
  retag_ = std::move(change);
}

void FakeTransport::Kill(uint32_t rank, uint64_t after, absl::Status reason) {
  const std::lock_guard lock(mutex_);
  killing_ = true;
  victim_ = rank;
  after_ = after;
  reason_ = std::move(reason);
}

uint64_t FakeTransport::delivered() const {
  const std::lock_guard lock(mutex_);
  return delivered_;
}

size_t FakeTransport::most_waiting() const {
  const std::lock_guard lock(mutex_);
  return most_waiting_;
}

}  // namespace spccl::transport
