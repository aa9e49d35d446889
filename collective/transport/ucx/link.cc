#include "collective/transport/ucx/link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace spccl::transport::ucx {
namespace {

// Timed; one alone may have met a thread that had to wake up.
constexpr uint64_t kTimedHellos = 4;

}  // namespace

LinkCounters Link::counters() const {
  LinkCounters counters;
  // Relaxed: each is a figure by itself.
  counters.frames_sent = frames_sent_.load(std::memory_order_relaxed);
  counters.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  counters.frames_received = frames_received_.load(std::memory_order_relaxed);
  counters.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  counters.round_trip_ns = round_trip_ns_.load(std::memory_order_relaxed);
  counters.unsent_bytes = window_->unsent_bytes();
  const std::lock_guard lock(mutex_);
  counters.frames_waiting = waiting_frames_;
  counters.bytes_per_second = probing_.bytes_per_second;
  return counters;
}

std::string Link::DescribeRoute() const {
  return options_.workers[0]->DescribeRoute(*endpoints_[0]);
}

absl::Status Link::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Link::SendHello() {
  // Over every connection, so that none has to be set up in the middle of an operation.
  for (size_t stream = 0; stream < endpoints_.size(); ++stream) {
    SendNow({.kind = MessageKind::kHello, .stream = static_cast<uint8_t>(stream)}, Frame());
  }
}

void Link::OnHello(uint64_t round) {
  SendNow({.kind = MessageKind::kAnswer, .sequence = round}, Frame());
}

void Link::OnAnswer(uint64_t round) {
  if (up()) return;
  // Relaxed: the answers that count come one after the other, each to the hello before.
  const uint64_t asked = timed_hellos_.load(std::memory_order_relaxed);
  if (round != asked) return;  // of the first round on another connection, or to what nobody asked
  const int64_t now_ns = MonotonicNanos();
  if (round > 0) {
    const int64_t took_ns = now_ns - hello_ns_.load(std::memory_order_relaxed);
    const int64_t least_ns = round_trip_ns_.load(std::memory_order_relaxed);
    if (round == 1 || took_ns < least_ns) {
      round_trip_ns_.store(took_ns, std::memory_order_relaxed);
    }
  }
  if (round < kTimedHellos) {
    hello_ns_.store(now_ns, std::memory_order_relaxed);
    timed_hellos_.store(round + 1, std::memory_order_relaxed);
    return SendNow({.kind = MessageKind::kHello, .sequence = round + 1}, Frame());
  }
  for (size_t stream = 0; stream < endpoints_.size(); ++stream) {
    options_.workers[stream]->ChooseProtocol(endpoints_[stream].get());
  }
  // Release: whoever sees the link up may use what was set up before it.
  if (!up_.exchange(true, std::memory_order_release) && options_.on_up) options_.on_up();
}

void Link::OpenFlow(const Key128& communicator, std::shared_ptr<const LinkShare> share) {
  const std::lock_guard lock(mutex_);
  flows_[communicator].share = std::move(share);
}

void Link::CloseFlow(const Key128& communicator) {
  {
    const std::lock_guard lock(mutex_);
    const auto flow = flows_.find(communicator);
    if (flow == flows_.end()) return;
    flow->second.closed_here = true;
    EraseIfOverLocked(flow);
    if (!status_.ok()) return;
  }
  SendNow({.kind = MessageKind::kClose, .communicator = communicator}, Frame());
}

// A closed flow stays while the peer may still want what waits, or keeps what we sent early.
void Link::EraseIfOverLocked(std::map<Key128, Flow>::iterator flow) {
  const Flow& over = flow->second;
  if (over.closed_here && (over.closed_there || over.early.empty())) flows_.erase(flow);
}

absl::Status Link::Submit(const Message& message, Frame frame) {
  Outgoing one{.message = message, .frame = std::move(frame), .share = nullptr};
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return status_;
    const auto found = flows_.find(message.communicator);
    if (found == flows_.end() || found->second.closed_here) {
      return absl::CancelledError("the communicator is closed");
    }
    Flow& flow = found->second;
    // A peer that has closed wants no frame; frames of its own may still wait for our kOpen.
    if (flow.closed_there && message.kind == MessageKind::kFrame) return absl::OkStatus();
    one.share = flow.share;
    if (!flow.closed_there && (!flow.opened.has_value() || *flow.opened < message.sequence)) {
      Early& early = flow.early[message.sequence];
      if (!early.waiting.empty() || !AdmitLocked(&early, EarlyCost(message))) {
        early.waiting.push_back(std::move(one));
        ++waiting_frames_;
        return absl::OkStatus();
      }
    }
  }
  SendOrQueue(std::move(one));
  return absl::OkStatus();
}

bool Link::HasRoom(const Key128& communicator, uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto flow = flows_.find(communicator);
  if (flow == flows_.end()) return true;  // Submit says what is wrong
  // What waits for the peer's opening is its operation's own affair, and holds up no other.
  const auto early = flow->second.early.find(sequence);
  if (early != flow->second.early.end() && !early->second.waiting.empty()) return false;
  return queue_.HasRoom(flow->second.share);
}

// What waits already goes first, whoever's turn it is: room comes when the window says so, and it
// does, since it was full when the first began to wait.
void Link::SendOrQueue(Outgoing one) {
  if (one.message.kind == MessageKind::kFrame) {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    if (!queue_.empty() || !window_->HasRoom()) return queue_.Push(std::move(one));
    queue_.Charge(one.share, one.message.frame_bytes);
  }
  SendNow(one.message, std::move(one.frame));
}

bool Link::SendQueued() {
  for (;;) {
    Outgoing next;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty() || !window_->HasRoom()) return queue_.TakeWanted();
      next = queue_.Pop();
    }
    SendNow(next.message, std::move(next.frame));
  }
}

void Link::SendAllQueued() {
  Batch batch;
  {
    const std::lock_guard lock(mutex_);
    while (!queue_.empty()) batch.push_back(queue_.Pop());
  }
  for (Outgoing& one : batch) SendNow(one.message, std::move(one.frame));
}

bool Link::AdmitLocked(Early* early, uint64_t cost_bytes) {
  if (early_bytes_ + cost_bytes > kEarlyBytes) return false;
  early_bytes_ += cost_bytes;
  early->charged_bytes += cost_bytes;
  return true;
}

void Link::ReleaseLocked(Early* early, Batch* batch) {
  early_bytes_ -= std::exchange(early->charged_bytes, 0);
  waiting_frames_ -= early->waiting.size();
  std::move(early->waiting.begin(), early->waiting.end(), std::back_inserter(*batch));
  early->waiting.clear();
}

// Lets go what has room now.
void Link::AdmitWaitingLocked(Batch* batch) {
  if (waiting_frames_ == 0) return;
  for (auto& [communicator, flow] : flows_) {
    for (auto& [sequence, early] : flow.early) {
      while (!early.waiting.empty() &&
             AdmitLocked(&early, EarlyCost(early.waiting.front().message))) {
        batch->push_back(std::move(early.waiting.front()));
        early.waiting.pop_front();
        --waiting_frames_;
      }
    }
  }
}

bool Link::OnPeerOpened(const Key128& communicator, uint64_t sequence) {
  Batch batch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = flows_.find(communicator);
    if (found == flows_.end() || !status_.ok()) return false;
    Flow& flow = found->second;
    flow.opened = std::max(flow.opened.value_or(0), sequence);
    const auto end = flow.early.upper_bound(*flow.opened);
    for (auto it = flow.early.begin(); it != end; it = flow.early.erase(it)) {
      ReleaseLocked(&it->second, &batch);
    }
    AdmitWaitingLocked(&batch);
    EraseIfOverLocked(found);
  }
  return SendBatch(std::move(batch));
}

bool Link::OnPeerClosed(const Key128& communicator) {
  Batch unwanted, batch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = flows_.find(communicator);
    if (found == flows_.end()) return false;
    Flow& flow = found->second;
    flow.closed_there = true;
    for (auto& [sequence, early] : flow.early) ReleaseLocked(&early, &unwanted);
    flow.early.clear();
    AdmitWaitingLocked(&batch);
    EraseIfOverLocked(found);
  }
  // What is unwanted waits no more either.
  return SendBatch(std::move(batch)) || !unwanted.empty();
}

bool Link::Fail(absl::Status reason) {
  std::map<Key128, Flow> flows;  // their frames go back to the pool
  SendQueue queue;
  Probing probing;
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return false;
  status_ = std::move(reason);
  flows.swap(flows_);
  std::swap(queue, queue_);
  probing.content = std::move(probing_.content);
  probing.done.swap(probing_.done);
  early_bytes_ = waiting_frames_ = 0;
  return true;
}

void Link::CloseEndpoints() {
  for (size_t stream = 0; stream < endpoints_.size(); ++stream) {
    options_.workers[stream]->Close(endpoints_[stream]);
  }
}

bool Link::SendBatch(Batch batch) {
  const bool any = !batch.empty();
  for (Outgoing& one : batch) SendOrQueue(std::move(one));
  return any;
}

void Link::SendNow(const Message& message, Frame frame) {
  Message proven = message;
  proven.token = options_.present;
  if (message.kind == MessageKind::kFrame) {
    frames_sent_.fetch_add(1, std::memory_order_relaxed);
    bytes_sent_.fetch_add(message.frame_bytes, std::memory_order_relaxed);
  }
  window_->Add(message.frame_bytes);
  options_.workers[message.stream]->Send(endpoints_[message.stream], proven, std::move(frame));
}

}  // namespace spccl::transport::ucx
