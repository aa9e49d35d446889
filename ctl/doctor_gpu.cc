// Checks of the GPUs, where there are any.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/doctor.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

Check Library(const std::string& name, bool loads, const std::string& why,
              const std::string& package) {
  return {
      .name = name,
      .verdict = loads ? Verdict::kOk : Verdict::kWarning,
      .found = loads ? "loads" : "does not load",
      .why = why,
      .remedy = loads ? "" : absl::StrCat("install ", package, ", or put it on the library path")};
}

// What the daemon says goes before what can be loaded here: it may have been told of another.
Check CheckNccl(const GpuFacts& facts, const v1::Gpus* daemon) {
  Check check =
      Library("libnccl", facts.nccl, "GPUs of several nodes exchange frames by it", "libnccl2");
  if (daemon == nullptr) return check;
  if (daemon->nccl().empty()) {
    check.verdict = Verdict::kOk;
    check.remedy.clear();
    absl::StrAppend(&check.found, "; spccld talks to no other nodes");
    return check;
  }
  const bool is_fine = daemon->has_nccl() || absl::StartsWith(daemon->nccl(), "not used");
  check.verdict = is_fine ? Verdict::kOk : Verdict::kWarning;
  check.found = Printable(daemon->nccl());
  check.remedy =
      is_fine ? "" : "install libnccl2, 2.18 or later, or name it: gpu.nccl; restart spccld";
  return check;
}

// Instances that the cards are cut into: capabilities/gpu0/mig/gi1.
Check CheckMig(const Machine& machine) {
  const std::string all = machine.proc + "/driver/nvidia/capabilities";
  std::vector<std::string> cut;
  for (const std::string& card : NamesIn(all)) {
    if (!card.starts_with("gpu")) continue;
    size_t instances = 0;
    for (const std::string& name : NamesIn(absl::StrCat(all, "/", card, "/mig"))) {
      if (name.starts_with("gi")) ++instances;
    }
    if (instances > 0) cut.push_back(absl::StrCat(card, " into ", instances));
  }
  return {
      .name = "MIG",
      .verdict = Verdict::kOk,
      .found = cut.empty() ? "no card is cut into instances"
                           : absl::StrCat("cut: ", absl::StrJoin(cut, ", ")),
      .why =
          "instances of one card do not reach each other's memory: their frames go over the host",
      .remedy = ""};
}

Check CheckDeviceNodes(const Machine& machine) {
  std::vector<std::string> cards, closed;
  for (const std::string& name : NamesIn(machine.dev)) {
    if (!name.starts_with("nvidia") || name.size() == 6 || name[6] < '0' || name[6] > '9') continue;
    cards.push_back(name);
    if (!FactsOf(absl::StrCat(machine.dev, "/", name)).may_write) closed.push_back(name);
  }
  Check check{.name = "GPU devices",
              .verdict = Verdict::kOk,
              .found = absl::StrJoin(cards, ", "),
              .why = "the driver is reached through them, by jobs and by the daemon",
              .remedy = ""};
  if (cards.empty()) {
    check.verdict = Verdict::kWarning;
    check.found = absl::StrCat("the driver is loaded, but ", machine.dev, " has no nvidia0");
    check.remedy = "nvidia-modprobe, or in a container: give it the devices (docker: --gpus)";
  } else if (!closed.empty()) {
    check.verdict = Verdict::kWarning;
    absl::StrAppend(&check.found, "; we may not use ", absl::StrJoin(closed, ", "));
    check.remedy = "look at their modes, and at the drop-in gpu.conf of spccld's unit";
  }
  return check;
}

Check CheckMps(const Machine& machine, const v1::Gpus* daemon) {
  // The control daemon's usual pipe.
  const bool runs = FactsOf(machine.tmp + "/nvidia-mps/control").error == 0;
  Check check{
      .name = "MPS",
      .verdict = Verdict::kOk,
      .found = runs ? "its control daemon's pipe is there" : "does not run in its usual place",
      .why =
          "without it one process at a time runs on a card: spccld's kernels then wait for "
          "the programs'; with it they share a card's faults, too",
      .remedy = ""};
  if (daemon == nullptr || daemon->gpus().empty()) return check;
  const auto shared = std::count_if(daemon->gpus().begin(), daemon->gpus().end(),
                                    [](const v1::Gpu& gpu) { return gpu.mps(); });
  absl::StrAppend(&check.found, "; spccld reaches ", shared, " of ", daemon->gpus_size(),
                  " GPUs through it");
  if (runs && shared == 0) {
    check.verdict = Verdict::kWarning;
    check.remedy =
        "start spccld after MPS, as the user that its server serves, with the same "
        "CUDA_MPS_PIPE_DIRECTORY as the jobs";
  }
  return check;
}

// Numbers of the GPUs that `lacks` says so of: "0, 3".
template <typename Lacks>
std::string Lacking(const v1::Gpus& daemon, Lacks lacks) {
  std::vector<int> numbers;
  for (int i = 0; i < daemon.gpus_size(); ++i) {
    if (lacks(daemon.gpus(i))) numbers.push_back(i);
  }
  return absl::StrJoin(numbers, ", ");
}

// What to do so that a daemon that uses none does.
std::string AdviceOf(const v1::Gpus& daemon) {
  if (!daemon.advice().empty()) return Printable(daemon.advice());
  return "look at gpu.enabled, gpu.driver and gpu.kernels of its configuration, install the "
         "package spccl-device, and restart it";
}

Check CheckUse(const v1::Gpus& daemon) {
  const bool used = daemon.unused().empty() && !daemon.gpus().empty();
  const bool fine = used || daemon.use() == v1::GPU_USE_OFF;  // as somebody wants it
  Check check{
      .name = "GPUs of spccld",
      .verdict = fine ? Verdict::kOk : Verdict::kWarning,
      .found = used ? absl::StrCat(daemon.gpus_size(), " used, driver ", Printable(daemon.driver()))
                    : absl::StrCat("none: ", Printable(daemon.unused())),
      .why = "what spccld does not use is copied through the host by the programs",
      .remedy = fine ? "" : AdviceOf(daemon)};
  if (!daemon.refused().empty()) {
    check.verdict = Verdict::kWarning;
    for (const std::string& refused : daemon.refused()) {
      absl::StrAppend(&check.found, "; not used: the driver's ", Printable(refused));
    }
    check.remedy =
        "jobs that span used and unused GPUs of a node fail: free it, or look at dmesg for Xid "
        "errors, then restart spccld";
  }
  const std::string broken =
      Lacking(daemon, [](const v1::Gpu& gpu) { return !gpu.failure().empty(); });
  if (broken.empty()) return check;
  check.verdict = Verdict::kFailed;
  absl::StrAppend(&check.found, "; of no use any more: ", broken);
  for (const v1::Gpu& gpu : daemon.gpus()) {
    if (gpu.failure().empty()) continue;
    absl::StrAppend(&check.found, " (", Printable(gpu.failure()), ")");
    break;
  }
  check.remedy = "look at dmesg for Xid errors, then restart spccld";
  return check;
}

Check CheckOrder(const v1::Gpus& daemon) {
  const std::string lacking =
      Lacking(daemon, [](const v1::Gpu& gpu) { return !gpu.stream_operations(); });
  return {.name = "GPU stream operations",
          .verdict = lacking.empty() ? Verdict::kOk : Verdict::kFailed,
          .found = lacking.empty() ? "streams write and wait for words"
                                   : absl::StrCat("do not work on GPU ", lacking),
          .why = "programs' streams and spccld's wait for each other by them",
          .remedy = lacking.empty()
                        ? ""
                        : "a virtual GPU may not have them, nor one whose driver is set "
                          "so; set gpu.enabled = \"off\" there"};
}

Check CheckHandOver(const v1::Gpus& daemon) {
  const std::string no_ipc = Lacking(daemon, [](const v1::Gpu& gpu) { return !gpu.legacy_ipc(); });
  const std::string no_fds = Lacking(daemon, [](const v1::Gpu& gpu) { return !gpu.descriptors(); });
  Check check{.name = "GPU hand-over",
              .verdict = no_ipc.empty() && no_fds.empty() ? Verdict::kOk : Verdict::kWarning,
              .found = "by legacy handle and by descriptor",
              .why = "memory that programs cannot hand over is copied through the host",
              .remedy = ""};
  if (check.verdict == Verdict::kOk) return check;
  check.found =
      absl::StrCat(no_ipc.empty() ? "" : absl::StrCat("no legacy handles on GPU ", no_ipc),
                   no_ipc.empty() || no_fds.empty() ? "" : "; ",
                   no_fds.empty() ? "" : absl::StrCat("no descriptors on GPU ", no_fds));
  check.remedy =
      "see that spccld and the jobs share the host's IPC namespace and /dev/shm; vGPUs "
      "and WSL have none: SPCCL_FORCE_STAGING=1 saves the attempts";
  return check;
}

Check CheckPeerAccess(const v1::Gpus& daemon) {
  std::vector<std::string> apart;
  for (int i = 0; i < daemon.gpus_size(); ++i) {
    const auto& reaches = daemon.gpus(i).reaches();
    for (int other = i + 1; other < daemon.gpus_size(); ++other) {
      if (std::find(reaches.begin(), reaches.end(), static_cast<uint32_t>(other)) ==
          reaches.end()) {
        apart.push_back(absl::StrCat(i, " and ", other));
      }
    }
  }
  constexpr size_t kNamed = 4;
  const size_t more = apart.size() > kNamed ? apart.size() - kNamed : 0;
  if (more > 0) apart.resize(kNamed);
  return {
      .name = "GPU peer access",
      .verdict = apart.empty() ? Verdict::kOk : Verdict::kWarning,
      .found = apart.empty() ? "every GPU reaches every other's memory"
                             : absl::StrCat("not between ", absl::StrJoin(apart, ", "),
                                            more > 0 ? absl::StrCat(" and ", more, " more") : ""),
      .why = "what GPUs do not reach of each other goes over the host",
      .remedy = apart.empty() ? ""
                              : "nvidia-smi topo -p2p r says why; ACS in the PCIe switches and MIG "
                                "forbid it"};
}

}  // namespace

std::vector<Check> CheckGpu(const Machine& machine, const GpuFacts& facts, const v1::Gpus* daemon) {
  const std::string version = FirstLine(machine.proc + "/driver/nvidia/version");
  // A driver in another place than the machine's is as good, and the daemon has looked.
  const bool used = daemon != nullptr && !daemon->gpus().empty();
  const bool met = used || (daemon != nullptr && daemon->use() == v1::GPU_USE_UNUSABLE);
  Check driver{.name = "GPU driver",
               .verdict = version.empty() && !used ? Verdict::kSkipped : Verdict::kOk,
               .found = !version.empty() ? Printable(version)
                        : used           ? absl::StrCat("spccld's is ", Printable(daemon->driver()))
                        : met            ? "not seen from here: see \"GPUs of spccld\""
                                         : "no GPU (no NVIDIA driver is loaded)",
               .why = "buffers in a GPU's memory need it; those in host memory do not",
               .remedy = ""};
  std::vector<Check> checks = {driver};
  if (!version.empty()) {
    for (Check& check :
         std::vector<Check>{CheckDeviceNodes(machine),
                            Library("libcuda", facts.cuda, "programs reach the driver through it",
                                    "the driver's user-space libraries (libcuda1)"),
                            CheckMig(machine), CheckMps(machine, daemon)}) {
      checks.push_back(std::move(check));
    }
  }
  if (!version.empty() || used) checks.push_back(CheckNccl(facts, used ? daemon : nullptr));
  if (daemon == nullptr || (version.empty() && !met)) return checks;
  checks.push_back(CheckUse(*daemon));
  if (!used) return checks;
  checks.push_back(CheckOrder(*daemon));
  checks.push_back(CheckHandOver(*daemon));
  checks.push_back(CheckPeerAccess(*daemon));
  return checks;
}

}  // namespace spccl::ctl
