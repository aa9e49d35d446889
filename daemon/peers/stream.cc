#include "daemon/peers/stream.h"

#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace spccl::daemon::peers {
namespace {

constexpr char kSanProperty[] = "x509_subject_alternative_name";

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::Status FromGrpc(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

class DialedStream final : public Stream,
                           public grpc::ClientBidiReactor<v1::PeerMessage, v1::PeerMessage> {
 public:
  explicit DialedStream(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::Peer::NewStub(channel)) {}

  void Start(StreamHandler handler) {
    context_.set_wait_for_ready(false);
    stub_->async()->Connect(&context_, this);
    AddHold();  // reads, writes and ends come from other threads than gRPC's
    Begin(std::move(handler));
    StartCall();
  }

 private:
  void StartReadOp(v1::PeerMessage* message) override { StartRead(message); }
  void StartWriteOp(const v1::PeerMessage* message) override { StartWrite(message); }
  void EndOp(const absl::Status&) override { StartWritesDone(); }
  void CancelOp() override { context_.TryCancel(); }
  void ReadsEndedOp() override { RemoveHold(); }
  bool must_end() const override { return false; }

  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnDone(const grpc::Status& status) override { Done(FromGrpc(status)); }

  const std::unique_ptr<v1::Peer::Stub> stub_;
  grpc::ClientContext context_;
};

class AcceptedStream final : public Stream,
                             public grpc::ServerBidiReactor<v1::PeerMessage, v1::PeerMessage> {
 public:
  explicit AcceptedStream(grpc::CallbackServerContext* context) : context_(context) {
    remote_ = context->peer();
    for (const grpc::string_ref& name : context->auth_context()->FindPropertyValues(kSanProperty)) {
      certificate_names_.emplace_back(name.data(), name.size());
    }
  }

  void Start(StreamHandler handler) { Begin(std::move(handler)); }

 private:
  void StartReadOp(v1::PeerMessage* message) override { StartRead(message); }
  void StartWriteOp(const v1::PeerMessage* message) override { StartWrite(message); }
  void EndOp(const absl::Status& status) override { Finish(ToGrpc(status)); }
  void CancelOp() override { context_->TryCancel(); }
  void ReadsEndedOp() override {}
  bool must_end() const override { return true; }

  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnDone() override { Done(absl::OkStatus()); }

  grpc::CallbackServerContext* const context_;  // valid until OnDone
};

}  // namespace

Stream::Stream() : last_heard_ns_(MonotonicNanos()) {}

void Stream::Begin(StreamHandler handler) {
  const std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
  self_ = shared_from_this();
  StartReadOp(&incoming_);
}

bool Stream::Write(v1::PeerMessage message) {
  const std::lock_guard lock(mutex_);
  if (broken_ || ending_) return true;
  const size_t bytes = message.ByteSizeLong();
  if (queue_.size() >= kMaxQueuedMessages || queued_bytes_ + bytes > kMaxQueuedBytes) return false;
  queue_.push_back(std::move(message));
  queued_bytes_ += bytes;
  WriteNext();
  return true;
}

void Stream::WriteNext() {
  if (writing_ || broken_ || end_done_) return;
  if (!queue_.empty()) {
    writing_ = true;
    StartWriteOp(&queue_.front());
  } else if (ending_) {
    end_done_ = true;
    EndOp(end_status_);
  }
}

void Stream::WriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  queued_bytes_ -= queue_.front().ByteSizeLong();
  queue_.pop_front();
  // A failed write is followed by a failed read, which ends the stream.
  if (ok) {
    WriteNext();
  } else if (!broken_) {
    broken_ = true;
    queue_.clear();
    queued_bytes_ = 0;
  }
  if (broken_ && reads_ended_ && !end_done_) {
    end_done_ = true;
    EndOp(end_status_);
  }
}

void Stream::ReadDone(bool ok) {
  if (ok) {
    last_heard_ns_.store(MonotonicNanos(), std::memory_order_relaxed);
    handler_.on_message(std::move(incoming_));
    return;
  }
  const std::lock_guard lock(mutex_);
  reads_ended_ = true;
  broken_ = true;
  if (!must_end()) {
    end_done_ = true;
  } else if (!writing_ && !end_done_) {
    end_done_ = true;
    EndOp(end_status_);
  }
  ReadsEndedOp();
}

void Stream::Resume() {
  const std::lock_guard lock(mutex_);
  if (done_ || reads_ended_ || (end_done_ && must_end())) return;
  incoming_.Clear();
  StartReadOp(&incoming_);
}

void Stream::End(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (ending_ || broken_) return;
  ending_ = true;
  end_status_ = status;
  WriteNext();
}

void Stream::Abort() {
  const std::lock_guard lock(mutex_);
  if (!done_) CancelOp();
}

size_t Stream::queued() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void Stream::Done(const absl::Status& status) {
  std::shared_ptr<Stream> self;
  StreamHandler handler;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    broken_ = true;
    self = std::move(self_);
    handler = std::move(handler_);
  }
  handler.on_end(status, std::move(self));
}

std::shared_ptr<Stream> DialStream(const std::string& target,
                                   const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                   StreamHandler handler) {
  grpc::ChannelArguments arguments;
  // A connection of its own, which goes when the stream goes; nothing of the environment, no
  // retries.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  const auto stream =
      std::make_shared<DialedStream>(grpc::CreateCustomChannel(target, credentials, arguments));
  stream->Start(std::move(handler));
  return stream;
}

grpc::ServerBidiReactor<v1::PeerMessage, v1::PeerMessage>* AcceptingService::Connect(
    grpc::CallbackServerContext* context) {
  const auto stream = std::make_shared<AcceptedStream>(context);
  stream->Start(accept_(stream));
  return stream.get();
}

}  // namespace spccl::daemon::peers
