#include "ctl/context.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/parse_number.h"
#include "base/version.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr char kDefaultRuntimeDir[] = "/run/spccl";
constexpr char kRuntimeDirVariable[] = "SPCCL_RUNTIME_DIR";

// A duration option's text, as nanoseconds; the message where it is none, as CLI11 wants it.
std::string ParseDuration(const std::string& text, int64_t* nanos) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration() ||
      duration > absl::Hours(24)) {
    return "found \"" + text +
           "\", expected a duration above 0, up to 24h, with its unit: 500ms, 10s";
  }
  *nanos = absl::ToInt64Nanoseconds(duration);
  return "";
}

void AddGlobalOptions(Tree* tree) {
  const char* from_environment = std::getenv(kRuntimeDirVariable);
  tree->options.runtime_dir = from_environment != nullptr && *from_environment != '\0'
                                  ? from_environment
                                  : kDefaultRuntimeDir;
  CLI::App& app = tree->app;
  app.add_option("--runtime-dir", tree->options.runtime_dir,
                 "Folder of the daemon's sockets. Default: $SPCCL_RUNTIME_DIR, else /run/spccl.")
      ->type_name("DIR")
      ->check([](const std::string& folder) {
        return std::string(folder.empty() ? "found \"\", expected a folder" : "");
      });
  tree->Limit(app.add_option("-o,--output", tree->output, "Form of the output. Default: text."),
              {"text", "json"});
  AddDurationOption(&app, "--deadline", &tree->options.deadline_ns,
                    "Longest wait for the daemon's answer. Default: 5s.");
}

// CLI11 speaks of a missing command also where a word is none.
std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (unknown.empty()) return error.what();
  const char* what = unknown.front()[0] == '-' ? "option" : "command or argument";
  return absl::StrCat("unknown ", what, " \"", Printable(unknown.front()), "\"");
}

void PrintError(const absl::Status& status, Context* context, std::ostream* err) {
  const ExitCode code = ExitCodeOf(status);
  *err << "spcclctl: " << status.message() << "\n";
  if (!context->json() || context->printed_json()) return;
  context->PrintJson({{"error",
                       {{"code", NameOf(code)},
                        {"exit_code", static_cast<int>(code)},
                        {"message", std::string(status.message())}}}});
}

}  // namespace

CLI::Option* AddNumberOption(CLI::App* app, const std::string& name,
                             std::function<void(uint64_t)> take, const std::string& help,
                             uint64_t most) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, most, take = std::move(take)](const std::string& text) {
            uint64_t number = 0;
            if (!absl::SimpleAtoi(text, &number) || number > most) {
              const bool large =
                  !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
              const std::string range =
                  most == UINT64_MAX && !large ? "on" : absl::StrCat("to ", most);
              throw CLI::ValidationError(name, "found \"" + Printable(text) +
                                                   "\", expected a whole number from 0 " + range);
            }
            take(number);
          },
          help)
      ->type_name("NUMBER");
}

CLI::Option* AddBytesOption(CLI::App* app, const std::string& name,
                            std::function<void(uint64_t)> take, const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, take = std::move(take)](const std::string& text) {
            uint64_t bytes = 0;
            if (!ParseBytes(text, 0, &bytes)) {
              throw CLI::ValidationError(name, "found \"" + Printable(text) +
                                                   "\", expected a number of bytes: 65536, 64GiB");
            }
            take(bytes);
          },
          help)
      ->type_name("BYTES");
}

CLI::Option* AddDurationOption(CLI::App* app, const std::string& name, int64_t* nanos,
                               const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [nanos, name](const std::string& text) {
            const std::string wrong = ParseDuration(text, nanos);
            if (!wrong.empty()) throw CLI::ValidationError(name, wrong);
          },
          help)
      ->type_name("DURATION");
}

std::string NameOf(ExitCode code) {
  constexpr const char* kNames[] = {"fine",      "wrong-use", "not-reachable",
                                    "unhealthy", "denied",    "not-found"};
  return kNames[code];
}

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kFine;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kWrongUse;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return kNotReachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kDenied;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    default:
      return kUnhealthy;
  }
}

void AddConfigOption(CLI::App* app, std::string* path) {
  app->add_option("--config", *path,
                  "The daemon's configuration. Default: what its command line says, else "
                  "/etc/spccl/spccld.toml.")
      ->type_name("FILE");
}

void Context::PrintJson(nlohmann::ordered_json members) {
  PrintJsonOfStream(std::move(members));
  printed_json_ = true;
}

void Context::PrintJsonOfStream(nlohmann::ordered_json members) {
  nlohmann::ordered_json object = {{"schema", kSchema}};
  object.update(members);
  // Bytes that are not UTF-8 (of a file's name, say) must not end the tool.
  out() << object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
        << std::endl;
}

CLI::Option* Tree::Limit(CLI::Option* option, std::vector<std::string> values) {
  choices[option] = values;
  return option->check(CLI::IsMember(std::move(values)));
}

CLI::App* Tree::Add(CLI::App* parent, const std::string& name, const std::string& help,
                    Command command) {
  CLI::App* added = parent->add_subcommand(name, help);
  added->footer("-o, --deadline and --runtime-dir go with every command: spcclctl --help");
  added->callback([this, command = std::move(command)] { chosen = command; });
  return added;
}

std::unique_ptr<Tree> BuildTree() {
  auto tree = std::make_unique<Tree>();
  tree->app.fallthrough();  // the global options may stand after a command's name as well
  tree->app.require_subcommand(1);
  tree->app.set_version_flag("--version", absl::StrCat("spcclctl ", kVersion));
  AddGlobalOptions(tree.get());
  AddStatusCommands(tree.get());
  AddListCommands(tree.get());
  AddSettingsCommands(tree.get());
  AddTopCommand(tree.get());
  AddTuneCommands(tree.get());
  AddSteerCommands(tree.get());
  AddJobCommands(tree.get());
  AddFlightCommands(tree.get());
  AddDoctorCommand(tree.get());
  AddBundleCommand(tree.get());
  AddFrameCommands(tree.get());
  AddTlsCommands(tree.get());
  AddCompletionCommand(tree.get());
  return tree;
}

namespace {

int ParseAndRun(int argc, const char* const* argv, std::ostream* out, std::ostream* err) {
  const std::unique_ptr<Tree> tree = BuildTree();
  try {
    tree->app.parse(argc, argv);
  } catch (const CLI::Success& answer) {  // help or version
    return tree->app.exit(answer, *out, *err);
  } catch (const CLI::ParseError& error) {
    *err << "spcclctl: " << WhatIsWrong(tree->app, error)
         << "\nRun `spcclctl --help` for the commands.\n";
    return kWrongUse;
  }
  tree->options.json = tree->output == "json";
  Context context(tree->options, out);
  const absl::Status status = tree->chosen(context);
  if (!status.ok()) PrintError(status, &context, err);
  return ExitCodeOf(status);
}

}  // namespace

int RunTool(int argc, const char* const* argv, std::ostream* out, std::ostream* err) {
  const int code = ParseAndRun(argc, argv, out, err);
  out->flush();
  if (*out) return code;
  *err << "spcclctl: standard output could not be written\n";
  return code == kFine ? kUnhealthy : code;
}

}  // namespace spccl::ctl
