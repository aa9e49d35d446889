#include "bench/model/projection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/status.h"
#include "collective/policy/wire_format.h"

namespace spccl::bench::model {
namespace {

using policy::Algorithm;
using policy::Codec;

// A way that sends go, as one GPU sees it.
struct Way {
  bool inter = false;
  double rate = 0;
};

// One send of a reduction, and what its receiver does with it. Bytes are dense.
struct Hop {
  double bytes = 0;
  double inputs = 1;         // GPUs whose inputs are in it
  double inputs_before = 0;  // in the send before; 0: this is the first
  double next_bytes = 0;     // of what the receiver sends next; 0: nothing
  double next_inputs = 0;    // in that
};

// A part of an all-gather: frames as they were made by those who hold final values.
struct Stage {
  double rate = 0;
  double bytes = 0;  // into a GPU, dense
  uint32_t intra_rounds = 0, inter_rounds = 0;
};

class Projector {
 public:
  Projector(const System& system, const Work& work, const Sending& sending)
      : system_(system),
        work_(work),
        sending_(sending),
        per_node_(std::min(work.gpus, system.gpus_per_node)),
        nodes_(work.gpus / per_node_),
        chunk_(work.bytes / work.gpus) {}

  Projection Run(Algorithm algorithm) {
    const bool scatters = Reduces(work_.op);
    const bool gathers = work_.op != Collective::kReduceScatter;
    if (algorithm == Algorithm::kRing) {
      if (scatters) RingScatter(work_.gpus, 1, FlatWays(), FlatInterRounds());
      if (gathers) Gather({FlatStage()}, chunk_);
      return result_;
    }
    if (scatters) LocalScatter();
    if (nodes_ > 1 && algorithm == Algorithm::kRecursiveDoubling) {
      RecursiveDoubling();
      Gather({LocalStage()}, work_.bytes / per_node_);
      return result_;
    }
    const bool ring = algorithm == Algorithm::kTwoLevelRing;
    if (nodes_ > 1 && scatters) {
      ring ? RingScatter(nodes_, per_node_, {Rail()}, nodes_ - 1) : Halving();
    }
    if (!gathers) return result_;
    const uint32_t rounds = ring ? nodes_ - 1 : static_cast<uint32_t>(std::bit_width(nodes_ - 1));
    const Stage rails{Rail().rate, chunk_ * (nodes_ - 1), 0, rounds};
    Gather(nodes_ > 1 ? std::vector<Stage>{rails, LocalStage()} : std::vector<Stage>{LocalStage()},
           chunk_);
    return result_;
  }

 private:
  struct Time {
    double link = 0, kernel = 0, seconds = 0;
  };

  Way Rail() const { return {true, system_.node_rate / per_node_}; }
  Way Local() const { return {false, system_.intra_rate}; }
  // Of a ring over all GPUs: all its edges work at once, and all adapters serve those between
  // nodes.
  std::vector<Way> FlatWays() const {
    std::vector<Way> ways;
    if (per_node_ > 1) ways.push_back(Local());
    if (nodes_ > 1) ways.push_back({true, system_.node_rate});
    return ways;
  }
  uint32_t FlatInterRounds() const {
    return nodes_ > 1 ? (work_.gpus - 1 + per_node_ - 1) / per_node_ : 0;
  }
  Stage FlatStage() const {
    double rate = 0;
    for (const Way& way : FlatWays()) rate = rate == 0 ? way.rate : std::min(rate, way.rate);
    const uint32_t inter = FlatInterRounds();
    return {rate, chunk_ * (work_.gpus - 1), work_.gpus - 1 - inter, inter};
  }
  Stage LocalStage() const {
    return {system_.intra_rate, work_.bytes / per_node_ * (per_node_ - 1), per_node_ > 1 ? 1U : 0U,
            0};
  }

  // Equation 7 from the start: the density of the sum of so many inputs.
  double DensityOf(double inputs) const { return 1 - std::pow(1 - work_.density, inputs); }
  double Share(Format format, double density) const {
    return WireShare(format, work_.width, density);
  }
  double Kernels(Kernel kernel, Format format, double bytes, double density,
                 double density_out = 0) const {
    if (format == Format::kDense) return 0;
    return bytes *
           system_.kernels.SecondsPerByte(kernel, format, work_.width, density, density_out);
  }
  Time Together(double link, double kernel, bool sparse) const {
    const double hidden = sparse ? system_.overlap : 1;
    return {link, kernel, std::max(link, kernel) + (1 - hidden) * std::min(link, kernel)};
  }

  // Formats that a sparse send may have under the codec.
  std::vector<Format> Candidates() const {
    if (sending_.codec == Codec::kAuto) return {Format::kPici, Format::kCoo, Format::kGap};
    return {policy::SparseFormat(sending_.codec, 1)};
  }

  // --- Reductions ---

  Time TimeOf(const Hop& hop, const Way& way, Format format, Format next) const {
    const double density = DensityOf(hop.inputs);
    const bool sparse = format != Format::kDense;
    double kernel = 0;
    if (hop.inputs_before == 0) kernel += Kernels(Kernel::kEncode, format, hop.bytes, density);
    double fused = 0;
    if (sparse && next != Format::kDense && system_.fused) {
      fused = std::min(hop.bytes, hop.next_bytes);
      kernel += Kernels(Kernel::kFused, format, fused, density, DensityOf(hop.next_inputs));
    }
    kernel += sparse ? Kernels(Kernel::kCombine, format, hop.bytes - fused, density)
                     : hop.bytes * system_.kernels.DenseSecondsPerByte(2);
    kernel += Kernels(Kernel::kEncode, next, hop.next_bytes - fused, DensityOf(hop.next_inputs));
    return Together(hop.bytes * Share(format, density) / way.rate, kernel,
                    sparse || next != Format::kDense);
  }

  // As if it were the only send, so that a choice hangs on nothing that comes later.
  Time AloneTime(const Hop& hop, const Way& way, Format format) const {
    Hop alone = hop;
    alone.inputs_before = alone.next_bytes = 0;
    return TimeOf(alone, way, format, Format::kDense);
  }

  Format Choose(const Hop& hop, const Way& way) const {
    if (sending_.codec == Codec::kDense || hop.bytes == 0) return Format::kDense;
    const double threshold = way.inter ? sending_.thresholds.inter : sending_.thresholds.intra;
    if (threshold != policy::kAutoThreshold) {
      // The first send measures; after it the sparsity of the send before is known, or
      // extrapolated to the same.
      const bool above = hop.inputs_before == 0 || 1 - DensityOf(hop.inputs_before) > threshold;
      return above ? policy::SparseFormat(sending_.codec, DensityOf(hop.inputs)) : Format::kDense;
    }
    Format best = Format::kDense;
    double least = AloneTime(hop, way, best).seconds;
    for (const Format format : Candidates()) {
      const double seconds = AloneTime(hop, way, format).seconds;
      if (seconds < least) {
        least = seconds;
        best = format;
      }
    }
    return best;
  }

  // All ways carry such a hop at the same time, for different GPUs; the slowest sets the pace. For
  // the chunk that is told of, it is a round between nodes, or within one.
  void Reduce(const Hop& hop, const std::vector<Way>& ways, bool inter) {
    Time slowest;
    Format format = Format::kDense;
    const Hop next{hop.next_bytes, hop.next_inputs, hop.inputs};
    for (const Way& way : ways) {
      const Format now = Choose(hop, way);
      const Time time = TimeOf(hop, way, now, Choose(next, way));
      if (time.seconds < slowest.seconds) continue;
      slowest = time;
      format = now;
    }
    const bool sparse = format != Format::kDense;
    Add(slowest, hop.bytes, hop.bytes * Share(format, DensityOf(hop.inputs)), sparse);
    Rounds(inter ? 0 : 1, inter ? 1 : 0, sparse);
  }

  // The last `inter_rounds` of the rounds are between nodes: which ones makes no difference.
  void RingScatter(uint32_t participants, double inputs, const std::vector<Way>& ways,
                   uint32_t inter_rounds) {
    for (uint32_t i = 1; i < participants; ++i) {
      const bool last = i + 1 == participants;
      Reduce({chunk_, inputs * i, inputs * (i - 1), last ? 0 : chunk_, inputs * (i + 1)}, ways,
             i >= participants - inter_rounds);
    }
  }

  // Each GPU takes its shard from all others of its node, in one pass.
  void LocalScatter() {
    if (per_node_ == 1) return;
    const double shard = work_.bytes / per_node_;
    const Format format = ChooseLocal(shard);
    const Time time = LocalTime(shard, format);
    Add(time, shard * (per_node_ - 1), shard * (per_node_ - 1) * Share(format, work_.density),
        format != Format::kDense);
    Rounds(1, 0, format != Format::kDense);
  }
  Time LocalTime(double shard, Format format) const {
    const double others = shard * (per_node_ - 1);
    const double link = others * Share(format, work_.density) / system_.intra_rate;
    if (format == Format::kDense) {
      return Together(link, shard * system_.kernels.DenseSecondsPerByte(per_node_), false);
    }
    return Together(link,
                    Kernels(Kernel::kEncode, format, others, work_.density) +
                        Kernels(Kernel::kCombine, format, others, work_.density),
                    true);
  }
  Format ChooseLocal(double shard) const {
    if (sending_.codec == Codec::kDense) return Format::kDense;
    if (sending_.thresholds.intra != policy::kAutoThreshold) {
      const bool above = 1 - work_.density > sending_.thresholds.intra;
      return above ? policy::SparseFormat(sending_.codec, work_.density) : Format::kDense;
    }
    Format best = Format::kDense;
    for (const Format format : Candidates()) {
      if (LocalTime(shard, format).seconds < LocalTime(shard, best).seconds) best = format;
    }
    return best;
  }

  // Between nodes, each GPU with those of its number: a half, a quarter, ... of its shard.
  void Halving() {
    double bytes = work_.bytes / per_node_ / 2;
    for (uint32_t behind = 1; behind < nodes_; behind *= 2, bytes /= 2) {
      Reduce(Doubled(behind, bytes, bytes / 2), {Rail()}, true);
    }
  }
  // The whole shard each time.
  void RecursiveDoubling() {
    const double bytes = work_.bytes / per_node_;
    for (uint32_t behind = 1; behind < nodes_; behind *= 2) {
      Reduce(Doubled(behind, bytes, bytes), {Rail()}, true);
    }
  }
  // A send with the inputs of `behind` nodes, between one with half and one with twice as many.
  Hop Doubled(uint32_t behind, double bytes, double next_bytes) const {
    const uint32_t inputs = per_node_ * behind, before = behind == 1 ? 0 : inputs / 2;
    const bool last = behind * 2 == nodes_;
    return {bytes, 1.0 * inputs, 1.0 * before, last ? 0 : next_bytes, 2.0 * inputs};
  }

  // --- Final values ---

  // `own` bytes, dense, are what a GPU encodes; the frames are passed on as they are.
  void Gather(const std::vector<Stage>& stages, double own) {
    const double density = Reduces(work_.op) ? DensityOf(work_.gpus) : work_.density;
    Format format = Format::kDense;
    if (sending_.codec != Codec::kDense) format = ChooseGather(stages, own, density);
    for (size_t i = 0; i < stages.size(); ++i) {
      Add(GatherTime(stages[i], i == 0 ? own : 0, density, format), stages[i].bytes,
          stages[i].bytes * Share(format, density), format != Format::kDense);
      Rounds(stages[i].intra_rounds, stages[i].inter_rounds, format != Format::kDense);
    }
  }
  Time GatherTime(const Stage& stage, double own, double density, Format format) const {
    const double link = stage.bytes * Share(format, density) / stage.rate;
    if (format == Format::kDense) {
      return Together(link, stage.bytes * system_.kernels.DenseSecondsPerByte(1), false);
    }
    return Together(link,
                    Kernels(Kernel::kEncode, format, own, density) +
                        Kernels(Kernel::kDecode, format, stage.bytes, density),
                    true);
  }
  Format ChooseGather(const std::vector<Stage>& stages, double own, double density) const {
    const policy::Thresholds& thresholds = sending_.thresholds;
    if (thresholds.ag != policy::kAutoThreshold) {
      // The paper's all-gather has no threshold; an all-reduce's has.
      const bool above = work_.op == Collective::kAllGather || 1 - density > thresholds.ag;
      return above ? policy::SparseFormat(sending_.codec, density) : Format::kDense;
    }
    const auto seconds = [&](Format format) {
      double sum = 0;
      for (size_t i = 0; i < stages.size(); ++i) {
        sum += GatherTime(stages[i], i == 0 ? own : 0, density, format).seconds;
      }
      return sum;
    };
    Format best = Format::kDense;
    for (const Format format : Candidates()) {
      if (seconds(format) < seconds(best)) best = format;
    }
    return best;
  }

  // --- The sum ---

  void Add(const Time& time, double dense_bytes, double wire_bytes, bool sparse) {
    if (dense_bytes == 0) return;
    result_.seconds += time.seconds;
    result_.link_seconds += time.link;
    result_.kernel_seconds += time.kernel;
    result_.dense_bytes += dense_bytes;
    result_.wire_bytes += wire_bytes;
    ++result_.sends;
    if (sparse) ++result_.sparse_sends;
  }
  void Rounds(uint32_t intra, uint32_t inter, bool sparse) {
    double seconds = intra * system_.intra_alpha + inter * system_.inter_alpha;
    if (sparse) seconds += (intra + inter) * system_.sparse_alpha;
    result_.round_seconds += seconds;
    result_.seconds += seconds;
    result_.rounds += intra + inter;
  }

  const System& system_;
  const Work& work_;
  const Sending& sending_;
  const uint32_t per_node_, nodes_;
  const double chunk_;
  Projection result_;
};

constexpr Algorithm kAlgorithms[] = {Algorithm::kRing, Algorithm::kTwoLevelRing,
                                     Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling};

}  // namespace

const char* Projection::dominant() const {
  if (round_seconds > std::max(link_seconds, kernel_seconds)) return "rounds";
  return link_seconds >= kernel_seconds ? "links" : "kernels";
}

bool CanProject(Algorithm algorithm, const Work& work, const System& system) {
  if (work.gpus < 2) return false;
  const uint32_t per_node = std::min(work.gpus, system.gpus_per_node);
  if (work.gpus % per_node != 0) return false;
  const uint32_t nodes = work.gpus / per_node;
  switch (algorithm) {
    case Algorithm::kRing:
      return true;
    case Algorithm::kTwoLevelRing:
      return per_node > 1;
    case Algorithm::kHalvingDoubling:
      return nodes > 1 && std::has_single_bit(nodes);
    case Algorithm::kRecursiveDoubling:
      return work.op == Collective::kAllReduce && nodes > 1 && std::has_single_bit(nodes);
    default:
      return false;
  }
}

Projection Project(Algorithm algorithm, const System& system, const Work& work,
                   const Sending& sending) {
  SPCCL_CHECK(CanProject(algorithm, work, system));
  return Projector(system, work, sending).Run(algorithm);
}

Best ProjectBest(const System& system, const Work& work, const Sending& sending) {
  Best best;
  bool found = false;
  for (const Algorithm algorithm : kAlgorithms) {
    if (!CanProject(algorithm, work, system)) continue;
    const Projection one = Project(algorithm, system, work, sending);
    if (found && one.seconds >= best.projection.seconds) continue;
    best = {algorithm, one};
    found = true;
  }
  SPCCL_CHECK(found);
  return best;
}

}  // namespace spccl::bench::model
