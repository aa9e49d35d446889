// GPU memory and order memory that clients ask for, as a client of the protocol sees it. The memory
// is another process's: a driver opens no handles of its own.
#include "daemon/gpu_memory.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "proto/shm/order.h"
#include "tests/daemon/gpu_memory_fixture.h"
#include "tests/daemon/open_client.h"

namespace spccl::daemon {
namespace {

using ::testing::HasSubstr;

TEST_F(GpuMemoryTest, ALegacyHandleIsOpenedOnceAndShown) {
  RawClient client = Open(*env_);
  const auto first = client.Call(IpcRequest(client));
  ExpectSuccess(first);
  const auto second = client.Call(IpcRequest(client));
  ExpectSuccess(second);
  EXPECT_NE(first->value, second->value);
  spcclFakeHoldings now;
  Fake().Count(&now);
  EXPECT_EQ(now.imports, before_.imports + 1);
  const std::vector<BufferInfo> buffers = Buffers();
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0].kind, "cuda-ipc");
  EXPECT_EQ(buffers[0].size_bytes, kBlockBytes);
  EXPECT_EQ(buffers[0].gpu, GpuName(exported_.gpu));
  // The second keeps it when the first is taken back.
  shm::Request back = client.Make(shm::RequestType::kDeregister);
  back.deregister.buffer_id = first->value;
  ExpectSuccess(client.Call(back));
  EXPECT_EQ(Buffers().size(), 1u);
}

TEST_F(GpuMemoryTest, DescriptorsAreMappedInARow) {
  RawClient client = Open(*env_);
  ExpectSuccess(client.Call(DescriptorRequest(client), Descriptors()));
  const std::vector<BufferInfo> buffers = Buffers();
  ASSERT_EQ(buffers.size(), 1u);
  EXPECT_EQ(buffers[0].kind, "cuda-fd");
  EXPECT_EQ(buffers[0].size_bytes, kPieces * exported_.piece_bytes);
}

// Behind a first piece that is the same, others may have been mapped since.
TEST_F(GpuMemoryTest, MemoryOfSeveralPiecesIsOpenedEachTime) {
  RawClient client = Open(*env_);
  ExpectSuccess(client.Call(DescriptorRequest(client), Descriptors()));
  ExpectSuccess(client.Call(DescriptorRequest(client), Descriptors()));
  spcclFakeHoldings now;
  Fake().Count(&now);
  EXPECT_EQ(now.reservations, before_.reservations + 2);
}

TEST_F(GpuMemoryTest, WhatDoesNotFitTogetherIsRefused) {
  RawClient client = Open(*env_);
  const auto refused = [&](shm::Request request, const std::vector<int>& fds, const char* message) {
    ExpectRefusal(client.Call(request, fds), shm::Result::kInvalidArgument, HasSubstr(message));
  };
  using Body = decltype(shm::Request{}.register_cuda);
  const auto ipc = [&](const std::function<void(Body&)>& change) {
    shm::Request request = IpcRequest(client);
    change(request.register_cuda);
    return request;
  };
  const auto pieces = [&](const std::function<void(Body&)>& change) {
    shm::Request request = DescriptorRequest(client);
    change(request.register_cuda);
    return request;
  };
  refused(ipc([](Body& body) { body.size_bytes = 0; }), {}, "0 bytes");
  refused(ipc([](Body& body) { body.size_bytes = UINT64_MAX; }), {}, "bytes");
  // More than there is, which only the driver knows.
  refused(ipc([](Body& body) { body.size_bytes = kBlockBytes * 4; }), {}, "not 4194304");
  refused(ipc([](Body& body) { body.pieces = 2; }), {}, "2 pieces");
  refused(ipc([](Body& body) { body.kind = static_cast<shm::CudaHandleKind>(9); }), {},
          "unknown kind 9");
  refused(IpcRequest(client), {Descriptors()[0]}, "1 descriptors");
  refused(ipc([](Body& body) { body.ipc_handle[3] ^= 0x55; }), {}, "could not be opened");
  refused(DescriptorRequest(client), {Descriptors()[0]}, "2 pieces with 1");
  refused(pieces([](Body& body) { body.pieces = 0; }), {}, "0 pieces");
  refused(pieces([](Body& body) { body.pieces = 1000; }), Descriptors(), "1000 pieces");
  refused(pieces([](Body& body) { body.size_bytes -= 4096; }), Descriptors(), "in pieces of");
  refused(pieces([](Body& body) { body.piece_units[1] = 0; }), Descriptors(), "of 0 bytes");
  refused(pieces([](Body& body) {
            body.size_bytes += exported_.piece_bytes;
            body.piece_units[1] *= 2;
          }),
          Descriptors(), "could not be opened");
  // No memory of a GPU's.
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  refused(DescriptorRequest(client), {pipe[0], pipe[1]}, "could not be opened");
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_TRUE(Buffers().empty());
}

TEST_F(GpuMemoryTest, AGpuThatIsNotSeenIsNamed) {
  RawClient client = Open(*env_);
  shm::Request request = IpcRequest(client);
  std::memset(request.register_cuda.gpu, 0xAB, sizeof request.register_cuda.gpu);
  ExpectRefusal(client.Call(request), shm::Result::kInvalidUsage,
                HasSubstr("GPU-abababab-abab-abab-abab-abababababab"));
}

TEST_F(GpuMemoryTest, ItsOwnMemoryIsNotOpened) {
  RawClient client = Open(*env_);
  const GpuProgram gpu(LoadFakeDriver());
  void* const memory = gpu.Allocate(kBlockBytes);
  cuda::IpcMemHandle handle;
  gpu.Must(gpu.driver().IpcGetMemHandle(&handle, reinterpret_cast<uint64_t>(memory)));
  shm::Request request = IpcRequest(client);
  std::memcpy(request.register_cuda.ipc_handle, handle.reserved, sizeof handle.reserved);
  ExpectRefusal(client.Call(request), shm::Result::kInvalidArgument,
                HasSubstr("could not be opened"));
  gpu.Free(memory);
}

TEST_F(GpuMemoryTest, BytesCountForTheLimits) {
  CoreHooks hooks = GateHooks(std::make_shared<Gate>());
  hooks.gpus = gpus_.get();
  CoreOptions options;
  options.limits.buffer_bytes_per_session = kBlockBytes + 1;
  DaemonEnv env(options, &hooks);
  RawClient client = Open(env);
  ExpectSuccess(client.Call(IpcRequest(client)));
  ExpectRefusal(client.Call(IpcRequest(client)), shm::Result::kSystemError,
                HasSubstr("limits.buffer_bytes"));
}

TEST_F(GpuMemoryTest, AProcessHasSoManyRequestsOpenAtATime) {
  RawClient client = Open(*env_);
  // Nothing is opened until this has ended.
  std::atomic<bool> may_go{false};
  gpus_->at(0).Post([&may_go] { may_go.wait(false); });
  std::vector<shm::Request> requests;
  for (int i = 0; i < 17; ++i) {
    requests.push_back(DescriptorRequest(client));
    ASSERT_THAT(client.Send(requests.back(), Descriptors()), IsOk());
  }
  ExpectRefusal(client.AwaitReply(requests.back().request_id), shm::Result::kSystemError,
                HasSubstr("16 requests"));
  may_go = true;
  may_go.notify_all();
  requests.pop_back();
  for (const shm::Request& request : requests) {
    ExpectSuccess(client.AwaitReply(request.request_id));
  }
  ExpectSuccess(client.Call(DescriptorRequest(client), Descriptors()));
}

// The file of the order memory that is given; 0: none is.
ino_t OrderFile(RawClient& client) {
  const shm::Request request = client.Make(shm::RequestType::kOrderMemory);
  if (!client.Send(request).ok()) return 0;
  pollfd query{.fd = client.socket(), .events = POLLIN, .revents = 0};
  if (::poll(&query, 1, spccl::testing::kPatienceMs) != 1) return 0;
  shm::Reply reply;
  const auto packet = shm::ReceivePacket(client.socket(), &reply, sizeof reply);
  if (!packet.ok() || reply.request_id != request.request_id || packet->fds.size() != 1) return 0;
  struct stat file;
  return ::fstat(packet->fds.front().get(), &file) == 0 ? file.st_ino : 0;
}

// Who could not map it asks again.
TEST_F(GpuMemoryTest, OrderMemoryIsMadeOnceAndGivenAgain) {
  RawClient client = Open(*env_);
  const ino_t first = OrderFile(client);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(OrderFile(client), first);
  spcclFakeHoldings now;
  Fake().Count(&now);
  EXPECT_EQ(now.host, before_.host + 1);
}

TEST_F(GpuMemoryTest, OrderMemoryThatIsBeingMadeIsNotAskedForAgain) {
  RawClient client = Open(*env_);
  std::atomic<bool> may_go{false};
  gpus_->at(0).Post([&may_go] { may_go.wait(false); });
  const shm::Request first = client.Make(shm::RequestType::kOrderMemory);
  ASSERT_THAT(client.Send(first), IsOk());
  ExpectRefusal(client.Call(client.Make(shm::RequestType::kOrderMemory)), shm::Result::kSystemError,
                HasSubstr("still being made"));
  may_go = true;
  may_go.notify_all();
  ExpectSuccess(client.AwaitReply(first.request_id));
}

// The copied way needs it, too, and no GPU of the daemon's.
TEST_F(GpuMemoryTest, OrderMemoryIsGivenWhereAllGpusHaveFailed) {
  for (size_t i = 0; i < gpus_->count(); ++i) gpus_->at(i).Fail(absl::InternalError("in a test"));
  RawClient client = Open(*env_);
  ExpectSuccess(client.Call(client.Make(shm::RequestType::kOrderMemory)));
  spcclFakeHoldings now;
  Fake().Count(&now);
  EXPECT_EQ(now.host, before_.host);
}

TEST_F(GpuMemoryTest, AGpuThatFailsIsToldOnce) {
  const auto sample = [this] {
    auto now = env_->core().GetCoreSample();
    EXPECT_THAT(now, IsOk());
    return *std::move(now);
  };
  EXPECT_EQ(sample().gpus_usable, gpus_->count());
  gpus_->at(0).Fail(absl::InternalError("in a test"));
  while (sample().events["gpu-failed"] == 0) std::this_thread::yield();
  gpus_->at(1).Fail(absl::InternalError("in a test"));
  while (sample().events["gpu-failed"] == 1) std::this_thread::yield();
  const metrics::CoreSample last = sample();
  EXPECT_EQ(last.events.at("gpu-failed"), 2u);
  EXPECT_EQ(last.gpus_failed, 2u);
  EXPECT_EQ(last.gpus_usable, gpus_->count() - 2);
}

void AwaitPost(runtime::Gpu& gpu) {
  std::promise<void> passed;
  gpu.Post([&passed] { passed.set_value(); });
  passed.get_future().wait();
}

// What is to be closed on the GPU that it was registered on may be blocked for ever.
TEST_F(GpuMemoryTest, OrderMemoryIsGivenBackByAGpuThatWorksThen) {
  const auto memfd = CreateSealedMemfd("order-test", sizeof(shm::OrderMemory));
  ASSERT_THAT(memfd, IsOk());
  auto mapping = SharedMapping::Create(memfd->get(), sizeof(shm::OrderMemory));
  ASSERT_THAT(mapping, IsOk());
  runtime::Gpu& first = gpus_->at(0);
  Reaper reaper;
  std::promise<void> end;
  GpuCloser closer(*gpus_);
  GpuImports imports(gpus_.get(), &closer, [] {});
  OrderMapRef order;
  imports.Register(reaper.Own(*std::move(mapping)), [&order](const auto& made) { order = *made; });
  AwaitPost(first);
  imports.Deliver();
  ASSERT_NE(order, nullptr);
  closer.Defer(first, [&end] { end.get_future().wait(); });
  first.Fail(absl::DeadlineExceededError("its work has not ended"));
  order.reset();
  std::promise<void> closed;
  closer.Defer(gpus_->at(1), [&closed] { closed.set_value(); });  // after it
  closed.get_future().wait();
  spcclFakeHoldings now;
  Fake().Count(&now);
  EXPECT_EQ(now.host, before_.host);
  end.set_value();
}

// A stream that waits, for whatever it may be.
class Busy {
 public:
  explicit Busy(runtime::Gpu& gpu) {
    std::promise<void> launched;
    gpu.Post([&] {
      using End = std::shared_future<void>;
      const auto wait = [](void* end) { static_cast<End*>(end)->wait(); };
      const auto drop = [](void* end) { delete static_cast<End*>(end); };
      EXPECT_EQ(Fake().Launch(static_cast<cuda::Stream>(gpu.QueueOf(0).stream), wait,
                              new End(end_.get_future()), drop),
                cuda::kSuccess);
      launched.set_value();
    });
    launched.get_future().wait();
  }
  ~Busy() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

shm::Request DeregisterRequest(RawClient& client, uint64_t buffer_id) {
  shm::Request request = client.Make(shm::RequestType::kDeregister);
  request.deregister.buffer_id = buffer_id;
  return request;
}

TEST_F(GpuMemoryTest, NothingElseWaitsForMemoryThatIsClosed) {
  RawClient client = Open(*env_);
  const auto memory = client.Call(IpcRequest(client));
  ExpectSuccess(memory);
  const uint32_t mappings = env_->core().mappings();
  auto host = client.Allocate(4096);
  ASSERT_THAT(host, IsOk());
  EXPECT_EQ(env_->core().mappings(), mappings + 1);
  Busy busy(gpus_->at(0));
  ExpectSuccess(client.Call(DeregisterRequest(client, memory->value)));
  ExpectSuccess(client.Call(DeregisterRequest(client, host->id)));
  const int64_t until_ns = MonotonicNanos() + 20'000'000'000;
  while (env_->core().mappings() != mappings && MonotonicNanos() < until_ns) {
    std::this_thread::yield();
  }
  EXPECT_EQ(env_->core().mappings(), mappings);
}

// These two last, of those with GPUs: what has failed stays so.
TEST_F(GpuMemoryTest, YMemoryOfAGpuThatHasStuckIsLeftToTheProcess) {
  auto busy = std::make_unique<Busy>(gpus_->at(0));
  {
    RawClient client = Open(*env_);
    ExpectSuccess(client.Call(IpcRequest(client)));
    gpus_->at(0).Fail(absl::DeadlineExceededError("its work has not ended"));
  }
  env_.reset();
  spcclFakeHoldings now;
  Fake().Count(&now);
  EXPECT_EQ(now.imports, ++before_.imports);
  busy.reset();
}

TEST_F(GpuMemoryTest, ZOrderMemoryIsRegisteredWithAGpuThatWorks) {
  RawClient before = Open(*env_);
  ExpectSuccess(before.Call(before.Make(shm::RequestType::kOrderMemory)));
  Fake().BreakDevice(0, cuda::kErrorIllegalAddress);
  RawClient unnoticed = Open(*env_);
  ExpectSuccess(unnoticed.Call(unnoticed.Make(shm::RequestType::kOrderMemory)));
  gpus_->at(0).Fail(absl::InternalError("an illegal address"));
  RawClient noticed = Open(*env_);
  ExpectSuccess(noticed.Call(noticed.Make(shm::RequestType::kOrderMemory)));
  spcclFakeHoldings now;
  Fake().Count(&now);
  EXPECT_EQ(now.host, before_.host + 3);
}

TEST(NoGpuTest, GpuMemoryIsRefusedAndOrderMemoryIsNot) {
  DaemonEnv env;
  RawClient client = Open(env);
  shm::Request request = client.Make(shm::RequestType::kRegisterCuda);
  request.register_cuda.size_bytes = 4096;
  request.register_cuda.kind = shm::CudaHandleKind::kIpc;
  request.register_cuda.pieces = 1;
  ExpectRefusal(client.Call(request), shm::Result::kInvalidUsage, HasSubstr("uses no GPU"));
  ExpectSuccess(client.Call(client.Make(shm::RequestType::kOrderMemory)));
}

}  // namespace
}  // namespace spccl::daemon
