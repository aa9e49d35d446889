// When a progress thread that found nothing looks again at once, and when it sleeps.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spccl::transport::ucx {

// Looking again saves the wake-up (some 10 us on an idle core) but takes a core from who could use
// it. So: a thread spins only for a while after the last find, only while spinning has been paying,
// and not at all for a time after the kernel gave its core to another. A spinning thread yields
// between two looks; that another wanted the core then shows as an involuntary switch.
//
// One thread's; not thread-safe.
class Spinner {
 public:
  // most_ns: the longest spin; 0 never spins.
  explicit Spinner(int64_t most_ns) : most_ns_(most_ns), budget_ns_(most_ns) {}

  // A look found something.
  void Found(int64_t now_ns) {
    if (spinning_) budget_ns_ = std::min(most_ns_, budget_ns_ * 2);
    spinning_ = false;
    last_find_ns_ = now_ns;
  }

  // A look found nothing. involuntary_switches: of this thread so far (ru_nivcsw). True: look again
  // now; false: sleep.
  bool LookAgain(int64_t now_ns, uint64_t involuntary_switches) {
    const bool preempted = spinning_ && involuntary_switches != switches_;
    switches_ = involuntary_switches;
    if (preempted) {
      penalty_ns_ = std::clamp(penalty_ns_ * 2, kLeastPenaltyNs, kMostPenaltyNs);
      busy_until_ns_ = now_ns + penalty_ns_;
    }
    if (now_ns < busy_until_ns_) return spinning_ = false;
    if (budget_ns_ < kLeastBudgetNs) {
      if (++sleeps_ < kSleepsBeforeRetry) return spinning_ = false;
      sleeps_ = 0;
      budget_ns_ = most_ns_;
    }
    if (now_ns - last_find_ns_ < budget_ns_) return spinning_ = true;
    if (spinning_) {
      budget_ns_ /= 2;  // it was in vain
      penalty_ns_ = 0;  // but the core was free
    }
    return spinning_ = false;
  }

 private:
  static constexpr int64_t kLeastBudgetNs = 2'000;
  static constexpr int64_t kLeastPenaltyNs = 1'000'000, kMostPenaltyNs = 64'000'000;
  static constexpr int kSleepsBeforeRetry = 16;

  const int64_t most_ns_;
  int64_t budget_ns_;
  int64_t last_find_ns_ = 0;
  int64_t busy_until_ns_ = 0;
  int64_t penalty_ns_ = 0;
  uint64_t switches_ = 0;
  int sleeps_ = 0;
  bool spinning_ = false;
};

}  // namespace spccl::transport::ucx
