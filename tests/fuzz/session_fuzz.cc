// Whatever a client sends over its socket and writes into its segment: the daemon answers or ends
// the session, another client is served all the while, and nothing is left behind.
//
// The whole engine runs here, its loop turned by hand; tasks touch no memory, since a client may
// name any of its own, and the client is this process.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/request_parse.h"
#include "proto/shm/socket.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

class NoWork final : public runtime::Task {
 public:
  explicit NoWork(runtime::DoneFn done) : done_(std::move(done)) {}
  runtime::Progress RunOne(runtime::Scratch) override {
    if (!std::exchange(ended_, true)) done_(runtime::OpResult{});
    return runtime::Progress::kDone;
  }
  void Cancel(absl::Status, int) override {}

 private:
  const runtime::DoneFn done_;
  bool ended_ = false;
};

CoreHooks Hooks() {
  CoreHooks hooks;
  hooks.plan_model = [] { return nullptr; };
  hooks.share = [](const std::string&) { return JobShare{}; };
  hooks.settings = [](const std::string&, uint64_t, const policy::Overrides& wishes) {
    return policy::Apply(policy::Settings{}, wishes);
  };
  hooks.settings_version = [] { return uint64_t{1}; };
  hooks.registered_job = [](const Peer&) { return std::string(); };
  hooks.is_registered = [](const std::string&) { return false; };
  hooks.change_settings = [](uint64_t, const policy::Overrides&) { return absl::OkStatus(); };
  hooks.forget = [](uint64_t) {};
  hooks.make_task = [](const OpDesc&, std::span<const runtime::RankBuffers>,
                       const policy::Settings&,
                       runtime::DoneFn done) -> absl::StatusOr<std::unique_ptr<runtime::Task>> {
    return std::make_unique<NoWork>(std::move(done));
  };
  return hooks;
}

class Daemon {
 public:
  Daemon() {
    ConfigureLog(LogLevel::kError, LogFormat::kText);
    loop_ = *EventLoop::Create();
    CoreOptions options;
    options.runtime_dir = folder_.path();
    options.channels = 1;
    options.init_timeout_ns = 1;
    // No channel thread: what runs here runs in this thread, so that an input means one thing.
    options.inline_bytes = ~uint64_t{0};
    engine_ = *Engine::Create(std::move(options), Hooks(), loop_.get());
  }
  void Turn() {
    engine_->Tick();
    loop_->RunOnce(0);
  }
  Engine& engine() { return *engine_; }
  std::string socket_path() const { return SessionSocketPath(folder_.path()); }

 private:
  testing::TempFolder folder_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Engine> engine_;
};

class Client {
 public:
  explicit Client(Daemon& daemon) : daemon_(daemon) {
    socket_ = *shm::ConnectSession(daemon.socket_path());
    shm::Request hello{};
    hello.magic = shm::kSessionMagic;
    hello.type = shm::RequestType::kHello;
    hello.request_id = 1;
    hello.hello.major = shm::kSessionMajor;
    SPCCL_CHECK(shm::SendPacket(socket_.get(), &hello, sizeof hello).ok());
    daemon.Turn();  // accepts
    daemon.Turn();  // answers
    shm::Reply reply;
    shm::Packet packet = *shm::ReceivePacket(socket_.get(), &reply, sizeof reply);
    SPCCL_CHECK(reply.result == 0 && packet.fds.size() == shm::kHelloFdCount);
    segment_ = *SharedMapping::Create(packet.fds[shm::kHelloSegmentFd].get(), sizeof(shm::Segment));
    doorbell_ = std::move(packet.fds[shm::kHelloDoorbellFd]);
    auto* const rings = reinterpret_cast<shm::Segment*>(segment_.data());
    producer_.emplace(&rings->submission_control, rings->submissions, shm::kSubmissionCapacity);
  }

  // False once the daemon has hung up.
  bool Step(fuzz::Input& data) {
    switch (data.UpTo(3)) {
      case 0:
      case 1:
        SendRequest(data);
        break;
      case 2:
        PushSlot(data);
        break;
      default:
        Scribble(data);
        break;
    }
    daemon_.Turn();
    return Drain();
  }

 private:
  void SendRequest(fuzz::Input& data) {
    shm::Request request{};
    request.magic = shm::kSessionMagic;
    request.type = static_cast<shm::RequestType>(data.UpTo(12));
    request.request_id = data.Number<uint8_t>();
    data.Read(request.bytes, sizeof request.bytes);
    if (request.type == shm::RequestType::kCommInit && data.OneIn(2)) {
      std::memcpy(request.comm_init.unique_id, unique_id_, sizeof unique_id_);
    }
    std::vector<int> fds;
    UniqueFd memfd;
    if (data.OneIn(2)) {
      memfd.Reset(::memfd_create("fuzz", MFD_CLOEXEC));
      if (data.OneIn(2)) memfd = *CreateSealedMemfd("fuzz", 4096);
      fds.push_back(memfd.get());
    }
    const size_t size = data.OneIn(2) ? sizeof request : data.Number<uint8_t>();
    (void)shm::SendPacket(socket_.get(), &request, size, fds);
  }

  void PushSlot(fuzz::Input& data) {
    shm::Submission slot{};
    slot.comm_id = data.Number<uint8_t>();
    slot.op = data.Number<uint8_t>() % 5;
    slot.sequence = data.Number<uint8_t>();
    if (data.OneIn(2)) data.Read(&slot, sizeof slot);
    producer_->TryPush(slot);
    Ring();
  }

  void Scribble(fuzz::Input& data) {
    const size_t offset = data.UpTo(sizeof(shm::Segment) - 8);
    data.Read(segment_.data() + offset, 8);
    Ring();
  }

  void Ring() {
    const uint64_t one = 1;
    (void)!::write(doorbell_.get(), &one, sizeof one);
  }

  bool Drain() {
    while (true) {
      shm::Reply reply;
      const int flags = MSG_DONTWAIT;
      const ssize_t got = ::recv(socket_.get(), &reply, sizeof reply, flags);
      if (got == 0) return false;
      if (got < 0) return errno == EAGAIN;
      SPCCL_CHECK(got == sizeof reply);
      SPCCL_CHECK(std::memchr(reply.message, 0, sizeof reply.message) != nullptr);
      if (reply.payload[0] != 0) std::memcpy(unique_id_, reply.payload, sizeof unique_id_);
    }
  }

  Daemon& daemon_;
  UniqueFd socket_, doorbell_;
  SharedMapping segment_;
  std::optional<shm::Producer<shm::Submission>> producer_;
  uint8_t unique_id_[shm::kUniqueIdBytes] = {};
};

void FuzzParse(const uint8_t* bytes, size_t size) {
  const auto packet = std::as_bytes(std::span(bytes, size));
  const auto request = ParseRequest(packet, 0);
  if (!request.ok()) return;
  SPCCL_CHECK(size == sizeof(shm::Request) && request->magic == shm::kSessionMagic);
  SPCCL_CHECK(request->type != shm::RequestType::kRegisterMemfd && request->request_id != 0);
}

void FuzzSession(fuzz::Input& data) {
  static Daemon& daemon = *new Daemon;  // lives as long as the fuzzer
  {
    Client client(daemon);
    while (!data.empty() && client.Step(data)) {
    }
  }
  // The client is gone: so is all that it had.
  for (int turns = 0; turns < 1000; ++turns) {
    daemon.Turn();
    const Snapshot now = daemon.engine().MakeSnapshot();
    if (now.core.sessions == 0 && now.comms.empty() && now.core.mapped_bytes == 0) return;
    ::usleep(100);
  }
  SPCCL_CHECK(false);
}

}  // namespace
}  // namespace spccl::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  spccl::daemon::FuzzParse(bytes, size);
  spccl::fuzz::Input data(bytes, size);
  spccl::daemon::FuzzSession(data);
  return 0;
}
