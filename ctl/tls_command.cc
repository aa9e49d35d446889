// tls init: a private CA and node certificates, for those who have none.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "ctl/certificates.h"
#include "ctl/context.h"

namespace spccl::ctl {
namespace {

constexpr int64_t kDay = 24 * 3600;
constexpr int64_t kAuthorityDays = 3650, kNodeDays = 825;
constexpr int64_t kSkewSeconds = 3600;  // clocks of nodes may be behind by this much
constexpr char kInstalledAt[] = "/etc/spccl";

struct TlsOptions {
  std::string folder;
  std::vector<std::string> hosts;  // "NAME,IP,..."
};

struct Node {
  std::vector<std::string> names;
  std::string certificate_path, key_path;
  CertificateAndKey pem;
};

bool Exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

absl::Status WriteNew(const std::string& path, const std::string& content, mode_t mode) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
  for (size_t done = 0; done < content.size();) {
    const ssize_t written = ::write(file.get(), content.data() + done, content.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

// The CA of the folder, made if there is none.
absl::StatusOr<Authority> OpenAuthority(const std::string& folder, int64_t now, bool* made) {
  const std::string certificate = absl::StrCat(folder, "/ca.pem");
  const std::string key = absl::StrCat(folder, "/ca.key");
  *made = !Exists(certificate) && !Exists(key);
  if (*made) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("mkdir ", folder));
    }
    SPCCL_ASSIGN_OR_RETURN(
        Authority authority,
        Authority::Create("spccl private CA",
                          {.from = now - kSkewSeconds, .to = now + kAuthorityDays * kDay}));
    SPCCL_RETURN_IF_ERROR(WriteNew(key, authority.pem().key, 0600));
    SPCCL_RETURN_IF_ERROR(WriteNew(certificate, authority.pem().certificate, 0644));
    return authority;
  }
  CertificateAndKey pem;
  SPCCL_ASSIGN_OR_RETURN(pem.certificate, ReadRegularFile(certificate, kMostPemBytes));
  SPCCL_ASSIGN_OR_RETURN(pem.key, ReadRegularFile(key, kMostPemBytes));
  absl::StatusOr<Authority> authority = Authority::Parse(pem);
  if (!authority.ok()) return Annotate(authority.status(), absl::StrCat(certificate, ", ", key));
  return authority;
}

absl::StatusOr<std::vector<Node>> NodesOf(const TlsOptions& options) {
  std::vector<Node> nodes;
  for (const std::string& host : options.hosts) {
    Node node;
    node.names = absl::StrSplit(host, ',');
    const std::string stem = absl::StrCat(options.folder, "/", node.names.front());
    node.certificate_path = absl::StrCat(stem, ".pem");
    node.key_path = absl::StrCat(stem, ".key");
    bool twice = node.names.front() == "ca";
    for (const Node& other : nodes) twice = twice || other.key_path == node.key_path;
    for (const std::string& path : {node.certificate_path, node.key_path}) {
      if (!twice && !Exists(path)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(path, twice ? ": two files of one name"
                                   : ": exists, and nothing is overwritten; remove it to renew"));
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

void Explain(const TlsOptions& options, const std::vector<Node>& nodes, bool made,
             Context* context) {
  std::ostream& out = context->out();
  out << (made ? "Made a private CA: " : "Used the CA there: ") << options.folder << "/ca.pem\n";
  for (const Node& node : nodes) {
    const std::string& name = node.names.front();
    out << "\n"
        << name << ": copy " << options.folder << "/ca.pem, " << node.certificate_path << " and "
        << node.key_path << " to " << kInstalledAt
        << " there, the key as spccld's user's; configure\n"
        << "  [peers]\n"
        << "  listen = \"0.0.0.0:7440\"\n"
        << "  advertise = \"" << name << "\"\n"
        << "  tls_ca = \"" << kInstalledAt << "/ca.pem\"\n"
        << "  tls_cert = \"" << kInstalledAt << "/" << name << ".pem\"\n"
        << "  tls_key = \"" << kInstalledAt << "/" << name << ".key\"\n";
  }
  out << "\nKeep " << options.folder << "/ca.key to yourself: whoever has it may make nodes. It is "
      << "needed only to add or renew\nnodes. Node certificates are good for " << kNodeDays
      << " days.\n";
}

absl::Status Init(Context& context, const TlsOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(std::vector<Node> nodes, NodesOf(options));
  const int64_t now = ::time(nullptr);
  // All names are looked at before anything is written.
  SPCCL_ASSIGN_OR_RETURN(const Authority trial, Authority::Create("trial", {now, now + kDay}));
  for (const Node& node : nodes) {
    SPCCL_RETURN_IF_ERROR(trial.Issue(node.names, {now, now + kDay}).status());
  }
  bool made = false;
  SPCCL_ASSIGN_OR_RETURN(const Authority authority, OpenAuthority(options.folder, now, &made));
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (Node& node : nodes) {
    SPCCL_ASSIGN_OR_RETURN(node.pem, authority.Issue(node.names, {.from = now - kSkewSeconds,
                                                                  .to = now + kNodeDays * kDay}));
    SPCCL_RETURN_IF_ERROR(WriteNew(node.key_path, node.pem.key, 0600));
    SPCCL_RETURN_IF_ERROR(WriteNew(node.certificate_path, node.pem.certificate, 0644));
    hosts.push_back(
        {{"names", node.names}, {"cert", node.certificate_path}, {"key", node.key_path}});
  }
  if (context.json()) {
    context.PrintJson(
        {{"ca", absl::StrCat(options.folder, "/ca.pem")}, {"made_ca", made}, {"hosts", hosts}});
  } else {
    Explain(options, nodes, made, &context);
  }
  return absl::OkStatus();
}

}  // namespace

void AddTlsCommands(Tree* tree) {
  CLI::App* tls = tree->app.add_subcommand("tls", "Certificates for peers; needs no daemon.");
  tls->require_subcommand(1);
  const auto options = std::make_shared<TlsOptions>();
  CLI::App* init =
      tree->Add(tls, "init", "Make a private CA, or use the one there, and a certificate a node.",
                [options](Context& context) { return Init(context, *options); });
  init->add_option("--dir", options->folder, "Folder of the CA and of what is made.")
      ->required()
      ->type_name("DIR");
  init->add_option("--host", options->hosts,
                   "A node: its name, and what else others reach it by. Once for each node.")
      ->required()
      ->type_name("NAME[,NAME|IP...]")
      ->take_all();
}

}  // namespace spccl::ctl
