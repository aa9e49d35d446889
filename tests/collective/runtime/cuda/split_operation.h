// One all-reduce over fake GPUs of which a part may go over the host, with threads for that.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collective/runtime/cuda/make_gpu_task.h"
#include "tests/collective/runtime/cuda/channel_threads.h"
#include "tests/collective/runtime/cuda/gpu_ranks.h"
#include "tests/collective/runtime/cuda/outcome.h"

namespace spccl::testing {

struct SplitCase {
  OpDesc op;
  std::vector<int> gpus = {0, 1};  // of each rank
  policy::Settings settings = {.codec = policy::Codec::kDense};
  double share = 0.5;
  size_t slice_bytes = 1024, host_slice_bytes = 1024;
  uint64_t in_place = 0, resets = 0;
  int channels = 2;

  uint32_t ranks() const { return static_cast<uint32_t>(gpus.size()); }
  uint64_t bytes() const { return op.count * SizeOf(op.dtype); }
};

inline std::string Describe(const SplitCase& c) {
  return absl::StrCat(std::string(NameOf(c.op.dtype)), " ", std::string(NameOf(c.op.redop)),
                      " count ", c.op.count, " gpus ", absl::StrJoin(c.gpus, ","), " codec ",
                      std::string(policy::NameOf(c.settings.codec)), " share ", c.share,
                      " in place ", c.in_place, " resets ", c.resets, " slice ", c.slice_bytes,
                      " host slice ", c.host_slice_bytes);
}

// Its ranks and the threads that reduce for it.
class SplitOperation {
 public:
  SplitOperation(runtime::Gpus& gpus, const SplitCase& c, const std::vector<Bytes>& inputs,
                 std::shared_ptr<runtime::PathRates> paths)
      : ranks(gpus, c.op, inputs, c.gpus, c.in_place, c.resets),
        gpus_(gpus),
        channels_(c.channels) {
    auto made = runtime::MakeGpuTask(gpus, c.op, ranks.buffers(), c.settings,
                                     {.slice_bytes = c.slice_bytes,
                                      .paths = std::move(paths),
                                      .host_slice_bytes = c.host_slice_bytes},
                                     outcome.Fn());
    SPCCL_CHECK(made.ok());
    task = *std::move(made);
  }
  void StartChannels(int channels) { threads_.emplace(task->ForChannels(), channels); }
  void EndChannels() { threads_.reset(); }
  void Start() {
    StartChannels(channels_);
    task->Start();
  }
  // With no channel threads yet: when some slice has come down, and lies there.
  void StartUntilDown() {
    struct Down {
      std::mutex mutex;
      std::condition_variable came;
      bool is_down = false;
    };
    const auto down = std::make_shared<Down>();
    task->ForChannels()->SetWaker([down] {
      const std::lock_guard lock(down->mutex);
      down->is_down = true;
      down->came.notify_all();
    });
    task->Start();
    std::unique_lock lock(down->mutex);
    SPCCL_CHECK(down->came.wait_for(lock, std::chrono::minutes(1), [&] { return down->is_down; }));
  }
  runtime::OpResult Wait() {
    const std::optional<runtime::OpResult> result = outcome.Wait();
    if (!result.has_value()) {
      // It would be waited for for ever.
      std::fprintf(stderr, "it does not end: %s\n", Doing(task->Look()).c_str());
      std::abort();
    }
    // Whoever told an error lets the ranks go after that.
    for (size_t gpu = 0; gpu < gpus_.count(); ++gpu) PassThread(gpus_.at(gpu));
    return *result;
  }

  GpuRanks ranks;
  Outcome outcome;
  std::shared_ptr<runtime::Task> task;

 private:
  // Until the GPU's thread has done what it has been given so far.
  static void PassThread(runtime::Gpu& gpu) {
    const auto passed = std::make_shared<std::promise<void>>();
    gpu.Post([passed] { passed->set_value(); });
    SPCCL_CHECK(passed->get_future().wait_for(std::chrono::minutes(1)) ==
                std::future_status::ready);
  }

  runtime::Gpus& gpus_;
  const int channels_;
  std::optional<ChannelThreads> threads_;
};

// Of operations of any size, and also of those that may be compressed.
inline runtime::PathRates::Options ForcedOptions(double share) {
  return {.share = share, .least_bytes = 0, .dense_in_a_row = 0};
}

inline std::shared_ptr<runtime::PathRates> Forced(double share) {
  return std::make_shared<runtime::PathRates>(ForcedOptions(share));
}

inline uint64_t ExpectedHostBytes(const SplitCase& c) {
  if (std::set<int>(c.gpus.begin(), c.gpus.end()).size() < 2) return 0;
  runtime::PathRates rates(ForcedOptions(c.share));
  return rates.HostBytes({.bytes = c.bytes()}, c.host_slice_bytes, true);
}

}  // namespace spccl::testing
