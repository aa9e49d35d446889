// Orders the streams of two processes by words in memory that both have registered, as a rank and
// the daemon do (collective/runtime/gpu_order.h): eager, with the wait enqueued before the write
// and after, and with words that reset themselves in a captured graph that is replayed.
//
// The rank's stream puts a number into the shared data, writes `ready`, waits for `done`, and keeps
// what it then finds in the result; the daemon's waits for `ready`, copies data to result, writes
// `done`. A step out of order shows as a number of another round.
#include <sys/mman.h>

#include <new>

#include "proto/shm/order.h"
#include "tests/gpu/processes.h"

namespace spccl::gpu_test {
namespace {

constexpr uint32_t kRounds = 200;
constexpr std::chrono::seconds kLimit{20};

struct Shared {
  shm::OrderSlot counting, resetting;
  uint32_t data;    // by the rank's stream
  uint32_t result;  // by the daemon's
};

// One process's view: the words as the GPU names them, and words of its own in the GPU's memory:
// copies from host memory to host memory would not be asynchronous.
struct View {
  cuda::DevicePtr base;
  cuda::DevicePtr own;  // kRounds + 1 of them
  cuda::Stream stream;

  cuda::DevicePtr Of(size_t offset) const { return base + offset; }
};
#define SPCCL_AT(view, member) (view).Of(offsetof(Shared, member))

View Register(Shared& shared) {
  View view = {};
  UseFirstGpu();
  SPCCL_MUST(MemHostRegister(&shared, sizeof(shared),
                             cuda::kMemHostRegisterPortable | cuda::kMemHostRegisterDeviceMap));
  SPCCL_MUST(MemHostGetDevicePointer(&view.base, &shared, 0));
  SPCCL_MUST(MemAlloc(&view.own, (kRounds + 1) * sizeof(uint32_t)));
  SPCCL_MUST(StreamCreateWithPriority(&view.stream, cuda::kStreamNonBlocking, 0));
  return view;
}

void EnqueueRank(const View& view, uint32_t round) {
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, data), round, 0));
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, counting.ready), round, 0));
  SPCCL_MUST(StreamWaitValue32(view.stream, SPCCL_AT(view, counting.done), round,
                               cuda::kStreamWaitValueGeq));
  SPCCL_MUST(MemcpyAsync(view.own + 4 * round, SPCCL_AT(view, result), 4, view.stream));
}

void EnqueueAnswer(const View& view) {
  SPCCL_MUST(MemcpyAsync(view.own, SPCCL_AT(view, data), 4, view.stream));
  SPCCL_MUST(MemcpyAsync(SPCCL_AT(view, result), view.own, 4, view.stream));
}

void EnqueueDaemon(const View& view, uint32_t round) {
  SPCCL_MUST(StreamWaitValue32(view.stream, SPCCL_AT(view, counting.ready), round,
                               cuda::kStreamWaitValueGeq));
  EnqueueAnswer(view);
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, counting.done), round, 0));
}

// The rank's part of a captured operation, on words that every replay finds at 0. The host sets its
// data before each.
cuda::GraphExec CaptureRank(const View& view) {
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  SPCCL_MUST(StreamBeginCapture(view.stream, cuda::kStreamCaptureModeThreadLocal));
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, resetting.ready), 1, 0));
  SPCCL_MUST(
      StreamWaitValue32(view.stream, SPCCL_AT(view, resetting.done), 1, cuda::kStreamWaitValueEq));
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, resetting.done), 0, 0));
  SPCCL_MUST(MemcpyAsync(view.own, SPCCL_AT(view, result), 4, view.stream));
  SPCCL_MUST(StreamEndCapture(view.stream, &graph));
  SPCCL_MUST(GraphInstantiate(&exec, graph, 0));
  return exec;
}

void EnqueueDaemonResetting(const View& view) {
  SPCCL_MUST(
      StreamWaitValue32(view.stream, SPCCL_AT(view, resetting.ready), 1, cuda::kStreamWaitValueEq));
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, resetting.ready), 0, 0));
  EnqueueAnswer(view);
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, resetting.done), 1, 0));
}

void ExpectKept(const View& view, uint32_t first, uint32_t last) {
  uint32_t kept[kRounds + 1];
  Download(kept, view.own, sizeof(kept));
  for (uint32_t round = first; round <= last; ++round) {
    Expect(kept[round] == round, "every round keeps its own number");
  }
}

void Rank(Shared& shared, int socket) {
  const View view = Register(shared);
  Meet(socket);
  // All writes of the rank's are on their way before the daemon has said anything.
  for (uint32_t round = 1; round <= kRounds / 2; ++round) EnqueueRank(view, round);
  Meet(socket);
  Drain(view.stream, "the rank's stream, written first", kLimit);
  ExpectKept(view, 1, kRounds / 2);
  // The daemon's waits are there before the rank writes.
  Meet(socket);
  for (uint32_t round = kRounds / 2 + 1; round <= kRounds; ++round) EnqueueRank(view, round);
  Drain(view.stream, "the rank's stream, waited for first", kLimit);
  ExpectKept(view, kRounds / 2 + 1, kRounds);
  Meet(socket);

  const cuda::GraphExec exec = CaptureRank(view);
  for (uint32_t round = 1; round <= kRounds; ++round) {
    reinterpret_cast<volatile uint32_t&>(shared.data) = round;
    SPCCL_MUST(GraphLaunch(exec, view.stream));
    Drain(view.stream, "the rank's replay", kLimit);
    uint32_t kept = 0;
    Download(&kept, view.own, sizeof(kept));
    Expect(kept == round, "every replay keeps its own number");
  }
  Meet(socket);
  Expect(shared.resetting.ready.load() == 0 && shared.resetting.done.load() == 0,
         "the words of a captured operation are 0 after it");
}

void Daemon(Shared& shared, int socket) {
  const View view = Register(shared);
  Meet(socket);
  Meet(socket);
  for (uint32_t round = 1; round <= kRounds / 2; ++round) EnqueueDaemon(view, round);
  Drain(view.stream, "the daemon's stream, written first", kLimit);
  for (uint32_t round = kRounds / 2 + 1; round <= kRounds; ++round) EnqueueDaemon(view, round);
  Meet(socket);
  Drain(view.stream, "the daemon's stream, waited for first", kLimit);
  Meet(socket);
  // A daemon serves replays as they come: each is enqueued after the one before it is done.
  for (uint32_t round = 1; round <= kRounds; ++round) {
    EnqueueDaemonResetting(view);
    Drain(view.stream, "the daemon's part of a replay", kLimit);
  }
  Meet(socket);
}

int Main() {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Expect(memory != MAP_FAILED, "mmap");
  Shared& shared = *new (memory) Shared();
  RunTwo([&](int socket) { Rank(shared, socket); }, "rank",
         [&](int socket) { Daemon(shared, socket); }, "daemon");
}

}  // namespace
}  // namespace spccl::gpu_test

int main() {
  return spccl::gpu_test::Main();
}
