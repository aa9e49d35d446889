// Orders the streams of two processes by words in memory that both have registered, as a rank and
// the daemon do (collective/runtime/gpu_order.h): eager, with the wait for `ready` enqueued before
// the write and after, and with words that are taken back for a captured graph that is replayed.
//
// The rank's stream puts a number into the shared data, writes `ready`, waits for `done`, and keeps
// what it then finds in the result. The daemon's waits for `ready`; once that is over, its CPU
// takes back a captured `ready`, has data copied to result, and stores `done` when that has ended.
// A step out of order shows as a number of another round.
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

// The rank's part of a captured operation, on words that every replay finds at 0. The host sets its
// data before each.
cuda::GraphExec CaptureRank(const View& view) {
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  SPCCL_MUST(StreamBeginCapture(view.stream, cuda::kStreamCaptureModeThreadLocal));
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, resetting.ready), 1, 0));
  SPCCL_MUST(
      StreamWaitValue32(view.stream, SPCCL_AT(view, resetting.done), 1, cuda::kStreamWaitValueGeq));
  SPCCL_MUST(StreamWriteValue32(view.stream, SPCCL_AT(view, resetting.done), 0, 0));
  SPCCL_MUST(MemcpyAsync(view.own, SPCCL_AT(view, result), 4, view.stream));
  SPCCL_MUST(StreamEndCapture(view.stream, &graph));
  SPCCL_MUST(GraphInstantiate(&exec, graph, 0));
  return exec;
}

void EnqueueWait(const View& view, uint32_t round) {
  SPCCL_MUST(StreamWaitValue32(view.stream, SPCCL_AT(view, counting.ready), round,
                               cuda::kStreamWaitValueGeq));
}

// What is asked of the daemon's stream, until it has ended: no work is put behind a wait.
void RunAnswer(const View& view) {
  SPCCL_MUST(MemcpyAsync(view.own, SPCCL_AT(view, data), 4, view.stream));
  SPCCL_MUST(MemcpyAsync(SPCCL_AT(view, result), view.own, 4, view.stream));
  Drain(view.stream, "the daemon's work", kLimit);
}

// One round, whose wait is on the daemon's stream. `ahead`: so is that of the next, before the rank
// can write it.
void Serve(const View& view, Shared& shared, uint32_t round, bool ahead) {
  Drain(view.stream, "the daemon's wait", kLimit);
  Expect(shared.counting.ready.load(std::memory_order_acquire) >= round,
         "the CPU sees what the stream has waited for");
  RunAnswer(view);
  if (ahead) EnqueueWait(view, round + 1);
  shared.counting.done.store(round, std::memory_order_release);
}

void ServeReplay(const View& view, Shared& shared) {
  SPCCL_MUST(
      StreamWaitValue32(view.stream, SPCCL_AT(view, resetting.ready), 1, cuda::kStreamWaitValueEq));
  Drain(view.stream, "the daemon's wait for a replay", kLimit);
  shared.resetting.ready.store(0, std::memory_order_relaxed);
  RunAnswer(view);
  shared.resetting.done.store(1, std::memory_order_release);
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
  // Each of the daemon's waits is there before the rank writes.
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
  for (uint32_t round = 1; round <= kRounds / 2; ++round) {
    EnqueueWait(view, round);
    Serve(view, shared, round, /*ahead=*/false);
  }
  EnqueueWait(view, kRounds / 2 + 1);
  Meet(socket);
  for (uint32_t round = kRounds / 2 + 1; round <= kRounds; ++round) {
    Serve(view, shared, round, /*ahead=*/round < kRounds);
  }
  Meet(socket);
  // A daemon serves replays as they come: each wait is enqueued after the replay before it is done.
  for (uint32_t round = 1; round <= kRounds; ++round) ServeReplay(view, shared);
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

int main(int argc, char** argv) {
  spccl::gpu_test::TakeNoArguments(argc, argv, "gpu-order-test");
  return spccl::gpu_test::Main();
}
