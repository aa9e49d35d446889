// The GPUs of this node, as the daemon owns them: a context and one issuing thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda/driver.h"
#include "collective/transport/frame_pool.h"
#include "kernels/device/codec_table.h"

namespace spccl::runtime {

// One GPU. Thread-safe, but for what says "issuing thread": that is for work that Post runs.
class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual int index() const = 0;  // in Gpus; MemoryView::gpu()
  virtual const cuda::Uuid& uuid() const = 0;
  virtual const std::string& name() const = 0;
  virtual cuda::Context context() const = 0;
  // Runs `work` on the GPU's issuing thread, whose current context is the GPU's, in the order of
  // the calls. The only thread that enqueues on this GPU.
  virtual void Post(std::function<void()> work) = 0;

  // What follows is for those that enqueue: collective/runtime/cuda and collective/transport/nccl.

  // OK, or why the GPU is of no use any more; that does not change back.
  virtual absl::Status status() const = 0;
  // Nothing that is enqueued will end: whoever waits is told, and whoever comes is refused.
  virtual void Fail(absl::Status status) = 0;

  // One of a few non-blocking streams, always the same for a lane, and what kernels are told of it.
  // Issuing thread.
  virtual device::Queue QueueOf(uint64_t lane) = 0;
  // Calls `ended` on the issuing thread, not from within, when all that has been enqueued on the
  // stream so far has ended, or with an error when the GPU has failed. In the order of the calls,
  // for one stream. `waits`, asked on the issuing thread until `ended` is called: whether the
  // stream may still have to wait for others, for however long; empty: it waits for nobody. A
  // stream that need not wait is taken for stuck after Gpus::Options::stuck_after_ns, which begin
  // when it is first seen not to. Issuing thread.
  virtual void WhenEnded(void* stream, std::function<bool()> waits,
                         std::function<void(const absl::Status&)> ended) = 0;
  // A stream of its own for something that waits; null if there are too many such. Issuing thread.
  virtual void* TakeWaitStream() = 0;
  virtual void GiveWaitStream(void* stream) = 0;
  // A stream for copies between this GPU and pinned memory, one for each way, so that both go at
  // once; made when it is first asked for. Issuing thread.
  enum class Way : uint8_t { kDown, kUp };
  virtual absl::StatusOr<void*> CopyStream(Way way) = 0;
  // A stream for good, until EndStream: when what is on it has ended, it goes. On no more than
  // kRunningWorlds (hardware_queues.h) something runs at a time. Issuing thread.
  virtual absl::StatusOr<void*> MakeStream() = 0;
  virtual void EndStream(void* stream) = 0;
  // Ranks that a stream waits for: one more, or less. Meanwhile no memory is freed, which would
  // wait for the whole context, and with it for a rank that may itself wait for what is to be done
  // next.
  virtual void CountRankWaits(int change) = 0;
  // Whether there are none. Thread-safe; may be another in the next moment.
  virtual bool may_free() const = 0;
  // Asks `check` again and again on the issuing thread, at intervals of a millisecond, until it
  // says true: for what no stream can wait for.
  virtual void PollUntil(std::function<bool()> check) = 0;

  // A frame in this GPU's memory, with room for `bytes`, and a header that the host reads and
  // writes. When it is given up, nothing that is enqueued may still touch it. ResourceExhausted:
  // more than Options::staging_bytes would be out.
  virtual absl::StatusOr<transport::Frame> TakeFrame(size_t bytes) = 0;
  // A frame in pinned memory of the host.
  virtual absl::StatusOr<transport::Frame> TakePinned(size_t bytes) = 0;
  // The same for those who can do without: frees nothing, so that it waits for no GPU, and leaves
  // half of it to the others. `make`: if none is kept, it may be pinned.
  virtual absl::StatusOr<transport::Frame> TakeSparePinned(size_t bytes, bool make) = 0;
  // Memory for what a kernel needs beside its operands, one of each lane's stream; what an earlier
  // user left is in it. Issuing thread.
  virtual absl::StatusOr<uint64_t> ScratchOf(uint64_t lane, size_t bytes) = 0;
  // Frames that are out, of either kind: for tests of who keeps them.
  virtual size_t frames_out() const = 0;
};

class Gpus {
 public:
  struct Options {
    std::string driver_library;  // empty: the system's
    std::string codec_library;   // libspccl_device.so; empty: beside the daemon's libraries
    // The most device memory that frames take on one GPU, and the most pinned memory for each.
    size_t staging_bytes = size_t{2} << 30;
    // Work that has not ended by then has stuck, and its GPU is of no use any more.
    int64_t stuck_after_ns = 30'000'000'000;
  };
  // Refusals, at which the daemon serves host memory only. NotFound: this machine has no driver, or
  // no GPU. Else it has GPUs that cannot be used; FailedPrecondition: for want of kernels, or of
  // such as are of this release; Unimplemented: the driver is too old; Unavailable: they do not
  // work.
  static absl::StatusOr<std::unique_ptr<Gpus>> Open(const Options& options);
  // When no task and no transport is left that uses them.
  virtual ~Gpus() = default;

  virtual const std::shared_ptr<const cuda::Driver>& driver() const = 0;
  virtual const device::CodecTable& codec() const = 0;
  virtual size_t count() const = 0;
  virtual Gpu& at(size_t index) = 0;
  // nullptr: not one of them.
  virtual Gpu* Find(const cuda::Uuid& uuid) = 0;
  // Of those that cannot be used, which by the driver's numbers, and why: "GPU 1: out of memory".
  virtual const std::vector<std::string>& refused() const = 0;
  // Whether kernels of one reach the other's memory.
  virtual bool reach(size_t from, size_t to) const = 0;
};

}  // namespace spccl::runtime
