// Checks of what reaches other nodes: devices, ports, clocks.
#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ctl/doctor.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr double kNanosPerSecond = 1e9;
constexpr int64_t kNearNs = 1'000'000'000, kFarNs = 60'000'000'000;

// "eth0 up, 10000 Mbit/s, mtu 9000"
std::string InterfaceText(const std::string& folder, const std::string& name) {
  std::string text = absl::StrCat(name, " ", FirstLine(folder + "/operstate"));
  int64_t speed = 0;  // -1, or an error, where it has none
  if (absl::SimpleAtoi(FirstLine(folder + "/speed"), &speed) && speed > 0) {
    absl::StrAppend(&text, ", ", speed, " Mbit/s");
  }
  return absl::StrCat(text, ", mtu ", FirstLine(folder + "/mtu"));
}

struct Devices {
  std::vector<std::string> found;
  std::vector<std::string> inactive;  // InfiniBand's ports
  size_t usable = 0;
};

void AddInterfaces(const Machine& machine, Devices* devices) {
  const std::string all = machine.sys + "/class/net";
  for (const std::string& name : NamesIn(all)) {
    const std::string folder = absl::StrCat(all, "/", name),
                      state = FirstLine(folder + "/operstate");
    if (name == "lo" || state.empty()) continue;  // what is no interface has no state
    // Some drivers never say.
    if (state == "up" || state == "unknown") ++devices->usable;
    devices->found.push_back(InterfaceText(folder, name));
  }
}

void AddInfiniband(const Machine& machine, Devices* devices) {
  const std::string all = machine.sys + "/class/infiniband";
  for (const std::string& name : NamesIn(all)) {
    const std::string ports = absl::StrCat(all, "/", name, "/ports");
    for (const std::string& port : NamesIn(ports)) {
      const std::string state = FirstLine(absl::StrCat(ports, "/", port, "/state"));  // "4: ACTIVE"
      const std::string text = absl::StrCat(name, ":", port, " ", state);
      devices->found.push_back(text);
      if (state.starts_with("4")) {
        ++devices->usable;
      } else {
        devices->inactive.push_back(text);
      }
    }
  }
}

// Of HOST:PORT; nullopt: there is none in it.
std::optional<uint16_t> PortOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port > 65535) {
    return std::nullopt;
  }
  return static_cast<uint16_t>(port);
}

void JudgeListener(const Machine& machine, const TcpListener& found, const Listener& daemon,
                   Check* check) {
  const std::optional<bool> holds = HoldsSocket(machine, daemon.pid, found.inode);
  if (holds.value_or(found.uid == daemon.uid)) {
    check->verdict = Verdict::kOk;
    check->found += holds.has_value() ? ": the daemon listens"
                                      : absl::StrCat(": a process of the daemon's user listens");
    return;
  }
  check->verdict = Verdict::kFailed;
  absl::StrAppend(&check->found, ": another process listens, of uid ", UserText(found.uid));
  check->remedy = "`ss -ltnp` names it; end it, or configure another port; restart spccld";
}

}  // namespace

Check CheckDevices(const Machine& machine, bool wanted) {
  Devices devices;
  AddInterfaces(machine, &devices);
  AddInfiniband(machine, &devices);
  Check check{
      .name = "network devices",
      .verdict = Verdict::kOk,
      .found = devices.found.empty() ? "none but the loopback" : absl::StrJoin(devices.found, "; "),
      .why = "frames reach other nodes through them, those that UCX chooses",
      .remedy = ""};
  if (devices.usable == 0) {
    check.verdict = wanted ? Verdict::kFailed : Verdict::kSkipped;
    if (wanted)
      check.remedy = "bring an interface up: `ip link`; in a container, give it a network";
  } else if (!devices.inactive.empty()) {
    check.verdict = Verdict::kWarning;
    check.remedy = absl::StrCat("not active: ", absl::StrJoin(devices.inactive, ", "),
                                "; look at cable, switch and subnet manager (ibstat)");
  }
  return check;
}

Check CheckUcxChoice(const Machine& machine, std::optional<pid_t> daemon) {
  Check check{.name = "UCX settings",
              .verdict = Verdict::kSkipped,
              .found = "no daemon is seen from here",
              .why = "they come from the daemon's environment, and narrow what UCX may use",
              .remedy = ""};
  if (!daemon.has_value()) return check;
  const auto environment = EnvironmentOf(machine, *daemon);
  if (!environment) {
    check.found = "the daemon's environment cannot be read: run doctor as root or as its user";
    return check;
  }
  std::vector<std::string> settings, missing;
  for (const auto& [name, value] : *environment) {
    if (name.starts_with("UCX_")) settings.push_back(absl::StrCat(name, "=", Printable(value)));
    if (name != "UCX_NET_DEVICES") continue;
    for (absl::string_view device : absl::StrSplit(absl::StripPrefix(value, "^"), ',')) {
      const std::string base(device.substr(0, device.find(':')));
      if (base == "all" || base.empty()) continue;
      if (FactsOf(absl::StrCat(machine.sys, "/class/net/", base)).error != 0 &&
          FactsOf(absl::StrCat(machine.sys, "/class/infiniband/", base)).error != 0) {
        missing.push_back(Printable(base));
      }
    }
  }
  check.found = settings.empty() ? "none: UCX chooses by itself" : absl::StrJoin(settings, " ");
  check.verdict = missing.empty() ? Verdict::kOk : Verdict::kFailed;
  if (!missing.empty()) {
    check.remedy =
        absl::StrCat("UCX_NET_DEVICES names what is not there: ", absl::StrJoin(missing, ", "),
                     "; mend it and restart spccld");
  }
  return check;
}

Check CheckPort(const Machine& machine, const std::string& name, const std::string& address,
                const absl::StatusOr<Listener>& daemon) {
  Check check{.name = name,
              .verdict = Verdict::kSkipped,
              .found = address.empty() ? "not configured" : address,
              .why = "whoever is configured to come there must find the daemon, and nobody else",
              .remedy = ""};
  const std::optional<uint16_t> port = PortOf(address);
  if (address.empty() || !port.has_value()) return check;
  if (*port == 0) {
    check.found += ": any port; the daemon's log says which";
    return check;
  }
  const bool seen = daemon.ok() && daemon->pid != 0;
  const std::vector<TcpListener> all =
      TcpListenersOf(machine, seen ? std::optional<pid_t>(daemon->pid) : std::nullopt);
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const TcpListener& one) { return one.port == *port; });
  if (daemon.ok() && !seen) {
    check.found += ": the daemon is in another process namespace";
  } else if (seen && found != all.end()) {
    JudgeListener(machine, *found, *daemon, &check);
  } else if (seen) {
    check.verdict = Verdict::kFailed;
    check.found += ": nobody listens";
    check.remedy = "restart spccld: its configuration has changed since, or its log says why";
  } else if (found != all.end()) {
    check.verdict = Verdict::kFailed;
    absl::StrAppend(&check.found, ": taken by a process of uid ", UserText(found->uid));
    check.remedy = "`ss -ltnp` names it; end it, or configure another port";
  } else {
    check.verdict = Verdict::kOk;
    check.found += ": free";
  }
  return check;
}

Check CheckMunge(const DaemonConfig& config, const absl::StatusOr<Listener>& listener) {
  Check check{.name = "MUNGE",
              .verdict = Verdict::kSkipped,
              .found = "peers do not prove themselves by it",
              .why = "peers prove by it who they are: without it no job over several nodes starts",
              .remedy = ""};
  if (config.Get("peers.listen").empty() || config.Get("peers.munge") != "true") return check;
  if (listener.ok()) {
    check.verdict = Verdict::kOk;
    check.found = absl::StrCat("uid ", UserText(listener->uid), " listens");
  } else {
    check.verdict = Verdict::kFailed;
    check.found = std::string(listener.status().message());
    check.remedy = "start munged, with the one key of all nodes: systemctl start munge";
  }
  return check;
}

Check CheckClock(const ClockFacts& facts) {
  Check check{.name = "clock",
              .verdict = Verdict::kSkipped,
              .found = absl::StrCat("the kernel does not say (errno ", facts.error, ")"),
              .why =
                  "certificates and MUNGE credentials are good for a time only; logs and traces of "
                  "several nodes are read side by side",
              .remedy = ""};
  if (facts.error != 0) return check;
  check.verdict = facts.synchronised ? Verdict::kOk : Verdict::kWarning;
  check.found = facts.synchronised
                    ? absl::StrCat("synchronised, to within ",
                                   HumanSeconds(static_cast<double>(facts.most_error_us) / 1e6))
                    : "the kernel knows of no synchronisation";
  if (!facts.synchronised) {
    check.remedy = "run chrony, ntpd or systemd-timesyncd (of the host, if this is a container)";
  }
  return check;
}

Check CheckPeerClocks(const std::vector<v1::FlightRecord>& records, int64_t took_ns) {
  int64_t worst = -1;
  std::string of;
  size_t compared = 0;
  for (const v1::FlightRecord& record : records) {
    for (const v1::FlightRecord& peer : record.peers()) {
      if (peer.unix_ns() == 0 || record.unix_ns() == 0) continue;
      ++compared;
      const int64_t apart = std::llabs(peer.unix_ns() - record.unix_ns());
      if (apart <= worst) continue;
      worst = apart;
      of = peer.node();
    }
  }
  Check check{.name = "peers' clocks",
              .verdict = Verdict::kSkipped,
              .found = "no communicator over several nodes is there to compare by",
              .why = "MUNGE refuses credentials of a node whose clock is minutes off",
              .remedy = ""};
  if (compared == 0) return check;
  check.found =
      absl::StrCat("the farthest, of ", Printable(of), ", is ",
                   HumanSeconds(static_cast<double>(worst) / kNanosPerSecond), " off, as far as ",
                   HumanSeconds(static_cast<double>(took_ns) / kNanosPerSecond), " of asking tell");
  const int64_t sure = worst - took_ns;
  check.verdict = sure > kFarNs    ? Verdict::kFailed
                  : sure > kNearNs ? Verdict::kWarning
                                   : Verdict::kOk;
  if (sure > kNearNs) check.remedy = "set the clock there: `timedatectl`, `chronyc tracking`";
  return check;
}

}  // namespace spccl::ctl
