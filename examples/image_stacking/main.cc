// image-stacking: P noisy images of one field, a rank each, are stacked (averaged) by an
// all-reduce: exactly, within an error bound, and with QSGD; after gZCCL's application of the same
// name.
//
// Exit codes: 0 fine, 1 wrong use, 2 the stacking failed, 3 a bound or the agreement of ranks did
// not hold.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/support/check_number.h"
#include "bench/support/output.h"
#include "bench/support/rank_team.h"
#include "examples/image_stacking/stacking.h"

namespace image_stacking {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "image-stacking: %s\n", std::string(status.message()).c_str());
  return 2;
}

int Refuse(const char* why) {
  std::fprintf(stderr, "image-stacking: %s\nTry image-stacking --help.\n", why);
  return 1;
}

// docs/lossy.md: of a mean, whatever the plan; and what its sums are rounded by.
double BoundOf(const Settings& settings, double largest) {
  return settings.bound * (2 - 1.0 / settings.ranks) +
         RoundingOfMean(static_cast<uint32_t>(settings.ranks), largest);
}

void PrintText(const Settings& settings, const std::vector<Run>& runs, const Quality& single,
               const Quality& stacked, double promised) {
  std::printf("%d images of %zu x %zu pixels (%.1f MiB each) on %u nodes, noise %g, bound %g\n",
              settings.ranks, settings.side, settings.side,
              static_cast<double>(settings.side * settings.side) * 4 / (1 << 20), settings.nodes,
              settings.noise, settings.bound);
  std::printf("Against the field without noise: one image %.1f dB, the exact stack %.1f dB.\n",
              single.psnr_db, stacked.psnr_db);
  std::printf("Against the exact stack:\n%-12s %10s %9s %10s %10s %12s\n", "codec", "time ms",
              "faster", "PSNR dB", "NRMSE", "largest error");
  for (const Run& run : runs) {
    std::printf("%-12s %10.1f %8.2fx %10.1f %10.2e %12.2e%s\n", run.codec.c_str(), run.median_ms,
                runs[0].median_ms / run.median_ms, run.quality.psnr_db, run.quality.nrmse,
                run.quality.largest, run.all_alike ? "" : "  ranks differ");
  }
  std::printf("The error bound promises at most %.2e here (docs/lossy.md).\n", promised);
}

void PrintJson(const Settings& settings, const std::vector<Run>& runs, const Quality& single,
               const Quality& stacked, double promised) {
  nlohmann::ordered_json json = {{"ranks", settings.ranks},     {"nodes", settings.nodes},
                                 {"side", settings.side},       {"noise", settings.noise},
                                 {"bound", settings.bound},     {"promised", promised},
                                 {"single_db", single.psnr_db}, {"stack_db", stacked.psnr_db}};
  for (const Run& run : runs) {
    json["runs"].push_back({{"codec", run.codec},
                            {"time_ms", run.median_ms},
                            {"psnr_db", run.quality.psnr_db},
                            {"nrmse", run.quality.nrmse},
                            {"largest", run.quality.largest},
                            {"all_alike", run.all_alike}});
  }
  std::printf("%s\n", json.dump().c_str());
}

bool Sound(const std::vector<Run>& runs, double promised) {
  bool sound = true;
  for (const Run& run : runs) {
    sound = sound && run.all_alike;
    if (run.codec == "errorbound") sound = sound && run.quality.largest <= promised;
  }
  return sound;
}

int StackAndTell(const Settings& settings, const spccl::bench::DaemonWish& wish, bool json) {
  spccl::bench::HoldSignals();
  const auto daemons = spccl::bench::GetDaemons(wish);
  if (!daemons.ok()) return Fail(daemons.status());
  const absl::StatusOr<std::vector<Run>> runs = StackWithEach(settings, *daemons);
  if (!runs.ok()) return Fail(runs.status());
  const Image field = Field(settings.side);
  const std::vector<double> truth(field.begin(), field.end());
  const Quality single = Compare(truth, Noisy(field, settings.noise, settings.seed, 0));
  const Stack exact =
      ExactStack(field, settings.noise, settings.seed, static_cast<uint32_t>(settings.ranks));
  const Quality stacked = Compare(truth, Image(exact.mean.begin(), exact.mean.end()));
  const double promised = BoundOf(settings, exact.largest);
  (json ? PrintJson : PrintText)(settings, *runs, single, stacked, promised);
  return Sound(*runs, promised) ? 0 : 3;
}

int Main(int argc, char** argv) {
  Settings settings;
  spccl::bench::DaemonWish wish;
  bool json = false;
  CLI::App app("Stacks noisy images of one field, exactly and lossily.", "image-stacking");
  app.add_option("--ranks", settings.ranks, "images, one a process")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--nodes", settings.nodes, "private daemons to start, as if each were a node's")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--side", settings.side, "pixels")
      ->check(CLI::Range(16, 16384))
      ->capture_default_str();
  app.add_option("--noise", settings.noise, "deviation; the field's range is about 2")
      ->check(spccl::bench::FromZeroOn())
      ->capture_default_str();
  app.add_option("--bound", settings.bound, "absolute, of a frame's elements")
      ->check(spccl::bench::AboveZero())
      ->capture_default_str();
  app.add_option("--algo", settings.algorithm, "recursive-doubling, split, ... (default: auto)");
  app.add_option("--repeats", settings.repeats, "the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seed", settings.seed, "of the noise and of QSGD");
  app.add_option("--launcher", wish.launcher,
                 "a command to start each daemon with, such as 'tools/netlab.sh exec {}'; {} "
                 "becomes the number of the node");
  app.add_option("--daemon-arg", wish.arguments,
                 "an argument for the private daemons, with {} likewise; may be repeated");
  app.add_option("--spccld", wish.binary,
                 "the daemon to start (default: the one beside this program, else of its prefix's "
                 "sbin, else of the PATH)");
  app.add_flag("--json", json, "print one object");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    return Refuse(error.what());
  }
  if (settings.nodes > static_cast<uint32_t>(settings.ranks)) {
    return Refuse("more nodes than ranks");
  }
  wish.nodes = settings.nodes;
  if (settings.nodes > 1 && wish.launcher.empty() && wish.arguments.empty()) {
    wish.arguments = {"--peers-listen=127.0.0.1:0"};  // all on this machine
  }
  return StackAndTell(settings, wish, json);
}

}  // namespace
}  // namespace image_stacking

int main(int argc, char** argv) {
  return spccl::bench::EndOutput("image-stacking", image_stacking::Main(argc, argv));
}
