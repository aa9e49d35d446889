// What an operator or a caller may set about how operations run. Pure data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "collective/op.h"
#include "collective/policy/lossy.h"
#include "kernels/format.h"

namespace spccl::policy {

// Each names a plan (collective/plan). An operation that the algorithm has no plan for is run with
// what kAuto chooses.
enum class Algorithm : uint8_t {
  kAuto = 0,
  kLocal = 1,         // one pass over the memory of one node's ranks
  kRing = 2,          // over ranks, whatever their nodes
  kTwoLevelRing = 3,  // from here on over nodes: local, between, local
  kRecursiveDoubling = 4,
  kHalvingDoubling = 5,
  kSplit = 6,
  kDirect = 7,
  kTree = 8,
};
inline constexpr int kAlgorithmCount = 9;

constexpr std::string_view NameOf(Algorithm algorithm) {
  constexpr std::string_view kNames[kAlgorithmCount] = {
      "auto",  "local",  "ring", "two-level-ring", "recursive-doubling", "halving-doubling",
      "split", "direct", "tree"};
  return kNames[static_cast<int>(algorithm)];
}

constexpr std::optional<Algorithm> AlgorithmFromName(std::string_view name) {
  for (int code = 0; code < kAlgorithmCount; ++code) {
    if (NameOf(static_cast<Algorithm>(code)) == name) return static_cast<Algorithm>(code);
  }
  return std::nullopt;
}

// Whether the algorithm has a plan for the operation.
constexpr bool HasPlan(Algorithm algorithm, OpKind op) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return false;
    case Algorithm::kLocal:
      return true;
    case Algorithm::kRing:
    case Algorithm::kTwoLevelRing:
      return op != OpKind::kScatter;
    case Algorithm::kRecursiveDoubling:
      return op == OpKind::kAllReduce;
    case Algorithm::kHalvingDoubling:
      return !HasRoot(op);
    case Algorithm::kSplit:
      return Reduces(op);
    case Algorithm::kDirect:
      return op == OpKind::kAllGather;
    case Algorithm::kTree:
      return HasRoot(op);
  }
  return false;
}

// The format of sparse sends; kDense never compresses. kAuto: send by send, between nodes what gets
// there first (policy/fastest_format.h), within a node the smaller of pici and coo.
enum class Codec : uint8_t {
  kAuto = 0,
  kDense = 1,
  kPici = 2,
  kPiciColumn = 3,
  kCoo = 4,
  kGap = 5
};
inline constexpr int kCodecCount = 6;

constexpr std::string_view NameOf(Codec codec) {
  constexpr std::string_view kNames[kCodecCount] = {"auto",        "dense", "pici",
                                                    "pici-column", "coo",   "gap"};
  return kNames[static_cast<int>(codec)];
}

constexpr std::optional<Codec> CodecFromName(std::string_view name) {
  for (int code = 0; code < kCodecCount; ++code) {
    if (NameOf(static_cast<Codec>(code)) == name) return static_cast<Codec>(code);
  }
  return std::nullopt;
}

// A threshold is a sparsity in [0, 1]: at or below it the next send is dense. Or it is
// kAutoThreshold: the cost model says which arrives first (policy/fastest_format.h).
inline constexpr double kAutoThreshold = -1;
constexpr bool IsThreshold(double value) {
  return value == kAutoThreshold || (value >= 0 && value <= 1);
}

struct Thresholds {
  double intra;  // sends between ranks of one node
  double inter;  // sends between nodes
  double ag;     // decided anew between reduce-scatter and all-gather of an all-reduce
  bool operator==(const Thresholds&) const = default;
};

// Those of the SpCCL paper, section IV.
inline constexpr Thresholds kPiciThresholds{.intra = 0.6, .inter = 0.5, .ag = 0.1};
inline constexpr Thresholds kCooThresholds{.intra = 0.7, .inter = 0.6, .ag = 0.5};
inline constexpr Thresholds kAutoThresholds{kAutoThreshold, kAutoThreshold, kAutoThreshold};

// Everything that one operation runs with, already resolved for its communicator.
struct Settings {
  Algorithm algorithm = Algorithm::kAuto;
  Codec codec = Codec::kAuto;
  Thresholds pici = kAutoThresholds;  // also for pici-column
  Thresholds coo = kAutoThresholds;
  Lossy lossy = {};          // in the codec's place where it applies
  uint64_t slice_bytes = 0;  // of operations between nodes; 0: as policy/slice.h has it
  bool operator==(const Settings&) const = default;
};

// What one scope (global, a job, a communicator) says; what it leaves open comes from the scope
// around it, at last from Settings' defaults.
struct Overrides {
  struct Partial {
    std::optional<double> intra, inter, ag;
    bool operator==(const Partial&) const = default;
  };
  std::optional<Algorithm> algorithm;
  std::optional<Codec> codec;
  Partial pici, coo;
  std::optional<Lossy> lossy = {};
  std::optional<uint64_t> slice_bytes = {};
  bool operator==(const Overrides&) const = default;
};

// `base` with what `overrides` says in its place.
constexpr Settings Apply(Settings base, const Overrides& overrides) {
  const auto thresholds = [](Thresholds from, const Overrides::Partial& partial) {
    return Thresholds{.intra = partial.intra.value_or(from.intra),
                      .inter = partial.inter.value_or(from.inter),
                      .ag = partial.ag.value_or(from.ag)};
  };
  base.algorithm = overrides.algorithm.value_or(base.algorithm);
  base.codec = overrides.codec.value_or(base.codec);
  base.pici = thresholds(base.pici, overrides.pici);
  base.coo = thresholds(base.coo, overrides.coo);
  base.lossy = overrides.lossy.value_or(base.lossy);
  base.slice_bytes = overrides.slice_bytes.value_or(base.slice_bytes);
  return base;
}

}  // namespace spccl::policy
