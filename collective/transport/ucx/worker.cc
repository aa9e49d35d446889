#include "collective/transport/ucx/worker.h"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace spccl::transport::ucx {
namespace {

constexpr int kLooksAtOnce = 32;           // before what arrived is handed on
constexpr int kSleepMs = 500;              // so that UCX's timers run
constexpr int kClosingSleepMs = 20;        // while connections wait for their end
constexpr int64_t kFlushNs = 500'000'000;  // see Stop
constexpr int64_t kCloseNs = 500'000'000;
// A peer that acknowledges nothing for longer than any that is there may be silent (docs/adr/0008).
constexpr int64_t kStuckNs = 3'000'000'000;

uint64_t InvoluntarySwitches() {
  rusage usage;
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<uint64_t>(usage.ru_nivcsw);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const Context& context, Options options) {
  std::unique_ptr<Worker> worker(new Worker(options));
  SPCCL_RETURN_IF_ERROR(worker->Init(context));
  return worker;
}

absl::Status Worker::Init(const Context& context) {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // mutex_ sees to it
  ucs_status_t status = ucp_worker_create(context.get(), &params, &worker_);
  if (status != UCS_OK) return UcxStatus(status, "creating a UCX worker");
  status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return UcxStatus(status, "UCX's wake-up descriptor");
  stuck_.emplace(event_fd_);

  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = kActiveMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = OnActiveMessage;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return UcxStatus(status, "UCX active messages");

  ucp_worker_attr_t attributes = {};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK) return UcxStatus(status, "the address of a UCX worker");
  address_.assign(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  if (attributes.max_am_header < kMessageBytes) {
    return absl::UnimplementedError(absl::StrCat("UCX's transports take message headers of ",
                                                 attributes.max_am_header, " bytes only; ",
                                                 kMessageBytes, " are needed"));
  }

  // Signals are for the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread_.native_handle(), absl::StrCat("spccl-ucx-", options_.index).c_str());
  return absl::OkStatus();
}

void Worker::Stop() {
  if (!thread_.joinable()) return;
  // Release, so that the thread sees all that was left for it before.
  stopping_.store(true, std::memory_order_release);
  ucp_worker_signal(worker_);
  thread_.join();
}

Worker::~Worker() {
  Stop();
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  // What UCX did not give back while it lived: nobody touches it now.
  for (Sending* sending : sending_) delete sending;
  for (Receiving* receiving : receiving_) delete receiving;
}

ucs_status_t Worker::OnActiveMessage(void* self, const void* header, size_t header_bytes,
                                     void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  Worker& worker = *static_cast<Worker*>(self);
  const std::optional<Message> message =
      ParseMessage({static_cast<const std::byte*>(header), header_bytes});
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const bool whole =
      message.has_value() && message->frame_bytes == bytes && message->part_offset == 0;
  if (!message.has_value() || (bytes > 0) != CarriesBytes(message->kind) ||
      (!whole && (rendezvous || bytes == 0 || bytes != PartBytesOf(*message)))) {
    worker.events_.push_back({.kind = Event::Kind::kRubbish});
    return UCS_OK;  // UCX drops the data
  }
  if (rendezvous) {
    worker.events_.push_back(
        {.kind = Event::Kind::kRendezvous, .message = *message, .rendezvous = {data}});
    return UCS_INPROGRESS;
  }
  const std::span<const std::byte> content(static_cast<const std::byte*>(data), bytes);
  if (!whole) {
    worker.TakePartLocked(*message, content);
    return UCS_OK;
  }
  Frame frame;
  if (bytes > 0) {
    frame = worker.options_.pool->Take(bytes);
    std::memcpy(frame.data(), data, bytes);
    frame.set_size_bytes(bytes);
  }
  worker.events_.push_back({.message = *message, .frame = std::move(frame)});
  return UCS_OK;
}

void Worker::TakePartLocked(const Message& message, std::span<const std::byte> bytes) {
  if (!parts_.Admits(message.token)) {
    events_.push_back({.kind = Event::Kind::kStray, .message = message});
    return;
  }
  absl::StatusOr<Frame> frame = parts_.Take(message, bytes);
  if (!frame.ok()) return FailLocked(message.token, frame.status());
  if (frame->valid()) events_.push_back({.message = message, .frame = *std::move(frame)});
}

void Worker::Receive(const Message& message, Rendezvous rendezvous, Frame frame) {
  auto owner = std::make_unique<Receiving>(Receiving{message, std::move(frame), this});
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv_am = OnReceived;
  param.user_data = owner.get();
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const std::lock_guard lock(mutex_);
  void* const request = ucp_am_recv_data_nbx(worker_, rendezvous.descriptor, owner->frame.data(),
                                             message.frame_bytes, &param);
  Receiving* const receiving = owner.release();
  receiving_.insert(receiving);
  if (!UCS_PTR_IS_PTR(request)) EndReceive(receiving, UCS_PTR_STATUS(request));
}

void Worker::Refuse(Rendezvous rendezvous) {
  const std::lock_guard lock(mutex_);
  ucp_am_data_release(worker_, rendezvous.descriptor);
}

void Worker::OnReceived(void* request, ucs_status_t status, size_t bytes, void* receiving) {
  Receiving* const ended = static_cast<Receiving*>(receiving);
  if (status == UCS_OK && bytes != ended->message.frame_bytes) status = UCS_ERR_MESSAGE_TRUNCATED;
  ended->worker->EndReceive(ended, status);
  ucp_request_free(request);
}

void Worker::EndReceive(Receiving* receiving, ucs_status_t status) {
  const std::unique_ptr<Receiving> owner(receiving);
  receiving_.erase(receiving);
  if (status != UCS_OK) {
    events_.push_back({.kind = Event::Kind::kReceiveFailed,
                       .message = owner->message,
                       .reason = UcxStatus(status, "receiving")});
    return;
  }
  owner->frame.set_size_bytes(owner->message.frame_bytes);
  events_.push_back({.kind = Event::Kind::kReceived,
                     .message = owner->message,
                     .frame = std::move(owner->frame)});
}

void Worker::OnError(void* endpoint, ucp_ep_h handle, ucs_status_t status) {
  const Endpoint& failed = *static_cast<Endpoint*>(endpoint);
  static_cast<Worker*>(failed.worker)
      ->FailLocked(failed.link, UcxStatus(status, "the connection broke"));
}

void Worker::FailLocked(const Key128& link, absl::Status reason) {
  Event event{.kind = Event::Kind::kEndpointFailed, .reason = std::move(reason)};
  event.message.token = link;
  events_.push_back(std::move(event));
}

void Worker::Post(std::function<void()> work) {
  {
    const std::lock_guard lock(queue_mutex_);
    posts_.push_back(std::move(work));
  }
  // The own thread sets asleep_ before its last look at posts_ under queue_mutex_: either it saw
  // this one there, or this load sees it asleep.
  if (asleep_.load(std::memory_order_relaxed)) ucp_worker_signal(worker_);
}

bool Worker::Look() {
  std::vector<Event> events;
  bool found;
  {
    const std::lock_guard lock(mutex_);
    found = TakeWorkLocked();
    for (int looks = 0; looks < kLooksAtOnce && ucp_worker_progress(worker_) != 0; ++looks) {
      found = true;
    }
    events.swap(events_);
    if (!closed_.empty()) {
      const int64_t now_ns = MonotonicNanos();
      if (now_ns >= next_end_ns_) EndClosedLocked(now_ns, kStuckNs);
    }
    std::erase_if(closing_, [](void* request) {
      if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp_request_free(request);
      return true;
    });
    if (closing_.empty() && closed_.empty()) {
      std::erase_if(endpoints_, [](const auto& endpoint) { return endpoint->handle == nullptr; });
    }
  }
  std::vector<std::function<void()>> posts;
  {
    const std::lock_guard lock(queue_mutex_);
    posts.swap(posts_);
  }
  for (Event& event : events) Deliver(std::move(event));
  for (const std::function<void()>& post : posts) post();
  return found || !events.empty() || !posts.empty();
}

void Worker::Deliver(Event event) {
  WorkerHandler& handler = *options_.handler;
  const uint32_t self = options_.index;
  switch (event.kind) {
    case Event::Kind::kMessage:
      return handler.OnMessage(self, event.message, std::move(event.frame));
    case Event::Kind::kRendezvous:
      return handler.OnRendezvous(self, event.message, event.rendezvous);
    case Event::Kind::kReceived:
      return handler.OnReceived(self, event.message, std::move(event.frame));
    case Event::Kind::kReceiveFailed:
      return handler.OnReceiveFailed(self, event.message, std::move(event.reason));
    case Event::Kind::kStray:
      return handler.OnStrayPart(self, event.message);
    case Event::Kind::kRubbish:
      return handler.OnRubbish(self);
    case Event::Kind::kEndpointFailed:
      return handler.OnEndpointFailed(self, event.message.token, std::move(event.reason));
    case Event::Kind::kRoom:
      return handler.OnRoom(self, event.message.token);
  }
}

void Worker::Run() {
  // Acquire: see Stop.
  while (!stopping_.load(std::memory_order_acquire)) {
    if (Look()) {
      spinner_.Found(MonotonicNanos());
    } else if (spinner_.LookAgain(MonotonicNanos(), InvoluntarySwitches())) {
      ::sched_yield();
    } else {
      Sleep();
    }
  }
  Look();  // what was posted until then is done
  options_.handler->OnStopping(options_.index);
  Shutdown();
}

void Worker::Sleep() {
  int most_ms;
  {
    const std::lock_guard lock(mutex_);
    // Fails if something came since the last look.
    if (!events_.empty() || ucp_worker_arm(worker_) != UCS_OK) return;
    asleep_.store(true, std::memory_order_relaxed);
    most_ms = closed_.empty() ? kSleepMs : kClosingSleepMs;
  }
  bool queued;
  {
    const std::lock_guard lock(queue_mutex_);
    queued = !queue_.empty() || !posts_.empty();
  }
  pollfd wait = {.fd = event_fd_, .events = POLLIN, .revents = 0};
  if (!queued && !stopping_.load(std::memory_order_acquire)) (void)::poll(&wait, 1, most_ms);
  const std::lock_guard lock(mutex_);
  asleep_.store(false, std::memory_order_relaxed);
}

// Sends what was taken, to those who take it in time, then ends every connection.
void Worker::Shutdown() {
  std::vector<void*> flushing;
  const auto progress_until = [&](int64_t deadline, auto done) {
    while (!done() && MonotonicNanos() < deadline) {
      if (ucp_worker_progress(worker_) == 0) ::sched_yield();
    }
  };
  const auto all_ended = [](std::vector<void*>* requests) {
    std::erase_if(*requests, [](void* request) {
      if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp_request_free(request);
      return true;
    });
    return requests->empty();
  };
  const std::lock_guard lock(mutex_);
  TakeWorkLocked();
  for (const auto& endpoint : endpoints_) {
    if (endpoint->handle == nullptr) continue;
    ucp_request_param_t param = {};
    void* const request = ucp_ep_flush_nbx(endpoint->handle, &param);
    if (UCS_PTR_IS_PTR(request)) flushing.push_back(request);
  }
  progress_until(MonotonicNanos() + kFlushNs, [&] { return all_ended(&flushing); });
  for (const auto& endpoint : endpoints_) CloseLocked(endpoint.get());
  stuck_->Begin();
  EndClosedLocked(MonotonicNanos(), 0);
  progress_until(MonotonicNanos() + kCloseNs, [&] {
    const bool flushed = all_ended(&flushing);  // a forced close ends them
    return all_ended(&closing_) && flushed && sending_.empty() && receiving_.empty();
  });
  for (Event& event : events_) {
    if (event.kind == Event::Kind::kRendezvous) {
      ucp_am_data_release(worker_, event.rendezvous.descriptor);
    }
  }
  events_.clear();
}

}  // namespace spccl::transport::ucx
