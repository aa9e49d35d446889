#include "collective/transport/fake/fake_net.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::transport {
namespace {

// Others may own the same bytes, and get them unchanged.
Frame CopyOf(const Frame& frame) {
  Frame copy = FramePool::Shared().Take(frame.size_bytes() + 1);
  std::memcpy(copy.data(), frame.data(), frame.size_bytes());
  copy.set_size_bytes(frame.size_bytes());
  return copy;
}

}  // namespace

class FakeNet::Port final : public Transport {
 public:
  Port(FakeNet* net, uint32_t node) : net_(net), node_(node) {}
  ~Port() override { net_->Stop(node_); }

  void Start(Sink* sink) override {
    const std::lock_guard lock(net_->mutex_);
    net_->nodes_[node_].sink = sink;
  }
  absl::Status Send(const Tag& tag, Frame frame) override {
    return net_->Send(node_, tag, std::move(frame));
  }
  absl::Status AnnounceAhead(std::span<const FrameSize> sizes) override {
    return net_->AnnounceAhead(node_, sizes);
  }
  bool HasRoom(uint32_t to) override { return net_->HasRoom(node_, to); }
  void Stop() override { net_->Stop(node_); }

 private:
  FakeNet* const net_;
  const uint32_t node_;
};

std::unique_ptr<Transport> FakeNet::Open(uint32_t node) {
  const std::lock_guard lock(mutex_);
  nodes_[node];
  return std::make_unique<Port>(this, node);
}

absl::Status FakeNet::Send(uint32_t node, const Tag& tag, Frame frame) {
  const std::lock_guard lock(mutex_);
  if (nodes_[node].stopped) return absl::CancelledError("the transport has stopped");
  if (Dead(tag.to)) return absl::UnavailableError(absl::StrCat("rank ", tag.to, " is dead"));
  if (Dead(tag.from) || NodeOf(tag.to).stopped) return absl::OkStatus();
  if (const auto owed = owed_.find(KeyOf(tag)); owed != owed_.end()) {
    SPCCL_CHECK(owed->second == frame.size_bytes());
    owed_.erase(owed);
  }
  edges_[Edge(tag.from, tag.to, tag.lane)].push_back({tag, std::move(frame)});
  most_waiting_ = std::max(most_waiting_, ++NodeOf(tag.to).waiting);
  return absl::OkStatus();
}

absl::Status FakeNet::AnnounceAhead(uint32_t node, std::span<const FrameSize> sizes) {
  const std::lock_guard lock(mutex_);
  if (nodes_[node].stopped) return absl::OkStatus();
  for (const FrameSize& size : sizes) {
    SPCCL_CHECK(&NodeOf(size.tag.from) == &nodes_[node] && &NodeOf(size.tag.to) != &nodes_[node]);
    SPCCL_CHECK(owed_.emplace(KeyOf(size.tag), size.bytes).second);
    ++told_ahead_;
  }
  return absl::OkStatus();
}

bool FakeNet::HasRoom(uint32_t node, uint32_t to) {
  const std::lock_guard lock(mutex_);
  if (!Full(NodeOf(to))) return true;
  nodes_[node].wants_room = true;
  return false;
}

void FakeNet::Stop(uint32_t node) {
  std::unique_lock lock(mutex_);
  Node& stopping = nodes_[node];
  stopping.stopped = true;
  left_sink_.wait(lock, [&] {
    return stopping.caller == std::thread::id() || stopping.caller == std::this_thread::get_id();
  });
  stopping.waiting = 0;
  std::erase_if(edges_,
                [&](const auto& edge) { return &NodeOf(std::get<1>(edge.first)) == &stopping; });
}

bool FakeNet::Dies() {
  if (!killing_ || died_ || delivered_ < after_) return false;
  died_ = true;
  for (auto it = edges_.begin(); it != edges_.end();) {
    const auto [from, to, lane] = it->first;
    const bool dead = from == victim_ || to == victim_;
    if (dead) NodeOf(to).waiting -= it->second.size();
    it = dead ? edges_.erase(it) : std::next(it);
  }
  return true;
}

std::vector<uint32_t> FakeNet::Started() const {
  std::vector<uint32_t> started;
  for (const auto& [number, node] : nodes_) {
    if (node.sink != nullptr) started.push_back(number);
  }
  return started;
}

void FakeNet::Call(std::unique_lock<std::mutex>* lock, Node* node,
                   const std::function<void(Sink*)>& what) {
  if (node->sink == nullptr || node->stopped) return;
  node->caller = std::this_thread::get_id();
  lock->unlock();
  what(node->sink);
  lock->lock();
  node->caller = std::thread::id();
  left_sink_.notify_all();
}

FakeNet::Waiting* FakeNet::ToAnnounce(const Edge& edge, std::deque<Waiting>* waiting) {
  if (!announces_ || &NodeOf(std::get<0>(edge)) == &NodeOf(std::get<1>(edge))) return nullptr;
  const auto next = std::find_if(waiting->begin(), waiting->end(),
                                 [](const Waiting& one) { return !one.announced; });
  const bool may_wait = next != waiting->begin() && random_() % 2 == 0;
  return next == waiting->end() || may_wait ? nullptr : &*next;
}

bool FakeNet::DeliverOne() {
  std::unique_lock lock(mutex_);
  if (Dies()) {
    const std::vector<uint32_t> started = Started();
    for (const uint32_t number : started) {
      Node& node = nodes_[number];
      if (started.size() > 1 && &node == &NodeOf(victim_)) continue;
      Call(&lock, &node, [&](Sink* sink) { sink->OnPeerFailed(victim_, reason_); });
    }
    return true;
  }
  std::vector<std::map<Edge, std::deque<Waiting>>::iterator> ready;
  for (auto it = edges_.begin(); it != edges_.end(); ++it) {
    if (NodeOf(std::get<1>(it->first)).sink != nullptr) ready.push_back(it);
  }
  if (ready.empty()) return false;
  const auto edge = ready[random_() % ready.size()];
  Node& to = NodeOf(std::get<1>(edge->first));
  if (Waiting* const announced = ToAnnounce(edge->first, &edge->second)) {
    announced->announced = true;
    const FrameSize size{.tag = announced->tag, .bytes = announced->frame.size_bytes()};
    Call(&lock, &to, [&](Sink* sink) { sink->OnAnnounced(size); });
    return true;
  }
  Waiting next = std::move(edge->second.front());
  edge->second.pop_front();
  if (edge->second.empty()) edges_.erase(edge);
  --to.waiting;
  ++delivered_;
  if (corrupt_) {
    next.frame = CopyOf(next.frame);
    std::exchange(corrupt_, nullptr)(&next.frame);
  }
  if (retag_) std::exchange(retag_, nullptr)(&next.tag);
  Call(&lock, &to, [&](Sink* sink) { sink->OnFrame(next.tag, std::move(next.frame)); });
  for (const uint32_t number : Started()) {
    if (!std::exchange(nodes_[number].wants_room, false)) continue;
    Call(&lock, &nodes_[number], [](Sink* sink) { sink->OnRoom(); });
  }
  return true;
}

void FakeNet::CorruptNext(std::function<void(Frame*)> change) {
  const std::lock_guard lock(mutex_);
  corrupt_ = std::move(change);
}

void FakeNet::RetagNext(std::function<void(Tag*)> change) {
  const std::lock_guard lock(mutex_);
  retag_ = std::move(change);
}

void FakeNet::Kill(uint32_t rank, uint64_t after, absl::Status reason) {
  const std::lock_guard lock(mutex_);
  killing_ = true;
  victim_ = rank;
  after_ = after;
  reason_ = std::move(reason);
}

void FakeNet::AnnounceFrames() {
  const std::lock_guard lock(mutex_);
  announces_ = true;
}

void FakeNet::LimitRoom(size_t frames) {
  const std::lock_guard lock(mutex_);
  most_frames_ = frames;
}

uint64_t FakeNet::delivered() const {
  const std::lock_guard lock(mutex_);
  return delivered_;
}

size_t FakeNet::most_waiting() const {
  const std::lock_guard lock(mutex_);
  return most_waiting_;
}

size_t FakeNet::told_ahead() const {
  const std::lock_guard lock(mutex_);
  return told_ahead_;
}

size_t FakeNet::owed() const {
  const std::lock_guard lock(mutex_);
  return owed_.size();
}

}  // namespace spccl::transport
