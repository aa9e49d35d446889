// spccl-tune: measures which plan is the fastest where, and writes what it learns for spccld.
//
// Exit codes: 0 fine, 1 wrong use, 2 something failed, 130 interrupted: the same command goes on.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/view.h"
#include "bench/perf/problem.h"
#include "bench/support/output.h"
#include "bench/support/private_daemon.h"
#include "bench/tune/model_text.h"
#include "bench/tune/sweep.h"
#include "bench/tune/train.h"
#include "collective/policy/plan_table.h"

namespace spccl::tune {
namespace {

namespace fs = std::filesystem;
constexpr int kInterrupted = 130;

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // it is set by a signal

// While it lives, what would end the program sets `interrupted`.
class Interruptible {
 public:
  Interruptible() {
    // relaxed: the flag says all.
    for (Saved& one : saved_) {
      one.handler =
          ::signal(one.number, [](int) { interrupted.store(true, std::memory_order_relaxed); });
    }
  }
  ~Interruptible() {
    for (const Saved& one : saved_) ::signal(one.number, one.handler);
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  struct Saved {
    int number;
    void (*handler)(int) = SIG_DFL;
  };
  Saved saved_[3] = {{SIGINT}, {SIGTERM}, {SIGHUP}};
};

// The command line; lists are separated by commas.
struct Wish {
  SweepOptions sweep;
  TrainOptions train;
  std::string ops = "all_reduce,all_gather,reduce_scatter,broadcast", nodes = "2", ranks = "1";
  std::string sizes = "64K,256K,1M,4M,16M,64M", sparsities = "0,0.5,0.9,0.99,0.999";
  std::string algorithms = "two-level-ring,recursive-doubling,halving-doubling,split,direct,tree";
  std::string slices = "auto,256K,1M", channels = "1,2,4,8,16,32,64";
  std::vector<std::string> daemon_arguments;
  std::string launcher, out = "tune";
  bool train_only = false;
};

void AddOptions(CLI::App* app, Wish* wish) {
  app->add_option("--out", wish->out, "folder for points.csv, sweep.json and model.toml")
      ->capture_default_str();
  app->add_flag("--train-only", wish->train_only, "learn from the points.csv that is there");
  app->add_option("--ops", wish->ops, "collectives")->capture_default_str();
  app->add_option("--nodes", wish->nodes, "numbers of nodes")->capture_default_str();
  app->add_option("--ranks", wish->ranks, "numbers of ranks a node")->capture_default_str();
  app->add_option("--sizes", wish->sizes, "in bytes, with K, M or G")->capture_default_str();
  app->add_option("--sparsities", wish->sparsities, "fractions of zeros")->capture_default_str();
  app->add_option("--algos", wish->algorithms, "plans; each where there is one")
      ->capture_default_str();
  app->add_option("--slices", wish->slices, "sizes of slices; auto: by the density")
      ->capture_default_str();
  app->add_option("--channels", wish->channels,
                  "threads of each daemon, of which the best number is found first and the plans "
                  "are measured with, for good; 0: the daemon's own choice")
      ->capture_default_str();
  app->add_option("--rounds", wish->sweep.rounds, "how often each point is measured")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--iters", wish->sweep.iters,
                  "operations a round of each way, of small ones; of large ones a third")
      ->check(CLI::Range(3, 100'000))
      ->capture_default_str();
  app->add_option("--tie", wish->train.tie, "ways count as equally fast within this")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str();
  app->add_option("--seed", wish->train.seed, "of the splits")->capture_default_str();
  app->add_option("--spccl-perf", wish->sweep.perf, "the program (default: beside this one)");
  app->add_option("--launcher", wish->launcher,
                  "what starts a node's daemon, as spccl-perf has it (default: all nodes are this "
                  "machine)");
  app->add_option("--daemon-arg", wish->daemon_arguments,
                  "an argument for the daemons, as spccl-perf has it; may be repeated");
}

template <typename T, typename Read>
absl::StatusOr<std::vector<T>> ReadList(const char* option, const std::string& text,
                                        const Read& read) {
  std::vector<T> values;
  for (const absl::string_view word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const auto value = read(std::string(word));
    if (!value) {
      return absl::InvalidArgumentError(absl::StrCat(option, ": found \"", word, "\""));
    }
    values.push_back(*value);
  }
  if (values.empty()) return absl::InvalidArgumentError(absl::StrCat(option, ": names nothing"));
  return values;
}

auto WholeNumber(uint32_t least, uint32_t most) {
  return [least, most](const std::string& word) {
    uint32_t value = 0;
    const bool fine = absl::SimpleAtoi(word, &value) && value >= least && value <= most;
    return fine ? std::optional(value) : std::nullopt;
  };
}

std::optional<OpKind> OpFromName(const std::string& word) {
  for (int code = 0; code < bench::kCollectiveCount; ++code) {
    const auto kind = static_cast<OpKind>(code);
    if (kind == OpKind::kScatter) continue;  // there is nothing to choose
    if (View(NameOf(kind)) == word) return kind;
  }
  return std::nullopt;
}

std::optional<double> Sparsity(const std::string& word) {
  double value = 0;
  const bool fine = absl::SimpleAtod(word, &value) && value >= 0 && value <= 1;
  return fine ? std::optional(value) : std::nullopt;
}

std::optional<std::string> Plan(const std::string& word) {
  const auto pick = policy::PickFromName(word);
  return pick && pick->slice_bytes == 0 ? std::optional(word) : std::nullopt;
}

std::optional<uint64_t> Slice(const std::string& word) {
  if (word == "auto") return 0;
  const auto bytes = bench::ParseSizes(word);
  const bool fine = bytes.ok() && (*bytes)[0] >= policy::kLeastSliceBytes &&
                    (*bytes)[0] <= policy::kMostSliceBytes;
  return fine ? std::optional((*bytes)[0]) : std::nullopt;
}

// Fills wish->sweep by the texts.
absl::Status Read(Wish* wish) {
  SweepOptions& sweep = wish->sweep;
  SPCCL_ASSIGN_OR_RETURN(sweep.ops, ReadList<OpKind>("--ops", wish->ops, OpFromName));
  SPCCL_ASSIGN_OR_RETURN(sweep.nodes,
                         ReadList<uint32_t>("--nodes", wish->nodes, WholeNumber(2, 64)));
  SPCCL_ASSIGN_OR_RETURN(sweep.ranks,
                         ReadList<uint32_t>("--ranks", wish->ranks, WholeNumber(1, 64)));
  SPCCL_ASSIGN_OR_RETURN(sweep.bytes, bench::ParseSizes(wish->sizes));
  SPCCL_ASSIGN_OR_RETURN(sweep.sparsities,
                         ReadList<double>("--sparsities", wish->sparsities, Sparsity));
  SPCCL_ASSIGN_OR_RETURN(sweep.algorithms,
                         ReadList<std::string>("--algos", wish->algorithms, Plan));
  SPCCL_ASSIGN_OR_RETURN(sweep.slices, ReadList<uint64_t>("--slices", wish->slices, Slice));
  SPCCL_ASSIGN_OR_RETURN(sweep.channels,
                         ReadList<uint32_t>("--channels", wish->channels, WholeNumber(0, 64)));
  if (sweep.perf.empty()) {
    SPCCL_ASSIGN_OR_RETURN(const std::string folder, bench::OwnFolder());
    sweep.perf = folder + "/spccl-perf";
  }
  if (!wish->launcher.empty()) sweep.perf_arguments = {"--launcher", wish->launcher};
  for (const std::string& argument : wish->daemon_arguments) {
    sweep.perf_arguments.insert(sweep.perf_arguments.end(), {"--daemon-arg", argument});
  }
  sweep.csv = wish->out + "/points.csv";
  sweep.record = wish->out + "/sweep.json";
  std::error_code error;
  fs::create_directories(wish->out, error);
  return error ? ErrnoStatus(error.value(), absl::StrCat("make ", wish->out)) : absl::OkStatus();
}

std::string NameOfChannels(uint32_t channels) {
  return channels == 0 ? "the daemon's choice" : absl::StrCat(channels);
}

// One a collective that was measured often enough; says which were not.
absl::StatusOr<std::vector<Learned>> LearnAll(const Wish& wish, uint32_t channels) {
  SPCCL_ASSIGN_OR_RETURN(const std::vector<Sample> samples, ReadSamples(wish.sweep.csv));
  std::vector<Learned> all;
  for (int code = 0; code < kOpKindCount; ++code) {
    std::vector<Measured> cases;
    for (const Measured& measured : Gather(samples, channels)) {
      if (measured.at.op == static_cast<OpKind>(code)) cases.push_back(measured);
    }
    if (cases.empty()) continue;
    absl::StatusOr<Learned> learned = Train(cases, wish.train);
    if (learned.ok()) {
      all.push_back(*std::move(learned));
    } else {
      std::fprintf(stderr, "spccl-tune: %s is left to the cost model: %s\n",
                   std::string(NameOf(static_cast<OpKind>(code))).c_str(),
                   std::string(learned.status().message()).c_str());
    }
  }
  if (all.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        wish.sweep.csv, " has too little to learn from; channels: ", NameOfChannels(channels)));
  }
  return all;
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

absl::Status Learn(const Wish& wish, uint32_t channels) {
  SPCCL_ASSIGN_OR_RETURN(const std::vector<Learned> all, LearnAll(wish, channels));
  SPCCL_ASSIGN_OR_RETURN(const std::string text, ModelText(all, channels, Now()));
  const std::string path = wish.out + "/model.toml", made = path + ".new";
  std::ofstream file(made);
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(made, path, error);
  if (!file || error) return absl::InternalError(absl::StrCat("cannot write ", path));
  std::printf("%schannels: %s\nwrote %s: load it with spcclctl tune load\n",
              QualityTable(all).c_str(), NameOfChannels(channels).c_str(), path.c_str());
  return absl::OkStatus();
}

absl::StatusOr<int> SweepAndLearn(const Wish& wish) {
  SweepEnd end;
  if (wish.train_only) {
    SPCCL_ASSIGN_OR_RETURN(const std::vector<Sample> samples, ReadSamples(wish.sweep.csv));
    SPCCL_ASSIGN_OR_RETURN(const Record record, ReadRecord(wish.sweep.record));
    end.channels = ChannelsToLearn(wish.sweep, record, samples);
  } else {
    // Not while it learns: a signal ends that at once, and nothing that was measured is lost.
    const Interruptible until_it_is_measured;
    SPCCL_ASSIGN_OR_RETURN(end, Sweep(wish.sweep, interrupted));
  }
  end.interrupted = interrupted.load(std::memory_order_relaxed);  // a flag alone
  if (end.interrupted) {
    std::fprintf(stderr,
                 "\nspccl-tune: interrupted; what was measured is in %s, and the same command goes "
                 "on from there\n",
                 wish.sweep.csv.c_str());
    return kInterrupted;
  }
  SPCCL_RETURN_IF_ERROR(Learn(wish, end.channels));
  return end.failed == 0 ? 0 : 2;
}

int Main(int argc, char** argv) {
  Wish wish;
  CLI::App app(
      "Measures which plan is the fastest where, and writes what it learns for spccld. What is in "
      "the folder already is not measured again.",
      "spccl-tune");
  AddOptions(&app, &wish);
  absl::Status read;
  try {
    app.parse(argc, argv);
    read = Read(&wish);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    read = absl::InvalidArgumentError(error.what());
  }
  if (!read.ok()) {
    std::fprintf(stderr, "spccl-tune: %s\nTry spccl-tune --help.\n",
                 std::string(read.message()).c_str());
    return 1;
  }
  ::signal(SIGCHLD, SIG_DFL);  // whoever started this may ignore it: no end would be known
  const absl::StatusOr<int> code = SweepAndLearn(wish);
  if (code.ok()) return *code;
  std::fprintf(stderr, "spccl-tune: %s\n", std::string(code.status().message()).c_str());
  return 2;
}

}  // namespace
}  // namespace spccl::tune

int main(int argc, char** argv) {
  return spccl::bench::EndOutput("spccl-tune", spccl::tune::Main(argc, argv));
}
