// What every command of spcclctl has in common: the global options, where output goes, how it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace spccl::ctl {

inline constexpr char kSchema[] = "spccl.v1";  // of all JSON output

enum ExitCode : int {
  kFine = 0,
  kWrongUse = 1,
  kNotReachable = 2,
  kUnhealthy = 3,  // the daemon; for doctor, the machine; for frame validate, the frame
  kDenied = 4,
  kNotFound = 5,
};
// "wrong-use", "not-reachable", ...
std::string NameOf(ExitCode code);
ExitCode ExitCodeOf(const absl::Status& status);

struct GlobalOptions {
  std::string runtime_dir;
  bool json = false;
  int64_t deadline_ns = 5'000'000'000;  // of every call
};

// One run of the tool.
class Context {
 public:
  Context(GlobalOptions options, std::ostream* out) : options_(std::move(options)), out_(out) {}

  const GlobalOptions& options() const { return options_; }
  bool json() const { return options_.json; }
  std::ostream& out() { return *out_; }
  // Writes one JSON object, with the schema before its members, on one line.
  void PrintJson(nlohmann::ordered_json members);
  // One of a stream of them, which an error may end.
  void PrintJsonOfStream(nlohmann::ordered_json members);
  bool printed_json() const { return printed_json_; }

 private:
  const GlobalOptions options_;
  std::ostream* const out_;
  bool printed_json_ = false;
};

// Does the work and prints; the status decides the exit code.
using Command = std::function<absl::Status(Context&)>;

// The tree of commands, while it is built and parsed.
struct Tree {
  CLI::App app{"Shows and steers the spccl daemon of this node.", "spcclctl"};
  GlobalOptions options;
  std::string output = "text";
  Command chosen;  // by the parsed command line
  // Values that options and positionals take, where there is a list: for completion.
  std::map<const CLI::Option*, std::vector<std::string>> choices;

  // Lets the option take only these values.
  CLI::Option* Limit(CLI::Option* option, std::vector<std::string> values);
  // A subcommand that runs `command` when it is named.
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& help,
                Command command);
};

// An option or positional that takes a whole number from 0 to `most`.
CLI::Option* AddNumberOption(CLI::App* app, const std::string& name,
                             std::function<void(uint64_t)> take, const std::string& help,
                             uint64_t most = UINT64_MAX);

// An option that takes a number of bytes, with a unit if wanted, as the configuration does.
CLI::Option* AddBytesOption(CLI::App* app, const std::string& name,
                            std::function<void(uint64_t)> take, const std::string& help);

// An option that takes a positive duration with its unit, of at most 24 hours.
CLI::Option* AddDurationOption(CLI::App* app, const std::string& name, int64_t* nanos,
                               const std::string& help);

// --config: which file is the daemon's configuration. `path` must outlive the parsing.
void AddConfigOption(CLI::App* app, std::string* path);

// Each adds a family of commands.
void AddStatusCommands(Tree* tree);    // status, version, wait
void AddListCommands(Tree* tree);      // jobs, comms, buffers
void AddSettingsCommands(Tree* tree);  // threshold, algo, codec
void AddTopCommand(Tree* tree);
void AddTuneCommands(Tree* tree);    // tune load, show, unload
void AddSteerCommands(Tree* tree);   // events, drain, abort
void AddJobCommands(Tree* tree);     // job
void AddFlightCommands(Tree* tree);  // trace, explain
void AddDoctorCommand(Tree* tree);
void AddBundleCommand(Tree* tree);  // support-bundle
void AddFrameCommands(Tree* tree);
void AddTlsCommands(Tree* tree);
void AddCompletionCommand(Tree* tree);

// The whole tree, not yet parsed.
std::unique_ptr<Tree> BuildTree();

// The tool, but for main(): parses, runs, prints, and returns the exit code.
int RunTool(int argc, const char* const* argv, std::ostream* out, std::ostream* err);

}  // namespace spccl::ctl
