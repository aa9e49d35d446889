#include "collective/transport/ucx/communicator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::transport::ucx {
namespace {

// How far frames of a stream may overtake each other.
constexpr uint64_t kMostOvertaking = 1U << 16;

// Where a digest is all that two nodes know of how the other has planned the same call. In few
// letters: the whole has to fit into a completion.
constexpr char kAlikeButForThePlan[] = " (plans differ: GPUs, copies or CPUs?)";

}  // namespace

size_t CommunicatorState::IndexOf(const Link* link) const {
  const auto found =
      std::find_if(links.begin(), links.end(), [&](const auto& one) { return one.get() == link; });
  return static_cast<size_t>(found - links.begin());
}

// The operation, made if it was not heard of; null if it is over.
std::shared_ptr<CommunicatorState::Operation> CommunicatorState::FindLocked(uint64_t sequence,
                                                                            bool* finished) {
  *finished = false;
  const auto found = operations.find(sequence);
  if (found != operations.end()) return found->second;
  *finished = last_opened.has_value() && sequence <= *last_opened;
  return nullptr;
}

absl::Status CommunicatorState::CheckLocked(uint32_t worker, size_t link,
                                            const Operation* operation,
                                            const Message& message) const {
  const auto wrong = [&](auto... what) {
    return absl::DataLossError(absl::StrCat(links[link]->name(), " sent a frame ", what...));
  };
  const Tag& tag = message.tag;
  const size_t ranks = link_of_rank.size();
  if (tag.from >= ranks || tag.to >= ranks) {
    return wrong("from rank ", tag.from, " to rank ", tag.to, " of ", ranks);
  }
  if (link_of_rank[tag.from] != links[link]) return wrong("of rank ", tag.from, " of another node");
  if (link_of_rank[tag.to] != nullptr) return wrong("for rank ", tag.to, " of another node");
  if (message.stream % workers.size() != worker) return wrong("on stream ", message.stream);
  if (operation == nullptr) return absl::OkStatus();
  if (operation->opened && message.frame_bytes > operation->largest_frame_bytes) {
    return wrong("of ", message.frame_bytes, " bytes; ", operation->largest_frame_bytes,
                 " is the most in this operation");
  }
  const auto& streams = operation->streams[link];
  const auto stream = streams.find(message.stream);
  const uint64_t next = stream == streams.end() ? 0 : stream->second.next;
  if (message.index < next || message.index - next >= kMostOvertaking ||
      (stream != streams.end() && stream->second.waiting.contains(message.index))) {
    return wrong("with number ", message.index, " where ", next, " is next");
  }
  return absl::OkStatus();
}

// What a peer says an operation is must be what it is here, and stay the same.
absl::Status CommunicatorState::MismatchLocked(const Operation& operation, size_t link) const {
  const auto& said = operation.said[link];
  if (!operation.opened || !said.has_value() || *said == operation.facts) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks disagree: rank ", rank_of_link[link], " (", links[link]->name(), ") called ",
      DescribeCall(*said), "; the ranks of this node called ", DescribeCall(operation.facts),
      said->op == operation.facts.op ? kAlikeButForThePlan : ""));
}

// Counts what is kept for an operation that is not open here.
absl::Status CommunicatorState::KeepLocked(size_t link, Operation* operation,
                                           const Message& message) {
  if (operation->opened) return absl::OkStatus();
  const uint64_t cost = EarlyCost(message);
  operation->kept_bytes[link] += cost;
  // Relaxed: a count; what it stands for is guarded by the lock.
  const uint64_t kept = links[link]->kept_bytes_.fetch_add(cost, std::memory_order_relaxed) + cost;
  if (kept <= kEarlyBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(links[link]->name(), " sent more than ",
                                                   kEarlyBytes,
                                                   " bytes of operations that are not open here"));
}

void CommunicatorState::ForgetKeptLocked(Operation* operation) {
  for (size_t link = 0; link < links.size(); ++link) {
    links[link]->kept_bytes_.fetch_sub(std::exchange(operation->kept_bytes[link], 0),
                                       std::memory_order_relaxed);
  }
}

bool CommunicatorState::Wants(uint32_t worker, Link* link, const Message& message) {
  Lock lock(mutex);
  const size_t from = IndexOf(link);
  bool finished;
  const std::shared_ptr<Operation> operation = FindLocked(message.sequence, &finished);
  if (closed || failure.has_value() || finished) return false;
  if (operation != nullptr && operation->stopped) return false;
  const absl::Status status = CheckLocked(worker, from, operation.get(), message);
  if (!status.ok()) Fail(&lock, rank_of_link[from], status);
  return status.ok();
}

absl::Status CommunicatorState::OnMessage(uint32_t worker, Link* link, const Message& message,
                                          Frame frame) {
  Lock lock(mutex);
  const size_t from = IndexOf(link);
  bool finished;
  std::shared_ptr<Operation> operation = FindLocked(message.sequence, &finished);
  if (closed || failure.has_value() || finished) return absl::OkStatus();
  if (operation == nullptr) {
    operation = std::make_shared<Operation>();
    operation->said.resize(links.size());
    operation->kept_bytes.resize(links.size());
    operation->streams.resize(links.size());
    operations.emplace(message.sequence, operation);
  }
  if (operation->stopped) return absl::OkStatus();
  absl::Status status;
  if (operation->said[from].has_value() && *operation->said[from] != message.facts) {
    status = absl::DataLossError(absl::StrCat(link->name(), " says of one operation that it is ",
                                              Describe(*operation->said[from]), " and ",
                                              Describe(message.facts)));
  }
  operation->said[from] = message.facts;
  if (status.ok() && message.kind == MessageKind::kFrame) {
    status = CheckLocked(worker, from, operation.get(), message);
  }
  if (!status.ok()) {
    Fail(&lock, rank_of_link[from], status);
    return absl::OkStatus();
  }
  SPCCL_RETURN_IF_ERROR(KeepLocked(from, operation.get(), message));
  if (status = MismatchLocked(*operation, from); !status.ok()) {
    FailOperation(&lock, operation.get(), rank_of_link[from], status);
    return absl::OkStatus();
  }
  if (message.kind != MessageKind::kFrame) return absl::OkStatus();
  operation->streams[from][message.stream].waiting.emplace(message.index,
                                                           Waiting{message.tag, std::move(frame)});
  Drain(&lock, operation.get(), from, message.stream);
  return absl::OkStatus();
}

// Hands on what is next. Only the thread of the stream's worker comes here, so one at a time.
void CommunicatorState::Drain(Lock* lock, Operation* operation, size_t link, uint32_t stream) {
  Stream& source = operation->streams[link][stream];
  while (operation->sink != nullptr && !operation->stopped && !operation->failure.has_value() &&
         !source.waiting.empty() && source.waiting.begin()->first == source.next) {
    Waiting next = std::move(source.waiting.begin()->second);
    source.waiting.erase(source.waiting.begin());
    ++source.next;
    operation->in_sink.push_back(std::this_thread::get_id());
    Sink* const sink = operation->sink;
    lock->unlock();
    sink->OnFrame(next.tag, std::move(next.frame));
    lock->lock();
    LeaveSinkLocked(operation);
  }
}

void CommunicatorState::LeaveSinkLocked(Operation* operation) {
  auto& in_sink = operation->in_sink;
  in_sink.erase(std::find(in_sink.begin(), in_sink.end(), std::this_thread::get_id()));
  if (operation->stopped) left_sink.notify_all();
}

void CommunicatorState::Fail(Lock* lock, uint32_t rank, const absl::Status& reason) {
  if (failure.has_value() || closed) return;
  failure = Failure{rank, reason};
  std::vector<std::shared_ptr<Operation>> all;
  for (const auto& [sequence, operation] : operations) all.push_back(operation);
  for (const auto& operation : all) FailOperation(lock, operation.get(), rank, reason);
}

void CommunicatorState::FailOperation(Lock* lock, Operation* operation, uint32_t rank,
                                      const absl::Status& reason) {
  if (operation->failure.has_value()) return;
  operation->failure = Failure{rank, reason};
  TellFailure(lock, operation);
}

void CommunicatorState::TellFailure(Lock* lock, Operation* operation) {
  if (!operation->failure.has_value() || operation->failure_told || operation->sink == nullptr ||
      operation->stopped) {
    return;
  }
  operation->failure_told = true;
  operation->in_sink.push_back(std::this_thread::get_id());
  Sink* const sink = operation->sink;
  const Failure told = *operation->failure;
  lock->unlock();
  sink->OnPeerFailed(told.rank, told.reason);
  lock->lock();
  LeaveSinkLocked(operation);
}

void CommunicatorState::OnLinkFailed(Link* link, const absl::Status& reason) {
  Lock lock(mutex);
  Fail(&lock, rank_of_link[IndexOf(link)], reason);
}

// To all operations: most have nothing that waits, and find that out at once.
void CommunicatorState::OnRoom() {
  Lock lock(mutex);
  std::vector<std::shared_ptr<Operation>> all;
  for (const auto& [sequence, operation] : operations) all.push_back(operation);
  for (const auto& operation : all) {
    if (operation->sink == nullptr || operation->stopped) continue;
    operation->in_sink.push_back(std::this_thread::get_id());
    Sink* const sink = operation->sink;
    lock.unlock();
    sink->OnRoom();
    lock.lock();
    LeaveSinkLocked(operation.get());
  }
}

absl::StatusOr<std::shared_ptr<CommunicatorState::Operation>> CommunicatorState::Open(
    const OperationOptions& options) {
  const Lock lock(mutex);
  if (closed) return absl::CancelledError("the communicator is closed");
  if (failure.has_value()) return failure->AsLoss();
  SPCCL_CHECK(!last_opened.has_value() || options.sequence > *last_opened);
  last_opened = options.sequence;
  // What was heard of operations that were passed over is of no use.
  for (auto it = operations.begin(); it != operations.end() && it->first < options.sequence;) {
    const bool heard_of_only = !it->second->opened;
    if (heard_of_only) ForgetKeptLocked(it->second.get());
    it = heard_of_only ? operations.erase(it) : std::next(it);
  }
  std::shared_ptr<Operation>& operation = operations[options.sequence];
  if (operation == nullptr) operation = std::make_shared<Operation>();
  operation->said.resize(links.size());
  operation->kept_bytes.resize(links.size());
  operation->streams.resize(links.size());
  operation->opened = true;
  operation->facts = options.facts;
  operation->largest_frame_bytes = options.largest_frame_bytes;
  ForgetKeptLocked(operation.get());
  for (size_t link = 0; link < links.size(); ++link) {
    absl::Status status = MismatchLocked(*operation, link);
    for (const auto& [number, stream] : operation->streams[link]) {
      for (const auto& [index, waiting] : stream.waiting) {
        if (waiting.frame.size_bytes() <= options.largest_frame_bytes) continue;
        status.Update(absl::DataLossError(absl::StrCat(
            links[link]->name(), " sent a frame of ", waiting.frame.size_bytes(), " bytes; ",
            options.largest_frame_bytes, " is the most in this operation")));
      }
    }
    if (!status.ok() && !operation->failure.has_value()) {
      operation->failure = Failure{rank_of_link[link], status};
    }
  }
  return operation;
}

void CommunicatorState::Start(const std::shared_ptr<Operation>& operation, Sink* sink) {
  const Lock lock(mutex);
  operation->sink = sink;
  bool waits = operation->failure.has_value();
  for (const auto& streams : operation->streams) waits = waits || !streams.empty();
  if (!waits) return;
  // The workers' threads are the ones that call sinks.
  for (uint32_t worker = 0; worker < workers.size(); ++worker) {
    workers[worker]->Post(
        [self = shared_from_this(), operation, worker] { self->StartOn(worker, operation.get()); });
  }
}

void CommunicatorState::StartOn(uint32_t worker, Operation* operation) {
  Lock lock(mutex);
  if (worker == 0) TellFailure(&lock, operation);
  for (size_t link = 0; link < links.size(); ++link) {
    for (uint32_t stream = worker; stream < 256; stream += workers.size()) {
      if (operation->streams[link].contains(stream)) Drain(&lock, operation, link, stream);
    }
  }
}

void CommunicatorState::Stop(uint64_t sequence, Operation* operation) {
  Lock lock(mutex);
  operation->stopped = true;
  left_sink.wait(lock, [&] {
    return std::all_of(operation->in_sink.begin(), operation->in_sink.end(),
                       [](std::thread::id id) { return id == std::this_thread::get_id(); });
  });
  operation->sink = nullptr;
  for (auto& streams : operation->streams) {
    for (auto& [number, stream] : streams) stream.waiting.clear();
  }
  const auto found = operations.find(sequence);
  if (found != operations.end() && found->second.get() == operation) operations.erase(found);
}

void CommunicatorState::Close() {
  {
    const Lock lock(mutex);
    closed = true;
    for (const auto& [sequence, operation] : operations) ForgetKeptLocked(operation.get());
    operations.clear();
  }
  for (const auto& link : links) link->CloseFlow(key);
}

absl::Status CommunicatorState::Failure::AsLoss() const {
  return absl::AbortedError(absl::StrCat("lost rank ", rank, ": ", reason.message()));
}

// What came of a Submit() to a link behind which the rank is.
static absl::Status OrLoss(const Link& link, uint32_t rank, absl::Status submitted) {
  const absl::Status reason = submitted.ok() ? absl::OkStatus() : link.status();
  return reason.ok() ? submitted : CommunicatorState::Failure{rank, reason}.AsLoss();
}

// One operation's transport.
class UcxTransport final : public Transport {
 public:
  UcxTransport(std::shared_ptr<CommunicatorState> state,
               std::shared_ptr<CommunicatorState::Operation> operation, OperationOptions options)
      : state_(std::move(state)),
        operation_(std::move(operation)),
        options_(options),
        next_index_(state_->links.size() * state_->workers.size()) {}
  ~UcxTransport() override { Stop(); }

  void Start(Sink* sink) override { state_->Start(operation_, sink); }
  void Stop() override { state_->Stop(options_.sequence, operation_.get()); }

  absl::Status Send(const Tag& tag, Frame frame) override {
    SPCCL_CHECK(tag.from < state_->link_of_rank.size() && tag.to < state_->link_of_rank.size());
    Link* const link = state_->link_of_rank[tag.to].get();
    SPCCL_CHECK(link != nullptr);  // a rank of another node
    SPCCL_CHECK(frame.size_bytes() > 0 && frame.size_bytes() <= options_.largest_frame_bytes);
    const size_t stream = tag.lane % state_->workers.size();
    // Relaxed: frames of one lane are sent one after the other; the index only has to be unique
    // and in the order of those sends.
    const uint64_t index =
        next_index_[state_->IndexOf(link) * state_->workers.size() + stream].fetch_add(
            1, std::memory_order_relaxed);
    Message message{.kind = MessageKind::kFrame,
                    .communicator = state_->key,
                    .sequence = options_.sequence,
                    .facts = options_.facts,
                    .tag = tag,
                    .stream = static_cast<uint8_t>(stream),
                    .index = index,
                    .frame_bytes = frame.size_bytes()};
    return OrLoss(*link, tag.to, link->Submit(message, std::move(frame)));
  }

  bool HasRoom(uint32_t to) override {
    return state_->link_of_rank[to]->HasRoom(state_->key, options_.sequence);
  }

 private:
  const std::shared_ptr<CommunicatorState> state_;
  const std::shared_ptr<CommunicatorState::Operation> operation_;
  const OperationOptions options_;
  std::vector<std::atomic<uint64_t>> next_index_;  // by link and stream
};

Communicator::~Communicator() {
  state_->Close();
}

absl::StatusOr<std::unique_ptr<Transport>> Communicator::OpenOperation(
    const OperationOptions& options) {
  SPCCL_CHECK(options.largest_frame_bytes <= FramePool::kLargestFrame);
  SPCCL_ASSIGN_OR_RETURN(auto operation, state_->Open(options));
  // From here on the operation ends when the transport does.
  auto transport = std::make_unique<UcxTransport>(state_, operation, options);
  for (size_t i = 0; i < state_->links.size(); ++i) {
    Link& link = *state_->links[i];
    const absl::Status submitted = link.Submit({.kind = MessageKind::kOpen,
                                                .communicator = state_->key,
                                                .sequence = options.sequence,
                                                .facts = options.facts},
                                               Frame());
    SPCCL_RETURN_IF_ERROR(OrLoss(link, state_->rank_of_link[i], submitted));
  }
  const CommunicatorState::Lock lock(state_->mutex);
  if (state_->failure.has_value()) return state_->failure->AsLoss();
  if (operation->failure.has_value()) return operation->failure->reason;
  return transport;
}

}  // namespace spccl::transport::ucx
