// Checks of the GPUs, where there are any.
#include <sys/stat.h>

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

Check CheckMps(const Machine& machine) {
  // The control daemon's usual pipe.
  const bool runs = FactsOf(machine.tmp + "/nvidia-mps/control").error == 0;
  return {.name = "MPS",
          .verdict = Verdict::kOk,
          .found = runs ? "its control daemon's pipe is there" : "does not run in its usual place",
          .why = "processes that share a card through it share its faults, too",
          .remedy = ""};
}

}  // namespace

std::vector<Check> CheckGpu(const Machine& machine, const GpuFacts& facts) {
  const std::string version = FirstLine(machine.proc + "/driver/nvidia/version");
  Check driver{
      .name = "GPU driver",
      .verdict = version.empty() ? Verdict::kSkipped : Verdict::kOk,
      .found = version.empty() ? "no GPU (no NVIDIA driver is loaded)" : Printable(version),
      .why = "buffers in a GPU's memory need it; those in host memory do not",
      .remedy = ""};
  if (version.empty()) return {driver};
  return {driver,
          CheckDeviceNodes(machine),
          Library("libcuda", facts.cuda, "programs reach the driver through it",
                  "the driver's user-space libraries (libcuda1)"),
          Library("libnccl", facts.nccl, "GPUs of several nodes exchange frames by it", "libnccl2"),
          CheckMig(machine),
          CheckMps(machine)};
}

}  // namespace spccl::ctl
