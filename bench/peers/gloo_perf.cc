// gloo-perf: what spccl-perf measures, done by gloo over its TCP transport, on the loopback or
// between the network namespaces that --netns names.
//
// gloo has two generations of collectives. Those of the first (halving-doubling, ring-chunked, the
// reduce-scatter) and of the second (ring, bcube, all-gather, broadcast) must not share a context:
// they hang. A run is one operation and one algorithm, so it uses one generation only.
#include <fcntl.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "bench/perf/run.h"
#include "bench/support/rank_team.h"

namespace spccl::bench {
namespace {

constexpr char kName[] = "gloo-perf";

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// The second generation's reduction: c[i] = a[i] op b[i].
template <typename T>
void (*ReductionOf(RedOp redop))(void*, const void*, const void*, size_t) {
  switch (redop) {
    case RedOp::kProd:
      return &gloo::product<T>;
    case RedOp::kMax:
      return &gloo::max<T>;
    case RedOp::kMin:
      return &gloo::min<T>;
    default:
      return &gloo::sum<T>;
  }
}

template <typename T>
const gloo::ReductionFunction<T>* FirstReductionOf(RedOp redop) {
  switch (redop) {
    case RedOp::kProd:
      return gloo::ReductionFunction<T>::product;
    case RedOp::kMax:
      return gloo::ReductionFunction<T>::max;
    case RedOp::kMin:
      return gloo::ReductionFunction<T>::min;
    default:
      return gloo::ReductionFunction<T>::sum;
  }
}

template <typename T>
class GlooBackend : public Backend {
 public:
  GlooBackend(std::shared_ptr<gloo::Context> context, const Options& options)
      : context_(std::move(context)), options_(options) {}

  absl::Status Open(const Problem& problem) override {
    if (SendElements(problem.op, problem.ranks) > std::numeric_limits<int>::max()) {
      return absl::InvalidArgumentError("gloo counts elements with an int");
    }
    problem_ = problem;
    first_.reset();
    send_.reset(std::malloc(problem.send_bytes()));
    recv_.reset(works_in_place() ? nullptr : std::malloc(problem.recv_bytes()));
    if (send_ == nullptr || recv() == nullptr) return absl::ResourceExhaustedError("no memory");
    OpenFirstGeneration();
    return absl::OkStatus();
  }

  void* send() override { return send_.get(); }
  // The first generation leaves its result where its input was.
  void* recv() override { return works_in_place() ? send_.get() : recv_.get(); }
  bool overwrites_input() const override { return works_in_place(); }

  absl::Status Run() override {
    try {
      if (first_ != nullptr) {
        first_->run();
      } else {
        RunSecondGeneration();
      }
    } catch (const std::exception& error) {
      return absl::InternalError(error.what());
    }
    return absl::OkStatus();
  }

 private:
  bool works_in_place() const {
    return problem_.op.kind == Collective::kReduceScatter || options_.algo == "halving_doubling" ||
           options_.algo == "ring_chunked" || options_.in_place;
  }

  void OpenFirstGeneration() {
    const std::vector<T*> buffers = {static_cast<T*>(send_.get())};
    const int count = static_cast<int>(SendElements(problem_.op, problem_.ranks));
    const auto* reduction = FirstReductionOf<T>(problem_.op.redop);
    if (problem_.op.kind == Collective::kReduceScatter) {
      const std::vector<int> shares(problem_.ranks, static_cast<int>(problem_.op.count));
      first_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<T>>(context_, buffers, count,
                                                                       shares, reduction);
    } else if (options_.algo == "halving_doubling") {
      first_ =
          std::make_unique<gloo::AllreduceHalvingDoubling<T>>(context_, buffers, count, reduction);
    } else if (options_.algo == "ring_chunked") {
      first_ = std::make_unique<gloo::AllreduceRingChunked<T>>(context_, buffers, count, reduction);
    }
  }

  std::vector<T*> Parts(T* all) const {
    std::vector<T*> parts(problem_.ranks);
    for (size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = all + rank * problem_.op.count;
    return parts;
  }

  void RunSecondGeneration() {
    T* const in = static_cast<T*>(send());
    T* const out = static_cast<T*>(recv());
    const Operation& op = problem_.op;
    if (op.kind == Collective::kAllReduce) {
      gloo::AllreduceOptions run(context_);
      if (in != out) run.setInput(in, op.count);
      run.setOutput(out, op.count);
      run.setReduceFunction(ReductionOf<T>(op.redop));
      run.setAlgorithm(options_.algo == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                : gloo::AllreduceOptions::Algorithm::RING);
      gloo::allreduce(run);
    } else if (op.kind == Collective::kAllGather) {
      gloo::AllgatherOptions run(context_);
      run.setInput(in, op.count);
      run.setOutput(out, op.count * problem_.ranks);
      gloo::allgather(run);
    } else if (op.kind == Collective::kScatter) {
      gloo::ScatterOptions run(context_);
      if (context_->rank == static_cast<int>(op.root)) run.setInputs(Parts(in), op.count);
      run.setOutput(out, op.count);
      run.setRoot(static_cast<int>(op.root));
      gloo::scatter(run);
    } else {
      gloo::BroadcastOptions run(context_);
      if (context_->rank == static_cast<int>(op.root) && in != out) run.setInput(in, op.count);
      run.setOutput(out, op.count);
      run.setRoot(static_cast<int>(op.root));
      gloo::broadcast(run);
    }
  }

  std::shared_ptr<gloo::Context> context_;
  const Options& options_;
  Problem problem_;
  std::unique_ptr<void, Free> send_, recv_;
  std::unique_ptr<gloo::Algorithm> first_;  // of the first generation; null: of the second
};

std::unique_ptr<Backend> MakeBackend(std::shared_ptr<gloo::Context> context,
                                     const Options& options) {
  switch (options.dtype) {
    case DType::kInt8:
      return std::make_unique<GlooBackend<int8_t>>(std::move(context), options);
    case DType::kInt32:
      return std::make_unique<GlooBackend<int32_t>>(std::move(context), options);
    case DType::kInt64:
      return std::make_unique<GlooBackend<int64_t>>(std::move(context), options);
    case DType::kFloat32:
      return std::make_unique<GlooBackend<float>>(std::move(context), options);
    case DType::kFloat64:
      return std::make_unique<GlooBackend<double>>(std::move(context), options);
    default:
      return nullptr;
  }
}

// What gloo, or the chosen algorithm, cannot do.
std::string Unsupported(const Options& options) {
  if (MakeBackend(nullptr, options) == nullptr) return "gloo has no such dtype";
  if (options.redop == RedOp::kAvg) return "gloo has no average";
  if (options.op != Collective::kAllReduce && options.algo != "auto") {
    return "--algo is for all_reduce only";
  }
  if (options.in_place && options.op == Collective::kAllGather) {
    return "gloo's all_gather does not work in place";
  }
  return "";
}

// Moves this process to its rank's host.
absl::Status EnterHost(const Team& team, const Options& options) {
  if (options.netns.empty()) return absl::OkStatus();
  const int host = team.rank() * static_cast<int>(options.nodes) / team.ranks() + 1;
  const std::string path =
      absl::StrReplaceAll("/run/netns/" + options.netns, {{"{}", std::to_string(host)}});
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || setns(fd.get(), CLONE_NEWNET) != 0) return ErrnoStatus(errno, path);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<gloo::Context>> Connect(const Team& team, const Options& options,
                                                       const std::string& folder) {
  try {
    gloo::transport::tcp::attr address;
    if (options.interface.empty()) {
      address.hostname = "127.0.0.1";
    } else {
      address.iface = options.interface;
    }
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(team.rank(), team.ranks());
    context->connectFullMesh(store, device);
    return context;
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

absl::Status RunRank(RankTeam& team, const Options& options, const std::string& folder) {
  SPCCL_RETURN_IF_ERROR(EnterHost(team, options));
  SPCCL_ASSIGN_OR_RETURN(const auto context, Connect(team, options, folder));
  const std::unique_ptr<Backend> backend = MakeBackend(context, options);
  SPCCL_ASSIGN_OR_RETURN(const bool right, RunProblems(kName, team, *backend, options));
  return right ? absl::OkStatus() : absl::DataLossError("wrong results");
}

int Run(const Options& options) {
  const std::string unsupported = Unsupported(options);
  if (!unsupported.empty()) {
    std::fprintf(stderr, "%s: %s\n", kName, unsupported.c_str());
    return 1;
  }
  HoldSignals();
  std::string folder = (std::filesystem::temp_directory_path() / "gloo-perf-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("gloo-perf: mkdtemp");
    return 2;
  }
  const absl::Status status = RunTeam(static_cast<int>(options.ranks), [&](RankTeam& team) {
    return RunRank(team, options, folder);
  });
  std::error_code ignored;  // what is left in a temporary folder harms nobody
  std::filesystem::remove_all(folder, ignored);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", kName, std::string(status.message()).c_str());
  return 2;
}

}  // namespace
}  // namespace spccl::bench

int main(int argc, char** argv) {
  const spccl::bench::Tool tool = {
      .name = spccl::bench::kName,
      .summary = "Measures gloo's collectives between processes of this machine.",
      .algorithms = {"auto", "ring", "bcube", "halving_doubling", "ring_chunked"},
      .codecs = {"auto", "dense"},
      .buffers = {"malloc"},
      .uses_daemon = false,
      .places_ranks = true};
  return spccl::bench::RunTool(tool, argc, argv, spccl::bench::Run);
}
