// The ranks of a benchmark or an example: processes forked from this one, which share a barrier and
// a page of results, and end together.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/yield_spin.h"
#include "bench/support/team.h"

namespace spccl::bench {

// Zero-filled memory that this process and the ones it forks share. The owner unmaps it.
class SharedArena {
 public:
  SharedArena() = default;
  SharedArena(SharedArena&& other) noexcept;
  SharedArena& operator=(SharedArena&& other) noexcept;
  ~SharedArena();
  static absl::StatusOr<SharedArena> Create(size_t size_bytes);

  std::byte* data() const { return data_; }

 private:
  SharedArena(std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// A barrier between processes; lives in shared, zero-filled memory. Where cores are free
// waiters yield rather than sleep, so that all leave within microseconds of the last one's arrival.
class SharedBarrier {
 public:
  // Returns false when the barrier was broken, or after `timeout_ns`, which breaks it for all.
  bool Wait(uint32_t parties, int64_t timeout_ns);
  // Lets every waiter, now and later, go with false.
  void Break();

 private:
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> broken_{0};
  YieldSpin spin_;
};

// What a forked rank sees of its team. Borrowed from RunTeam; valid while the rank's body runs.
class RankTeam : public Team {
 public:
  RankTeam(int rank, int ranks, SharedBarrier* barrier, std::span<double> numbers,
           std::span<std::byte> notice)
      : rank_(rank), ranks_(ranks), barrier_(barrier), numbers_(numbers), notice_(notice) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  absl::Status Barrier() override;
  absl::Status MaxOverRanks(std::span<double> values) override;
  absl::Status SumOverRanks(std::span<double> values) override;

  // `value` becomes rank 0's. Collective. At most kNoticeBytes.
  absl::Status FromRankZero(void* value, size_t bytes);
  static constexpr size_t kNoticeBytes = 512;

 private:
  absl::Status Fold(std::span<double> values, double (*fold)(double, double));

  int rank_, ranks_;
  SharedBarrier* barrier_;
  std::span<double> numbers_;  // one row of kRowLength a rank
  std::span<std::byte> notice_;
};

// Keeps SIGINT, SIGTERM and SIGHUP back until RunTeam takes them, so that whatever was set up
// before is also taken down. Call it first in main.
void HoldSignals();

// Forks `ranks` processes that each run `body`, and waits for them. Call it from a process without
// threads of its own. SIGINT, SIGTERM and SIGHUP to this process end the ranks. When a rank fails,
// dies or is ended, so are the others (after a grace of 2 s, for their own messages), and the first
// failure is the result, with the rank's number. No process of the team is left when it returns.
absl::Status RunTeam(int ranks, const std::function<absl::Status(RankTeam&)>& body);

}  // namespace spccl::bench
