// support-bundle.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/version.h"
#include "ctl/bundle.h"
#include "ctl/bundle_parts.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/doctor.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

struct BundleOptions {
  std::string file, config_path;
};

// "spccl-support-node1-20260101T100000Z"
std::string BundleName() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return absl::StrCat("spccl-support-", host.data(), "-",
                      absl::FormatTime("%Y%m%dT%H%M%SZ", absl::FromUnixSeconds(::time(nullptr)),
                                       absl::UTCTimeZone()));
}

Bundle Gather(const GlobalOptions& options, const std::string& name,
              const std::string& config_path) {
  const Machine machine;
  Bundle bundle(name);
  bundle.Add("version.txt", absl::StrCat("spcclctl ", kVersion, "\n"));
  nlohmann::ordered_json doctor = {{"schema", kSchema}};
  doctor.update(DoctorJson(RunChecks(options, machine, config_path)));
  bundle.Add("doctor.json",
             doctor.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  const absl::StatusOr<Listener> daemon =
      ListenerOf(ControlSocketPath(options.runtime_dir), SOCK_STREAM);
  std::optional<pid_t> pid;
  if (daemon.ok() && daemon->pid != 0) pid = daemon->pid;
  AddAnswers(options, &bundle);
  AddDaemonFiles(options, machine, pid, ReadDaemonConfig(machine, pid, config_path), &bundle);
  AddMachineFiles(machine, &bundle);
  return bundle;
}

void PrintBundle(const Bundle& bundle, const std::string& file, uint64_t bytes, std::ostream* out) {
  Table table({"PART", "#BYTES", "NOTE"});
  for (const Bundle::Item& item : bundle.items()) {
    const bool cut = item.error.empty() && item.total_bytes > item.content.size();
    table.Add({item.name, item.error.empty() ? absl::StrCat(item.content.size()) : "-",
               cut ? absl::StrCat("of ", item.total_bytes) : Printable(item.error)});
  }
  table.Print(out);
  *out << "\n"
       << file << ", " << HumanBytes(static_cast<double>(bytes))
       << ", readable by its owner only. Look through it before it leaves your site: it names "
          "hosts, users and jobs; private keys are left out.\n";
}

absl::Status RunSupportBundle(Context& context, const BundleOptions& options) {
  const std::string name = BundleName();
  const std::string file = options.file.empty() ? name + ".tar.gz" : options.file;
  const Bundle bundle = Gather(context.options(), name, options.config_path);
  SPCCL_ASSIGN_OR_RETURN(const uint64_t bytes, bundle.Write(file));
  if (context.json()) {
    nlohmann::ordered_json members = {{"file", file}, {"bytes", bytes}};
    members.update(bundle.Index());
    context.PrintJson(std::move(members));
  } else {
    PrintBundle(bundle, file, bytes, &context.out());
  }
  return absl::OkStatus();
}

}  // namespace

void AddBundleCommand(Tree* tree) {
  const auto options = std::make_shared<BundleOptions>();
  CLI::App* bundle =
      tree->Add(&tree->app, "support-bundle",
                "One archive of what a maintainer asks for first; works without a daemon, too.",
                [options](Context& context) { return RunSupportBundle(context, *options); });
  bundle
      ->add_option("--out", options->file,
                   "The archive. Default: spccl-support-HOST-TIME.tar.gz, here.")
      ->type_name("FILE");
  AddConfigOption(bundle, &options->config_path);
}

}  // namespace spccl::ctl
