#include "collective/policy/choose_plan.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/status.h"
#include "collective/policy/fastest_format.h"
#include "collective/policy/slice.h"
#include "collective/policy/wire_format.h"
#include "kernels/redop.h"

namespace spccl::policy {
namespace {

constexpr double kFrameHeaderBytes = 48;

// What queues and losses cost where several send to one at once, of the link's time. Decides
// between plans that move the same.
constexpr double kManyToOne = 1.03;

// What the busiest participant of a plan does, added up step by step. Elements are of the whole
// operation, all slices together.
class Load {
 public:
  Load(const Tuning& tuning, const OpDesc& op, uint32_t ranks)
      : tuning_(tuning),
        op_(op),
        ranks_(ranks),
        costs_(tuning.costs),
        codec_(CodecFor(tuning, op)),
        input_density_(tuning.densities[static_cast<size_t>(op.kind)]),
        width_(static_cast<double>(SizeOf(op.dtype))),
        partial_width_(Reduces(op.kind)
                           ? static_cast<double>(SizeOf(AccumulatorOf(op.dtype, op.redop)))
                           : width_) {}

  // Slices of a chunk, before what goes on in it is told.
  void SetChunk(double elements) {
    const auto whole = static_cast<uint64_t>(elements);
    const double slice =
        static_cast<double>(SliceBytes(tuning_, op_, ranks_, whole)) / partial_width_;
    lanes_ = static_cast<double>(static_cast<uint64_t>(elements / slice));
    if (lanes_ * slice < elements || lanes_ == 0) lanes_ += 1;
  }

  void Rounds(uint32_t rounds) { rounds_ += rounds; }

  // `chunks` pieces of `elements` each, with the contributions of `ranks` ranks in each (1: of one,
  // or final values of an operation that reduces nothing).
  struct Piece {
    double elements;
    uint32_t ranks;
    bool final = false;  // in the operation's type
    double chunks = 1;
  };

  void Encode(const Piece& piece) {
    const Wire wire = On(piece);
    const double bytes = piece.elements * piece.chunks * wire.width;
    core_ += wire.sparse
                 ? bytes * SecondsAByte(wire.density, wire.rates->encode_0, wire.rates->encode_1)
                 : bytes / costs_.memory_rate;
    if (!piece.final) moved_ += bytes;  // what is final is in the caches
  }
  void Out(const Piece& piece) {
    out_ += WireBytes(piece);
    dense_ += piece.elements * piece.chunks * width_;
    frames_ += piece.chunks * lanes_;
  }
  void In(const Piece& piece) {
    in_ += WireBytes(piece);
    frames_ += piece.chunks * lanes_;
  }
  void Combine(const Piece& piece) {
    In(piece);
    const Wire wire = On(piece);
    const double bytes = piece.elements * piece.chunks * wire.width;
    core_ += wire.sparse
                 ? bytes * SecondsAByte(wire.density, wire.rates->combine_0, wire.rates->combine_1)
                 : bytes / costs_.reduce_rate;
    moved_ += bytes;
  }
  void Store(const Piece& piece) {
    In(piece);
    const Wire wire = On(piece);
    const double bytes = piece.elements * piece.chunks * wire.width;
    core_ += wire.sparse
                 ? bytes * SecondsAByte(wire.density, wire.rates->decode_0, wire.rates->decode_1)
                 : bytes / costs_.memory_rate;
    moved_ += bytes;
  }
  void Copy(double elements) {
    core_ += elements * width_ / costs_.memory_rate;
    moved_ += 2 * elements * width_;
  }
  // Out of the caches.
  void Write(double elements) {
    core_ += elements * width_ / costs_.memory_rate;
    moved_ += elements * width_;
  }

  // Everything that the cores have done so far, as often as given: once for each rank of a node.
  void RepeatCores(double times) {
    core_ *= times;
    moved_ *= times;
    frames_ *= times;
  }
  // Several others send to this participant at once.
  void Crowd() { crowded_ = true; }
  // Beside the link, between ranks of a node: rounds that cost no alpha.
  void LocalRounds(double rounds) { local_rounds_ += rounds; }

  Prediction Result(Algorithm algorithm) const {
    Prediction result{.algorithm = algorithm};
    result.wire_bytes = std::max(in_, out_);
    result.dense_bytes = dense_;
    result.rounds = rounds_;
    result.link_seconds = result.wire_bytes * (crowded_ ? kManyToOne : 1) / costs_.link_rate;
    // What waits for the memory keeps a core from the frames' queues and system calls.
    const double cores = std::min(costs_.cores, lanes_);
    result.core_seconds =
        std::max(core_ / cores, moved_ / costs_.stream_rate) + frames_ * costs_.frame / cores;
    // A round waits for a frame's way, and for the work on it at both ends.
    result.round_seconds =
        rounds_ * (costs_.alpha + 2 * costs_.frame) + local_rounds_ * costs_.frame;
    const double less = std::min(result.link_seconds, result.core_seconds);
    // At least kNotOverlapped: the plan with less work wins where the link decides alone.
    const double alone = std::max(1 / lanes_, kNotOverlapped);
    result.seconds =
        std::max(result.link_seconds, result.core_seconds) + less * alone + result.round_seconds;
    return result;
  }

 private:
  struct Wire {
    double width;
    double density;
    bool sparse;
    double bytes;  // of an element
    const CodecRates* rates;
  };

  Wire On(const Piece& piece) const {
    const double width = piece.final || piece.ranks <= 1 ? width_ : partial_width_;
    const double density = DensityOfSum(input_density_, std::max(1U, piece.ranks));
    const Format format = WireFormat(codec_, costs_, width, density);
    return {width, density, format != Format::kDense, BytesPerElement(format, width, density),
            &costs_.Of(format)};
  }
  double WireBytes(const Piece& piece) const {
    return piece.chunks * (piece.elements * On(piece).bytes + lanes_ * kFrameHeaderBytes);
  }

  const Tuning& tuning_;
  const OpDesc& op_;
  const uint32_t ranks_;
  const Costs& costs_;
  const Codec codec_;
  const double input_density_, width_, partial_width_;
  double lanes_ = 1;
  double core_ = 0, moved_ = 0, frames_ = 0, out_ = 0, in_ = 0, dense_ = 0, local_rounds_ = 0;
  uint32_t rounds_ = 0;
  bool crowded_ = false;
};

// The plans of collective/plan, as the busiest participant sees them.
class Predictor {
 public:
  Predictor(const Tuning& tuning, const OpDesc& op, const Topology& topology)
      : op_(op),
        ranks_(topology.ranks),
        nodes_(topology.nodes),
        most_ranks_(topology.most_ranks),
        load_(tuning, op, topology.ranks) {
    const bool shares = op.kind != OpKind::kAllReduce && op.kind != OpKind::kBroadcast;
    total_ = static_cast<double>(op.count) * (shares ? ranks_ : 1);
    cores_ = std::bit_floor(nodes_);
    rounds_ = static_cast<uint32_t>(std::countr_zero(cores_));
    pieces_ = shares ? most_ranks_ : 1;  // chunks of an owner
  }

  Prediction Predict(Algorithm algorithm) {
    switch (algorithm) {
      case Algorithm::kRing:
        FlatRing();
        break;
      case Algorithm::kRecursiveDoubling:
        RecursiveDoubling();
        break;
      case Algorithm::kHalvingDoubling:
        HalvingDoubling();
        break;
      case Algorithm::kSplit:
      case Algorithm::kDirect:
        Direct();
        break;
      case Algorithm::kTree:
        Tree();
        break;
      default:
        Ring(nodes_, 1);
    }
    if (algorithm != Algorithm::kRing) LocalHalves();
    return load_.Result(algorithm);
  }

 private:
  using Piece = Load::Piece;

  bool scatters() const { return Reduces(op_.kind); }
  bool gathers() const { return op_.kind != OpKind::kReduceScatter; }
  // Ranks behind `participants` of `of`.
  uint32_t Behind(uint32_t participants, uint32_t of) const {
    return std::max<uint32_t>(1, static_cast<uint32_t>(uint64_t{ranks_} * participants / of));
  }
  // Final values, as they travel.
  Piece Final(double elements, double chunks) const {
    return {elements, scatters() ? ranks_ : 1, true, chunks};
  }

  void Ring(uint32_t participants, uint32_t crossings_of) {
    if (op_.kind == OpKind::kBroadcast) {
      load_.SetChunk(total_);
      load_.Encode(Final(total_, 1));
      load_.Out(Final(total_, 1));
      load_.Store(Final(total_, 1));
      Go(participants - 1, crossings_of);
      return;
    }
    const double chunk = total_ / participants / pieces_;
    load_.SetChunk(chunk);
    if (scatters()) {
      for (uint32_t i = 1; i < participants; ++i) {
        const Piece piece{chunk, Behind(i, participants), false, 1.0 * pieces_};
        load_.Encode(piece);
        load_.Out(piece);
        load_.Combine(piece);
      }
      Go(participants - 1, crossings_of);
    }
    if (gathers()) {
      const double others = 1.0 * pieces_ * (participants - 1);
      load_.Encode(Final(chunk, pieces_));
      load_.Out(Final(chunk, others));
      load_.Store(Final(chunk, others));
      Go(participants - 1, crossings_of);
    }
  }

  // Rounds around a ring of which one in `crossings_of` goes from node to node; for an owner's
  // batches of chunks one after the other.
  void Go(uint32_t rounds, uint32_t crossings_of) {
    const uint32_t batches = (pieces_ + 3) / 4;
    const uint32_t crossings = (rounds + crossings_of - 1) / crossings_of;
    load_.Rounds(crossings * batches);
    load_.LocalRounds(1.0 * (rounds - crossings) * batches);
  }

  void FlatRing() {
    pieces_ = 1;
    Ring(ranks_, std::max(1U, ranks_ / nodes_));
    load_.RepeatCores(most_ranks_);
  }

  void RecursiveDoubling() {
    load_.SetChunk(total_);
    load_.Write(total_);  // the sum is made in the output
    if (nodes_ > cores_) load_.Combine({total_, Behind(1, nodes_)});
    for (uint32_t round = 0; round < rounds_; ++round) {
      const Piece piece{total_, Behind(1U << round, cores_)};
      load_.Encode(piece);
      load_.Out(piece);
      load_.Combine(piece);
    }
    if (nodes_ > cores_) {
      load_.Encode(Final(total_, 1));
      load_.Out(Final(total_, 1));
    }
    load_.Rounds(rounds_ + (nodes_ > cores_ ? 2 : 0));
  }

  void HalvingDoubling() {
    const bool extra = nodes_ > cores_;
    const bool parts = op_.kind == OpKind::kAllReduce;  // of the whole, and all of them cores'
    const double extras = extra && !parts ? most_ranks_ : 0;  // chunks of a core's extra
    const double chunks = parts ? cores_ : ranks_;
    const double chunk = total_ / chunks;
    load_.SetChunk(chunk);
    if (scatters()) {
      if (extra) load_.Combine({chunk, Behind(1, nodes_), false, chunks - extras});
      for (uint32_t round = 0; round < rounds_; ++round) {
        const Piece piece{chunk, Behind(1U << round, cores_), false, chunks / (2U << round)};
        load_.Encode(piece);
        load_.Out(piece);
        load_.Combine(piece);
      }
      if (extra && !gathers()) {
        const Piece piece{chunk, ranks_, false, extras};
        load_.Encode(piece);
        load_.Out(piece);
      }
      load_.Rounds(rounds_ + (extra ? 1 : 0) + (extra && !gathers() ? 1 : 0));
    }
    if (gathers()) {
      load_.Encode(Final(chunk, chunks / cores_));
      load_.Out(Final(chunk, chunks - chunks / cores_ + (extra ? chunks - extras : 0)));
      load_.Store(Final(chunk, chunks - chunks / cores_ + extras));
      load_.Rounds(rounds_ + (extra ? 1 : 0) + (extra && !scatters() ? 1 : 0));
    }
  }

  void Direct() {
    const double chunk = total_ / nodes_ / pieces_;
    const double others = 1.0 * pieces_ * (nodes_ - 1);
    const uint32_t batches = (pieces_ + 3) / 4;
    if (nodes_ > 2) load_.Crowd();
    load_.SetChunk(chunk);
    if (scatters()) {
      const Piece piece{chunk, Behind(1, nodes_), false, others};
      load_.Encode(piece);
      load_.Out(piece);
      load_.Combine(piece);
      load_.Rounds(batches);
    }
    if (gathers()) {
      load_.Encode(Final(chunk, pieces_));
      load_.Out(Final(chunk, others));
      load_.Store(Final(chunk, others));
      load_.Rounds(batches);
    }
  }

  // The root sends most; nobody does more.
  void Tree() {
    const uint32_t rounds = static_cast<uint32_t>(std::bit_width(nodes_ - 1));
    load_.Rounds(rounds);
    if (op_.kind == OpKind::kBroadcast) {
      load_.SetChunk(total_);
      load_.Encode(Final(total_, 1));
      load_.Out(Final(total_, rounds));
      return;
    }
    const double chunk = total_ / ranks_;
    load_.SetChunk(chunk);
    const double others = ranks_ - 1.0 * ranks_ / nodes_;
    load_.Encode(Final(chunk, others));
    load_.Out(Final(chunk, others));
  }

  // What a node of several ranks does beside: reading their inputs, writing their outputs.
  void LocalHalves() {
    const double more = most_ranks_ - 1;
    if (Reduces(op_.kind)) load_.Copy(total_ * more);
    const bool whole = op_.kind != OpKind::kReduceScatter && op_.kind != OpKind::kScatter;
    if (whole) load_.Copy(total_ * more);
  }

  const OpDesc& op_;
  const uint32_t ranks_, nodes_, most_ranks_;
  Load load_;
  double total_ = 0;  // elements
  uint32_t cores_ = 1, rounds_ = 0, pieces_ = 1;
};

// What the table has; it was measured with sparse sends allowed.
Pick Learned(const Tuning& tuning, const OpDesc& op, const Topology& topology) {
  if (tuning.table == nullptr) return {};
  const bool dense = CodecFor(tuning, op) == Codec::kDense;
  const double density = dense ? 1 : tuning.densities[static_cast<size_t>(op.kind)];
  return tuning.table->Find(op.kind, TotalBytes(op, topology.ranks), density);
}

}  // namespace

Topology Topology::Of(std::span<const uint32_t> node_of_rank) {
  std::map<uint32_t, uint32_t> ranks_of_node;
  for (const uint32_t node : node_of_rank) ++ranks_of_node[node];
  Topology topology{.nodes = static_cast<uint32_t>(ranks_of_node.size()),
                    .ranks = static_cast<uint32_t>(node_of_rank.size())};
  for (const auto& [node, ranks] : ranks_of_node) {
    topology.most_ranks = std::max(topology.most_ranks, ranks);
  }
  return topology;
}

Prediction Predict(Algorithm algorithm, const Tuning& tuning, const OpDesc& op,
                   const Topology& topology) {
  SPCCL_CHECK(HasPlan(algorithm, op.kind) && algorithm != Algorithm::kLocal && topology.nodes > 1);
  return Predictor(tuning, op, topology).Predict(algorithm);
}

Choice ChoosePlan(const Tuning& tuning, const OpDesc& op, const Topology& topology) {
  Choice choice;
  if (topology.nodes == 1) {
    const bool fixed = tuning.algorithm == Algorithm::kRing && HasPlan(tuning.algorithm, op.kind);
    choice.chooser = fixed ? Chooser::kFixed : Chooser::kCostModel;
    choice.algorithm = fixed ? Algorithm::kRing : Algorithm::kLocal;
    return choice;
  }
  for (int code = 0; code < kAlgorithmCount; ++code) {
    const Algorithm algorithm = static_cast<Algorithm>(code);
    if (algorithm == Algorithm::kLocal || !HasPlan(algorithm, op.kind)) continue;
    choice.predictions.push_back(Predict(algorithm, tuning, op, topology));
  }
  std::stable_sort(choice.predictions.begin(), choice.predictions.end(),
                   [](const Prediction& a, const Prediction& b) { return a.seconds < b.seconds; });
  if (tuning.algorithm != Algorithm::kLocal && HasPlan(tuning.algorithm, op.kind)) {
    choice.chooser = Chooser::kFixed;
    choice.algorithm = tuning.algorithm;
    return choice;
  }
  if (const Pick pick = Learned(tuning, op, topology); HasPlan(pick.algorithm, op.kind)) {
    choice.chooser = Chooser::kTable;
    choice.algorithm = pick.algorithm;
    choice.slice_bytes = pick.slice_bytes;
    return choice;
  }
  const auto best =
      std::find_if(choice.predictions.begin(), choice.predictions.end(),
                   [](const Prediction& one) { return one.algorithm != Algorithm::kRing; });
  choice.algorithm = best->algorithm;
  return choice;
}

}  // namespace spccl::policy
