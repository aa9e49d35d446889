#include "collective/policy/ways.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collective/policy/fastest_format.h"
#include "collective/policy/slice.h"
#include "kernels/redop.h"

namespace spccl::policy {
namespace {

// Of the least forecast. The model is seldom wrong by more.
constexpr double kWorthATrial = 2;

constexpr Codec kSparse[] = {Codec::kPici, Codec::kCoo, Codec::kGap};

// Whether a frame of one input is smaller than a dense one.
bool Shrinks(Codec codec, const Tuning& tuning, const OpDesc& op) {
  const double density = tuning.densities[static_cast<size_t>(op.kind)];
  const auto width = static_cast<double>(SizeOf(op.dtype));
  return WireFormat(codec, tuning.costs, width, density) != Format::kDense;
}

}  // namespace

std::string NameOf(const Way& way) {
  if (way.by_model) return "model";
  const bool first = way.codec != Codec::kDense && way.threshold > 0;
  return absl::StrCat(std::string(NameOf(way.codec)), first ? " first" : "");
}

bool LeavesAllOpen(const Settings& settings) {
  const auto open = [](const Thresholds& of) {
    return of.inter == kAutoThreshold && of.ag == kAutoThreshold;
  };
  return settings.codec == Codec::kAuto && open(settings.pici) && open(settings.coo);
}

Settings Apply(Settings settings, const Way& way) {
  if (way.by_model) return settings;
  settings.codec = way.codec;
  for (Thresholds* const of : {&settings.pici, &settings.coo}) {
    of->inter = of->ag = way.threshold;
  }
  return settings;
}

std::vector<Way> WaysToTry(Algorithm algorithm, const Tuning& tuning, const OpDesc& op,
                           const Topology& topology) {
  std::vector<Way> ways = {Way{}};
  if (CodecFor(tuning, op) == Codec::kDense) return ways;
  Tuning with = tuning;
  const auto forecast = [&](Codec codec) {
    with.codec = codec;
    return Predict(algorithm, with, op, topology).seconds;
  };
  struct Candidate {
    Way way;
    double seconds;
  };
  const double dense = forecast(Codec::kDense);
  std::vector<Candidate> candidates = {{{.by_model = false, .codec = Codec::kDense}, dense}};
  for (const Codec codec : kSparse) {
    if (!Shrinks(codec, tuning, op)) continue;
    const double sparse = forecast(codec);
    candidates.push_back({{.by_model = false, .codec = codec, .threshold = 0}, sparse});
    // What moves data unchanged has first sends only.
    if (!Reduces(op.kind)) continue;
    candidates.push_back(
        {{.by_model = false, .codec = codec, .threshold = 1}, (sparse + dense) / 2});
  }
  double least = forecast(Codec::kAuto);
  for (const Candidate& one : candidates) least = std::min(least, one.seconds);
  for (const Candidate& one : candidates) {
    if (one.seconds <= kWorthATrial * least) ways.push_back(one.way);
  }
  return ways;
}

}  // namespace spccl::policy
