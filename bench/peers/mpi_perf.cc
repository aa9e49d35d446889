// mpi-perf: what spccl-perf measures, done by an MPI library; started by mpirun, a process a rank.
//
// --algo picks one of Open MPI's own all-reduce or all-gather algorithms (its "tuned" component's
// numbers), or for a reduce-scatter which of MPI's two calls is used.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/perf/run.h"

namespace spccl::bench {
namespace {

constexpr char kName[] = "mpi-perf";

absl::Status ToStatus(int code, const char* what) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return absl::InternalError(absl::StrCat(what, ": ", text));
}

class MpiTeam : public Team {
 public:
  MpiTeam() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  absl::Status Barrier() override { return ToStatus(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }
  absl::Status MaxOverRanks(std::span<double> values) override { return Fold(values, MPI_MAX); }
  absl::Status SumOverRanks(std::span<double> values) override { return Fold(values, MPI_SUM); }

 private:
  absl::Status Fold(std::span<double> values, MPI_Op op) {
    return ToStatus(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                                  MPI_DOUBLE, op, MPI_COMM_WORLD),
                    "MPI_Allreduce");
  }
  int rank_ = 0, ranks_ = 0;
};

MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kUint8:
      return MPI_UINT8_T;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kUint32:
      return MPI_UINT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kUint64:
      return MPI_UINT64_T;
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kFloat64:
      return MPI_DOUBLE;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op OpOf(RedOp redop) {
  switch (redop) {
    case RedOp::kSum:
      return MPI_SUM;
    case RedOp::kProd:
      return MPI_PROD;
    case RedOp::kMax:
      return MPI_MAX;
    case RedOp::kMin:
      return MPI_MIN;
    case RedOp::kAvg:
      break;
  }
  return MPI_OP_NULL;
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

class MpiBackend : public Backend {
 public:
  explicit MpiBackend(const Options& options) : options_(options) {}

  absl::Status Open(const Problem& problem) override {
    if (SendElements(problem.op, problem.ranks) > std::numeric_limits<int>::max()) {
      return absl::InvalidArgumentError("MPI counts elements with an int");
    }
    op_ = problem.op;
    send_.reset(std::malloc(problem.send_bytes()));
    recv_.reset(std::malloc(problem.recv_bytes()));
    shares_.assign(problem.ranks, static_cast<int>(problem.op.count));
    if (send_ == nullptr || recv_ == nullptr) return absl::ResourceExhaustedError("no memory");
    return absl::OkStatus();
  }
  void* send() override { return send_.get(); }
  void* recv() override { return op_.kind == Collective::kBroadcast ? send_.get() : recv_.get(); }
  bool overwrites_input() const override { return false; }

  absl::Status Run() override {
    const MPI_Datatype type = TypeOf(op_.dtype);
    const MPI_Op reduction = OpOf(op_.redop);
    const int count = static_cast<int>(op_.count);
    void* const in = send_.get();
    void* const out = recv_.get();
    switch (op_.kind) {
      case Collective::kAllReduce:
        return ToStatus(MPI_Allreduce(in, out, count, type, reduction, MPI_COMM_WORLD),
                        "MPI_Allreduce");
      case Collective::kReduceScatter:
        return ToStatus(
            options_.algo == "reduce_scatter"
                ? MPI_Reduce_scatter(in, out, shares_.data(), type, reduction, MPI_COMM_WORLD)
                : MPI_Reduce_scatter_block(in, out, count, type, reduction, MPI_COMM_WORLD),
            "reduce-scatter");
      case Collective::kAllGather:
        return ToStatus(MPI_Allgather(in, count, type, out, count, type, MPI_COMM_WORLD),
                        "MPI_Allgather");
      case Collective::kBroadcast:
        return ToStatus(MPI_Bcast(in, count, type, static_cast<int>(op_.root), MPI_COMM_WORLD),
                        "MPI_Bcast");
      case Collective::kScatter:
        return ToStatus(MPI_Scatter(in, count, type, out, count, type, static_cast<int>(op_.root),
                                    MPI_COMM_WORLD),
                        "MPI_Scatter");
    }
    return absl::InvalidArgumentError("no such operation");
  }

 private:
  const Options& options_;
  Operation op_;
  std::unique_ptr<void, Free> send_, recv_;
  std::vector<int> shares_;
};

// What sets an algorithm of Open MPI's tuned component (ompi_info --param coll tuned --level 9),
// and its number there; null: --algo names none of this operation's.
struct Tuned {
  const char* variable;
  const char* number;
};
const Tuned* TunedBy(const Options& options) {
  constexpr const char* kAllReduce = "OMPI_MCA_coll_tuned_allreduce_algorithm";
  constexpr const char* kAllGather = "OMPI_MCA_coll_tuned_allgather_algorithm";
  static const auto* const kKnown = new std::map<std::pair<Collective, std::string>, Tuned>{
      {{Collective::kAllReduce, "recursive_doubling"}, {kAllReduce, "3"}},
      {{Collective::kAllReduce, "ring"}, {kAllReduce, "4"}},
      {{Collective::kAllReduce, "segmented_ring"}, {kAllReduce, "5"}},
      {{Collective::kAllReduce, "rabenseifner"}, {kAllReduce, "6"}},
      {{Collective::kAllGather, "recursive_doubling"}, {kAllGather, "3"}},
      {{Collective::kAllGather, "ring"}, {kAllGather, "4"}},
      {{Collective::kAllGather, "neighbor"}, {kAllGather, "5"}}};
  const auto found = kKnown->find({options.op, options.algo});
  return found == kKnown->end() ? nullptr : &found->second;
}

// Must come before MPI_Init.
void ChooseAlgorithm(const Options& options) {
  const Tuned* const tuned = TunedBy(options);
  if (tuned == nullptr) return;
  setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 1);
  setenv(tuned->variable, tuned->number, 1);
}

std::string Unsupported(const Options& options) {
  if (TypeOf(options.dtype) == MPI_DATATYPE_NULL) return "MPI has no such dtype";
  if (options.redop == RedOp::kAvg) return "MPI has no average";
  if (options.in_place) return "--in-place is not supported";
  const bool scatter_call =
      options.op == Collective::kReduceScatter && options.algo.rfind("reduce_scatter", 0) == 0;
  if (options.algo != "auto" && !scatter_call && TunedBy(options) == nullptr) {
    return "that algorithm is not one of this operation's";
  }
  return "";
}

absl::Status RunAll(Team& team, const Options& options) {
  if (team.ranks() != static_cast<int>(options.ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks says ", options.ranks, ", mpirun started ", team.ranks()));
  }
  MpiBackend backend(options);
  SPCCL_ASSIGN_OR_RETURN(const bool right, RunProblems(kName, team, backend, options));
  return right ? absl::OkStatus() : absl::DataLossError("wrong results");
}

int Run(const Options& options) {
  const std::string unsupported = Unsupported(options);
  if (!unsupported.empty()) {
    std::fprintf(stderr, "%s: %s\n", kName, unsupported.c_str());
    return 1;
  }
  ChooseAlgorithm(options);
  MPI_Init(nullptr, nullptr);
  MpiTeam team;
  const absl::Status status = RunAll(team, options);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: rank %d: %s\n", kName, team.rank(),
                 std::string(status.message()).c_str());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace spccl::bench

int main(int argc, char** argv) {
  const spccl::bench::Tool tool = {
      .name = spccl::bench::kName,
      .summary = "Measures MPI's collectives; start it with mpirun, a process a rank.",
      .algorithms = {"auto", "recursive_doubling", "ring", "segmented_ring", "rabenseifner",
                     "neighbor", "reduce_scatter", "reduce_scatter_block"},
      .codecs = {"auto", "dense"},
      .buffers = {"malloc"},
      .uses_daemon = false};
  return spccl::bench::RunTool(tool, argc, argv, spccl::bench::Run);
}
