// status, version, wait.
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/status.h"
#include "base/version.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr int64_t kMilli = 1'000'000;  // in nanoseconds
constexpr int64_t kRetryNs = 20 * kMilli;

absl::StatusOr<v1::GetStatusResponse> Ask(const GlobalOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(options));
  return client->Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest());
}

absl::Status Health(const v1::Status& status) {
  if (status.healthy()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the daemon is not healthy",
                                                    status.health_detail().empty() ? "" : ": ",
                                                    Printable(status.health_detail())));
}

void PrintCounters(const v1::Counters& counters, Context* context) {
  std::string formats;
  for (const v1::NamedCount& sends : counters.sends_by_format()) {
    absl::StrAppend(&formats, formats.empty() ? "" : ", ", sends.value(), " ",
                    Printable(sends.key()));
  }
  context->out() << "operations    " << counters.ops() << " done, " << counters.failed_ops()
                 << " failed\n"
                 << "payload       " << HumanBytes(static_cast<double>(counters.payload_bytes()))
                 << " in " << HumanSeconds(static_cast<double>(counters.busy_ns()) / 1e9)
                 << " of work\n"
                 << "sent          " << HumanBytes(static_cast<double>(counters.wire_bytes()))
                 << " for " << HumanBytes(static_cast<double>(counters.dense_bytes())) << " dense ("
                 << formats << ")\n";
  for (const v1::NamedCount& sends : counters.decisions()) {
    context->out() << "decided       " << sends.value() << " " << Printable(sends.key()) << "\n";
  }
}

// Why none is used is worth a word where there are some; `doctor` says what to do.
void PrintNoGpus(const v1::Gpus& gpus, Context* context) {
  if (gpus.use() == v1::GPU_USE_NONE) context->out() << "gpus          none\n";
  if (gpus.use() != v1::GPU_USE_OFF && gpus.use() != v1::GPU_USE_UNUSABLE) return;
  context->out() << "gpus          not used: " << Printable(gpus.unused()) << "\n";
}

// "its work has not ended" of "GPU 0 (NVIDIA H100) has failed: its work has not ended": the line
// names the GPU.
std::string WhyFailed(const v1::Gpu& gpu) {
  constexpr std::string_view kFailed = " has failed: ";
  const size_t at = gpu.failure().find(kFailed);
  return Printable(at == std::string::npos ? gpu.failure()
                                           : gpu.failure().substr(at + kFailed.size()));
}

void PrintGpus(const v1::Gpus& gpus, Context* context) {
  if (gpus.gpus().empty()) return PrintNoGpus(gpus, context);
  context->out() << "gpus          " << gpus.gpus_size() << " used, driver "
                 << Printable(gpus.driver())
                 << (gpus.has_nccl() ? ", " + Printable(gpus.nccl()) : "") << "\n";
  if (!gpus.has_nccl() && !gpus.nccl().empty()) {
    context->out() << "              between nodes through the hosts: " << Printable(gpus.nccl())
                   << "\n";
  }
  for (int i = 0; i < gpus.gpus_size(); ++i) {
    const v1::Gpu& gpu = gpus.gpus(i);
    context->out() << "              " << i << " " << Printable(gpu.name()) << ", "
                   << HumanBytes(static_cast<double>(gpu.bytes())) << ", " << Printable(gpu.id())
                   << (gpu.mps() ? ", through MPS" : "");
    if (!gpu.failure().empty()) context->out() << ", FAILED: " << WhyFailed(gpu);
    context->out() << "\n";
  }
  for (const std::string& refused : gpus.refused()) {
    context->out() << "              not used: the driver's " << Printable(refused) << "\n";
  }
}

void PrintStatus(const v1::GetStatusResponse& response, Context* context) {
  const v1::Status& status = response.status();
  const char* state = !status.healthy() ? "UNHEALTHY" : status.draining() ? "draining" : "ready";
  context->out() << "daemon        " << state << ", version " << Printable(status.version())
                 << ", pid " << status.pid() << ", up " << HumanSeconds(status.uptime_seconds())
                 << "\n"
                 << "boot id       " << response.boot_id() << "\n"
                 << "work          " << Counted(status.channels(), "channel") << ", codecs "
                 << Printable(status.codec_target()) << ", last progress "
                 << HumanSeconds(status.last_progress_seconds()) << " ago\n"
                 << "clients       " << Counted(status.sessions(), "session") << ", "
                 << Counted(status.jobs(), "job") << ", "
                 << Counted(status.communicators(), "communicator") << ", "
                 << Counted(status.buffers(), "buffer") << " ("
                 << HumanBytes(static_cast<double>(status.buffer_bytes())) << ")\n";
  PrintGpus(status.gpus(), context);
  PrintCounters(status.counters(), context);
  if (!status.administrator()) {
    context->out() << "(counts are of your own jobs: you are not an administrator here)\n";
  }
}

absl::Status RunStatus(Context& context) {
  SPCCL_ASSIGN_OR_RETURN(const v1::GetStatusResponse response, Ask(context.options()));
  if (context.json()) {
    context.PrintJson(ToJson(response));
  } else {
    PrintStatus(response, &context);
  }
  return Health(response.status());
}

absl::Status RunVersion(Context& context) {
  const absl::StatusOr<v1::GetStatusResponse> response = Ask(context.options());
  if (context.json()) {
    nlohmann::ordered_json members = {{"version", kVersion}, {"daemon_version", nullptr}};
    if (response.ok()) members["daemon_version"] = response->status().version();
    context.PrintJson(std::move(members));
    return absl::OkStatus();
  }
  context.out() << "spcclctl " << kVersion << "\n";
  if (response.ok()) {
    context.out() << "spccld " << Printable(response->status().version()) << "\n";
  } else {
    context.out() << "spccld: " << response.status().message() << "\n";
  }
  return absl::OkStatus();
}

void SleepNanos(int64_t nanos) {
  const timespec time = {.tv_sec = nanos / 1'000'000'000, .tv_nsec = nanos % 1'000'000'000};
  ::nanosleep(&time, nullptr);
}

// Until the daemon answers and is healthy; then, or at the end of `timeout_ns`, its last answer.
absl::StatusOr<v1::GetStatusResponse> AwaitReady(const GlobalOptions& options, int64_t timeout_ns) {
  const int64_t end = MonotonicNanos() + timeout_ns;
  std::optional<absl::Status> known;
  for (;;) {
    GlobalOptions attempt = options;
    const int64_t left = end - MonotonicNanos();
    attempt.deadline_ns = std::max(kMilli, std::min(options.deadline_ns, left));
    absl::StatusOr<v1::GetStatusResponse> response = Ask(attempt);
    if (response.ok()) {
      const absl::Status health = Health(response->status());
      if (health.ok()) return response;
      response = health;
    }
    // An attempt that was cut short by the end tells nothing: what was known before stands.
    const bool cut_short =
        left < options.deadline_ns && absl::IsDeadlineExceeded(response.status());
    if (!known.has_value() || !cut_short) known = response.status();
    // A daemon that starts has no socket at first, or no folder: "denied" alone is for good.
    if (ExitCodeOf(*known) == kDenied || MonotonicNanos() + kRetryNs >= end) return *known;
    SleepNanos(kRetryNs);
  }
}

void AddWait(Tree* tree) {
  struct Options {
    bool ready = false;
    int64_t timeout_ns = 10'000'000'000;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* wait = tree->Add(
      &tree->app, "wait", "Wait for the daemon.", [options](Context& context) -> absl::Status {
        const absl::StatusOr<v1::GetStatusResponse> response =
            AwaitReady(context.options(), options->timeout_ns);
        if (!response.ok()) return Annotate(response.status(), "not ready in time");
        if (context.json()) {
          context.PrintJson({{"boot_id", response->boot_id()},
                             {"ready", true},
                             {"draining", response->status().draining()}});
        } else {
          const bool draining = response->status().draining();
          context.out() << (draining ? "ready, but draining: it takes no new sessions\n"
                                     : "ready\n");
        }
        return absl::OkStatus();
      });
  wait->add_flag("--ready", options->ready, "Until it answers and is healthy.")->required();
  AddDurationOption(wait, "--timeout", &options->timeout_ns, "How long at most. Default: 10s.");
}

}  // namespace

void AddStatusCommands(Tree* tree) {
  tree->Add(&tree->app, "status", "The daemon as a whole; exit code 3 if it is not healthy.",
            RunStatus);
  tree->Add(&tree->app, "version", "Versions of this tool and of the daemon.", RunVersion);
  AddWait(tree);
}

}  // namespace spccl::ctl
