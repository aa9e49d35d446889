// classifier: a linear classifier of text, trained by data-parallel SGD, its gradients summed by
// spccl; once with each of three plans, to see what they cost.
//
// Exit codes: 0 fine, 1 wrong use, 2 a training failed, 3 the plans' weights differ.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench/support/check_number.h"
#include "bench/support/output.h"
#include "bench/support/private_daemon.h"
#include "bench/support/rank_team.h"
#include "examples/classifier/launched.h"
#include "examples/classifier/report.h"

namespace classifier {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "classifier: %s\n", std::string(status.message()).c_str());
  return 2;
}

int Refuse(const char* why) {
  std::fprintf(stderr, "classifier: %s\nTry classifier --help.\n", why);
  return 1;
}

int Run(const Settings& settings) {
  spccl::bench::HoldSignals();
  const absl::StatusOr<Corpus> corpus = LoadCorpus(settings.corpus, settings.per_class);
  if (!corpus.ok()) return Fail(corpus.status());
  const Data data = Featurize(*corpus, settings.bucket_bits);
  if (!settings.meeting.empty()) {
    const absl::StatusOr<bool> same = TrainLaunched(data, settings);
    if (!same.ok()) return Fail(same.status());
    return *same ? 0 : 3;
  }
  const int together = settings.ranks * settings.schedule.batch;
  if (data.train.size() < static_cast<size_t>(together)) {
    return Fail(absl::InvalidArgumentError("fewer documents than ranks times batch"));
  }
  const auto daemons = spccl::bench::GetDaemons({.runtime_dir = settings.runtime_dir,
                                                 .nodes = settings.nodes,
                                                 .binary = settings.daemon_binary,
                                                 .arguments = settings.daemon_arguments,
                                                 .launcher = settings.launcher});
  if (!daemons.ok()) return Fail(daemons.status());

  if (!settings.json) {
    std::printf(
        "%zu documents of %zu classes from %s; %d ranks on %u nodes, batches of %d, %d epochs\n",
        data.train.size(), corpus->classes.size(), corpus->source.c_str(), settings.ranks,
        settings.nodes, settings.schedule.batch, settings.schedule.epochs);
  }
  std::vector<Outcome> outcomes;
  for (const Plan& plan : PlansFor(settings)) {
    if (!settings.json) std::printf("training with the %s ...\n", plan.name);
    const absl::StatusOr<Outcome> outcome = TrainWith(plan, data, settings, *daemons);
    if (!outcome.ok()) return Fail(outcome.status());
    outcomes.push_back(*outcome);
  }
  const std::string report =
      settings.json ? Json(*corpus, settings, outcomes) : Text(*corpus, settings, outcomes);
  std::fputs(report.c_str(), stdout);
  return SameWeights(outcomes) ? 0 : 3;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains a text classifier on several processes, with each of spccl's plans.",
               "classifier");
  app.add_option("--corpus", settings.corpus,
                 "man, dpkg, a folder with a sub-folder a class, or auto")
      ->capture_default_str();
  app.add_option("--per-class", settings.per_class, "most documents of a class")
      ->check(CLI::Range(10, 1'000'000))
      ->capture_default_str();
  app.add_option("--bucket-bits", settings.bucket_bits, "features: 2 to this power")
      ->check(CLI::Range(8, 26))
      ->capture_default_str();
  app.add_option("--ranks", settings.ranks, "processes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--epochs", settings.schedule.epochs, "passes over the documents")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--batch", settings.schedule.batch, "documents a rank and step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--rate", settings.schedule.rate, "of learning")
      ->check(spccl::bench::AboveZero())
      ->capture_default_str();
  app.add_option(
         "--nodes", settings.nodes,
         "private daemons to start, as if each were a node's; ranks are dealt out in blocks")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--launcher", settings.launcher,
                 "a command to start each daemon with, such as 'tools/netlab.sh exec {}'; {} "
                 "becomes the number of the node");
  app.add_option("--daemon-arg", settings.daemon_arguments,
                 "an argument for the private daemons, with {} likewise; may be repeated");
  app.add_option("--meet", settings.meeting,
                 "be one rank of those that srun has started; they meet in this file, which is not "
                 "there yet and lies where all nodes see it");
  app.add_flag("--json", settings.json, "print one object");
  app.add_option("--runtime-dir", settings.runtime_dir,
                 "folder of the sockets of a running daemon (default: start a private one)");
  app.add_option("--spccld", settings.daemon_binary,
                 "the daemon to start privately (default: the one beside this program, else of "
                 "its prefix's sbin, else of the PATH)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    return Refuse(error.what());
  }
  if (settings.meeting.empty() && settings.nodes > static_cast<uint32_t>(settings.ranks)) {
    return Refuse("more nodes than ranks");
  }
  return Run(settings);
}

}  // namespace
}  // namespace classifier

int main(int argc, char** argv) {
  return spccl::bench::EndOutput("classifier", classifier::Main(argc, argv));
}
