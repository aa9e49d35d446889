#include "bench/model/paper.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace spccl::bench::model {
namespace {

using policy::Algorithm;
using policy::Codec;

constexpr double kMiB = 1 << 20;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Work WorkOf(Collective op, uint32_t gpus, double mib, double sparsity) {
  return {.op = op, .bytes = mib * kMiB, .gpus = gpus, .density = 1 - sparsity, .width = 4};
}

double PaperSpeedUp(const System& system, const Work& work, Codec codec = Codec::kPici) {
  return SpeedUp(Algorithm::kRing, system, work, PaperSending(codec));
}

Outcome At(const System& system, const Work& work, double value, Codec codec = Codec::kPici) {
  const Projection sparse = Project(Algorithm::kRing, system, work, PaperSending(codec));
  return {value, absl::StrFormat("%d GPUs, %.0f MiB", work.gpus, work.bytes / kMiB),
          sparse.dominant()};
}

std::function<Outcome(const System&)> Largest(Collective op, double sparsity) {
  return [=](const System& system) {
    Outcome best;
    for (const uint32_t gpus : PaperGpus()) {
      for (const uint32_t mib : PaperMiB()) {
        const Work work = WorkOf(op, gpus, mib, sparsity);
        const double value = PaperSpeedUp(system, work);
        if (value > best.value) best = At(system, work, value);
      }
    }
    return best;
  };
}

std::function<Outcome(const System&)> One(const Work& work, Codec codec = Codec::kPici) {
  return [=](const System& system) {
    return At(system, work, PaperSpeedUp(system, work, codec), codec);
  };
}

// The speed-up of one work over that of another.
std::function<Outcome(const System&)> Ratio(const Work& over, const Work& under) {
  return [=](const System& system) {
    return At(system, over, PaperSpeedUp(system, over) / PaperSpeedUp(system, under));
  };
}

std::function<Outcome(const System&)> PiciOverCoo(const Work& work) {
  return [=](const System& system) {
    return At(system, work, PaperSpeedUp(system, work) / PaperSpeedUp(system, work, Codec::kCoo));
  };
}

// NCCL's ring over two levels with halving or doubling, all dense: what PCCL gains.
std::function<Outcome(const System&)> TwoLevelsOverRing(const Work& work) {
  return [=](const System& system) {
    const Projection ring = Project(Algorithm::kRing, system, work, kDenseSending);
    const Projection levels = Project(Algorithm::kHalvingDoubling, system, work, kDenseSending);
    return Outcome{ring.seconds / levels.seconds,
                   absl::StrFormat("%d GPUs, %.0f MiB", work.gpus, work.bytes / kMiB),
                   ring.dominant()};
  };
}

std::vector<Claim> MakeClaims() {
  constexpr Collective kGather = Collective::kAllGather, kScatter = Collective::kReduceScatter,
                       kAll = Collective::kAllReduce;
  const auto work = WorkOf;
  return {
      {"all-gather, 99%, largest", "SpCCL abstract, VII-A, figure 6", 5.25, 5.25, true,
       Largest(kGather, 0.99)},
      {"reduce-scatter, 99%, largest", "SpCCL abstract, VII-A, figure 8", 2.5, 2.5, true,
       Largest(kScatter, 0.99)},
      {"all-reduce, 99%, largest", "SpCCL abstract, VII-A, figure 7", 2.66, 2.66, true,
       Largest(kAll, 0.99)},
      {"all-reduce, 99%, 16 GPUs, pici over coo", "SpCCL IV-D, figure 3", 1.19, 1.19, true,
       PiciOverCoo(work(kAll, 16, 512, 0.99))},
      {"all-reduce, 95%, 16 GPUs, pici over coo", "SpCCL IV-D, figure 3", 1.33, 1.33, true,
       PiciOverCoo(work(kAll, 16, 512, 0.95))},
      {"all-reduce, 95%, 16 GPUs, coo: slower than dense", "SpCCL IV-D, figure 3", 0, 1, true,
       One(work(kAll, 16, 512, 0.95), Codec::kCoo)},
      {"all-gather, 10%, 64 GPUs, 2048 MiB: faster than dense", "SpCCL VII-A, figure 5", 1,
       kNoLimit, true, One(work(kGather, 64, 2048, 0.1))},
      {"all-gather, 1%: slower than dense", "SpCCL figure 5", 0, 1, true,
       One(work(kGather, 64, 2048, 0.01))},
      {"all-gather, 99%: 64 GPUs over 8, same input a GPU", "SpCCL VII-A, figure 6", 1, kNoLimit,
       true, Ratio(work(kGather, 64, 2048, 0.99), work(kGather, 8, 256, 0.99))},
      {"all-reduce, 99%, 2048 MiB: 64 GPUs over 8", "SpCCL VII-A, figure 7", 0, 1, true,
       Ratio(work(kAll, 64, 2048, 0.99), work(kAll, 8, 2048, 0.99))},
      {"reduce-scatter, 99%, 2048 MiB: 64 GPUs over 8", "SpCCL VII-A, figure 8", 0, 1, true,
       Ratio(work(kScatter, 64, 2048, 0.99), work(kScatter, 8, 2048, 0.99))},
      {"all-reduce, 99%, 64 GPUs, 512 MiB: worthwhile", "SpCCL VII-A", 1, kNoLimit, true,
       One(work(kAll, 64, 512, 0.99))},
      {"all-reduce of training, 99%, 32 GPUs: over 2", "SpCCL VII-B, figure 11", 2, kNoLimit, true,
       One(work(kAll, 32, 2048, 0.99))},
      {"all-gather, dense, 2048 GPUs: PCCL over NCCL", "PCCL VI-A, figure 9", 2, 3, false,
       TwoLevelsOverRing(work(kGather, 2048, 256, 0))},
      {"all-gather, dense, 2048 GPUs: PCCL over NCCL", "PCCL VI-A, figure 9", 3, 5, false,
       TwoLevelsOverRing(work(kGather, 2048, 32, 0))},
  };
}

System WithKernels(System system, double factor) {
  for (double& share : system.kernels.shares) share *= factor;
  for (auto& [key, points] : system.kernels.measured) {
    for (KernelRates::Point& point : points) point.seconds /= factor;
  }
  return system;
}
System WithRounds(System system, double factor) {
  system.intra_alpha *= factor;
  system.inter_alpha *= factor;
  return system;
}

// By how much a part of the system must be scaled for the model to say `target`; 0 if that does not
// do it.
double FactorFor(const Claim& claim, const System& system, double target,
                 System (*scaled)(System, double)) {
  double low = 1e-3, high = 1e3;
  const auto value = [&](double factor) { return claim.model(scaled(system, factor)).value; };
  const bool rises = value(high) > value(low);
  const double least = std::min(value(low), value(high)), most = std::max(value(low), value(high));
  if (!(least < target && most > target)) return 0;
  for (int i = 0; i < 60; ++i) {
    const double middle = std::sqrt(low * high);
    ((value(middle) < target) == rises ? low : high) = middle;
  }
  return low;
}

std::string Why(const Claim& claim, const System& system, const Outcome& outcome) {
  const double target = outcome.value > claim.high ? claim.high : claim.low;
  const bool rounds = outcome.dominant == "rounds";
  std::string why = absl::StrCat(outcome.dominant, " take longest");
  if (rounds) {
    absl::StrAppendFormat(&why, "; with rounds that take no time %.2f",
                          claim.model(WithRounds(system, 0)).value);
  } else {
    System apart = system, together = system;
    apart.overlap = 0;
    together.overlap = 1;
    absl::StrAppendFormat(&why,
                          "; %.2f with kernels that take no time; %.2f with nothing overlapped, "
                          "%.2f with all",
                          claim.model(WithKernels(system, 1e9)).value, claim.model(apart).value,
                          claim.model(together).value);
  }
  const char* const part = rounds ? "rounds that take" : "kernels that reach";
  const double factor = FactorFor(claim, system, target, rounds ? WithRounds : WithKernels);
  if (factor == 0) return absl::StrCat(why, "; none of these alone explains the paper's");
  absl::StrAppendFormat(&why, "; the paper's takes %s %.2f of these", part, factor);
  return why;
}

}  // namespace

const std::vector<uint32_t>& PaperGpus() {
  static const auto* const gpus = new std::vector<uint32_t>{8, 16, 32, 64};
  return *gpus;
}
const std::vector<uint32_t>& PaperMiB() {
  static const auto* const sizes = new std::vector<uint32_t>{256, 512, 1024, 2048};
  return *sizes;
}

Sending PaperSending(Codec codec) {
  return {codec, codec == Codec::kCoo ? policy::kCooThresholds : policy::kPiciThresholds};
}

double SpeedUp(Algorithm algorithm, const System& system, const Work& work,
               const Sending& sending) {
  return Project(algorithm, system, work, kDenseSending).seconds /
         Project(algorithm, system, work, sending).seconds;
}

const std::vector<Claim>& Claims() {
  static const auto* const claims = new std::vector<Claim>(MakeClaims());
  return *claims;
}

Verdict Judge(const Claim& claim, const System& system, double margin) {
  Verdict verdict{.outcome = claim.model(system)};
  const double value = verdict.outcome.value;
  const bool within = value >= claim.low && value <= claim.high;
  const bool beside = value >= claim.low / (1 + margin) && value <= claim.high * (1 + margin);
  using Agrees = Verdict::Agrees;
  if (within || (beside && claim.low == claim.high)) {
    verdict.agrees = Agrees::kYes;
    return verdict;
  }
  verdict.agrees = beside ? Agrees::kNear : Agrees::kNo;
  verdict.why = Why(claim, system, verdict.outcome);
  return verdict;
}

}  // namespace spccl::bench::model
