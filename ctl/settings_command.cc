// threshold get|set|reset, algo get|set|reset, codec get|set|reset.
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/jobs.h"
#include "ctl/render.h"
#include "ctl/settings_view.h"

namespace spccl::ctl {
namespace {

struct ScopeOptions {
  std::string job;
  std::optional<uint64_t> comm;

  v1::Scope Message() const {
    v1::Scope scope;
    if (comm.has_value()) {
      scope.set_comm_id(*comm);
    } else if (!job.empty()) {
      scope.set_job_id(job);
    } else {
      scope.mutable_global();
    }
    return scope;
  }
  std::string Name() const {
    if (comm.has_value()) return absl::StrCat("communicator ", *comm);
    return job.empty() ? "global" : absl::StrCat("job ", Printable(job));
  }
};

void AddScopeOptions(CLI::App* command, ScopeOptions* scope) {
  // An empty value, of a shell's unset variable say, must not mean all jobs.
  const auto not_empty = [](const std::string& value) {
    return value.empty() ? std::string("the value is empty") : "";
  };
  CLI::Option* job = command->add_option("--job", scope->job, "Of this job. Default: of all.")
                         ->type_name("JOB")
                         ->check(not_empty);
  AddNumberOption(
      command, "--comm", [scope](uint64_t comm) { scope->comm = comm; }, "Of this communicator.")
      ->type_name("COMM")
      ->excludes(job);
}

// On the wire, of a threshold: see control.proto.
constexpr double kAuto = -1;

absl::Status Get(Context& context, const ScopeOptions& scope, bool thresholds) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::GetSettingsRequest request;
  *request.mutable_scope() = scope.Message();
  SPCCL_ASSIGN_OR_RETURN(const v1::GetSettingsResponse response,
                         client->Call(&v1::Control::Stub::GetSettings, request));
  if (context.json()) {
    context.PrintJson(ToJson(response));
  } else {
    context.out() << scope.Name()
                  << (thresholds ? ": a send is dense at or below these sparsities (auto: where "
                                   "that arrives first)\n"
                                 : "\n");
    (thresholds ? PrintThresholds : PrintAlgorithm)(response, &context.out());
    if (scope.comm.has_value() || scope.job.empty()) return absl::OkStatus();
    SPCCL_ASSIGN_OR_RETURN(const bool known, HasJob(*client, scope.job));
    if (!known) context.out() << "(there is no such job now: this is what it would have)\n";
  }
  return absl::OkStatus();
}

// Whether a change is of what the daemon of rank 0 decides for all nodes.
bool IsForAllNodes(const v1::SetSettingsRequest& request) {
  return request.settings().algorithm() != v1::ALGORITHM_UNSPECIFIED ||
         request.settings().has_slice_bytes();
}
bool IsForAllNodes(const v1::ResetSettingsRequest& request) {
  return request.part() == v1::SETTINGS_PART_ALL || request.part() == v1::SETTINGS_PART_ALGORITHM;
}

template <typename Request, typename Response>
void Report(const Request& request, const Response& response, const ScopeOptions& scope, bool keeps,
            Context* context) {
  if (context->json()) {
    context->PrintJson(ToJson(response));
    return;
  }
  context->out() << scope.Name() << ": in force from the next operation on, for "
                 << Counted(response.communicators(), "communicator") << " now\n";
  if (!scope.job.empty() && response.communicators() == 0) {
    context->out() << "(no such job has a communicator now"
                   << (keeps ? ": kept for when one has)\n" : ")\n");
  }
  if (IsForAllNodes(request) && response.led_elsewhere() > 0) {
    context->out() << "(but for " << response.led_elsewhere()
                   << " whose rank 0 is on another node: their algorithm and slices are what that "
                      "node's daemon says)\n";
  }
  if (response.environment_decides() > 0) {
    context->out() << "(but for " << response.environment_decides()
                   << " whose ranks' environment says it, by SPCCL_ALGO or SPCCL_CODEC: `--comm` "
                      "alone goes over that)\n";
  }
  if (response.narrower_decides() > 0) {
    context->out() << "(but for " << response.narrower_decides() << " with settings of "
                   << (scope.job.empty() ? "their own or of their job" : "their own")
                   << " for some of it: `get --comm` shows who says what)\n";
  }
}

absl::Status Set(Context& context, const ScopeOptions& scope, const v1::Settings& settings) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::SetSettingsRequest request;
  *request.mutable_scope() = scope.Message();
  *request.mutable_settings() = settings;
  SPCCL_ASSIGN_OR_RETURN(const v1::SetSettingsResponse response,
                         client->Call(&v1::Control::Stub::SetSettings, request));
  Report(request, response, scope, /*keeps=*/true, &context);
  return absl::OkStatus();
}

void AddReset(Tree* tree, CLI::App* parent, const std::string& help, v1::SettingsPart part) {
  const auto scope = std::make_shared<ScopeOptions>();
  AddScopeOptions(tree->Add(parent, "reset", help,
                            [scope, part](Context& context) -> absl::Status {
                              SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                                                     Client::Connect(context.options()));
                              v1::ResetSettingsRequest request;
                              *request.mutable_scope() = scope->Message();
                              request.set_part(part);
                              SPCCL_ASSIGN_OR_RETURN(
                                  const v1::ResetSettingsResponse response,
                                  client->Call(&v1::Control::Stub::ResetSettings, request));
                              Report(request, response, *scope, /*keeps=*/false, &context);
                              return absl::OkStatus();
                            }),
                  scope.get());
}

void AddGet(Tree* tree, CLI::App* parent, const std::string& help, bool thresholds) {
  const auto scope = std::make_shared<ScopeOptions>();
  AddScopeOptions(
      tree->Add(parent, "get", help,
                [scope, thresholds](Context& context) { return Get(context, *scope, thresholds); }),
      scope.get());
}

struct ThresholdOptions {
  ScopeOptions scope;
  std::string codec;  // empty: pici, and both where all are set
  std::string all;    // thresholds: "auto", "paper"; else empty
  std::optional<double> intra, inter, ag;
};

void FillAll(double intra, double inter, double ag, v1::Thresholds* thresholds) {
  thresholds->set_intra(intra);
  thresholds->set_inter(inter);
  thresholds->set_ag(ag);
}

v1::Settings AllThresholds(const std::string& which, const std::string& codec) {
  const bool is_auto = which == "auto";
  v1::Settings settings;
  // The numbers: SpCCL, section IV.
  if (codec != "coo") {
    is_auto ? FillAll(kAuto, kAuto, kAuto, settings.mutable_pici())
            : FillAll(0.6, 0.5, 0.1, settings.mutable_pici());
  }
  if (codec != "pici") {
    is_auto ? FillAll(kAuto, kAuto, kAuto, settings.mutable_coo())
            : FillAll(0.7, 0.6, 0.5, settings.mutable_coo());
  }
  return settings;
}

absl::Status SetThresholds(Context& context, const ThresholdOptions& options) {
  const bool some =
      options.intra.has_value() || options.inter.has_value() || options.ag.has_value();
  if (!options.all.empty()) {
    if (some) return absl::InvalidArgumentError("auto and paper are for all thresholds at once");
    return Set(context, options.scope, AllThresholds(options.all, options.codec));
  }
  v1::Settings settings;
  v1::Thresholds* thresholds =
      options.codec == "coo" ? settings.mutable_coo() : settings.mutable_pici();
  if (options.intra.has_value()) thresholds->set_intra(*options.intra);
  if (options.inter.has_value()) thresholds->set_inter(*options.inter);
  if (options.ag.has_value()) thresholds->set_ag(*options.ag);
  if (!some) {
    return absl::InvalidArgumentError(
        "nothing to set: name --intra, --inter or --ag, or auto or paper for all");
  }
  return Set(context, options.scope, settings);
}

// A sparsity, or auto; CLI11's own range check would let a NaN pass.
void AddThresholdOption(CLI::App* command, const std::string& name, std::optional<double>* value,
                        const std::string& help) {
  command
      ->add_option_function<std::string>(
          name,
          [name, value](const std::string& text) {
            double parsed = kAuto;
            if (text != "auto" &&
                (!absl::SimpleAtod(text, &parsed) || !(parsed >= 0 && parsed <= 1))) {
              throw CLI::ValidationError(
                  name, "found \"" + text + "\", expected a sparsity from 0 to 1, or auto");
            }
            *value = parsed;
          },
          help)
      ->type_name("SPARSITY");
}

void AddThreshold(Tree* tree) {
  CLI::App* parent = tree->app.add_subcommand("threshold", "When sends are sparse.");
  parent->require_subcommand(1);
  AddGet(tree, parent, "Show the thresholds.", true);
  const auto options = std::make_shared<ThresholdOptions>();
  CLI::App* set =
      tree->Add(parent, "set", "Change thresholds, while jobs run.",
                [options](Context& context) { return SetThresholds(context, *options); });
  tree->Limit(set->add_option("ALL", options->all,
                              "auto: what arrives first, by measurement; paper: SpCCL's numbers."),
              {"auto", "paper"});
  tree->Limit(set->add_option("--codec", options->codec,
                              "Whose thresholds. Default: pici; of auto and paper, both."),
              {"pici", "coo"});
  AddThresholdOption(set, "--intra", &options->intra, "For sends between ranks of one node.");
  AddThresholdOption(set, "--inter", &options->inter, "For sends between nodes.");
  AddThresholdOption(set, "--ag", &options->ag, "For the all-gather half of an all-reduce.");
  AddScopeOptions(set, &options->scope);
  AddReset(tree, parent, "Forget the scope's own thresholds.", v1::SETTINGS_PART_THRESHOLDS);
}

struct AlgoOptions {
  ScopeOptions scope;
  std::string algorithm, codec;
  std::optional<uint64_t> slice_bytes;
};

absl::Status SetAlgorithm(Context& context, const AlgoOptions& options) {
  v1::Settings settings;
  for (int code = v1::ALGORITHM_AUTO; code <= v1::Algorithm_MAX; ++code) {
    if (NameOf(static_cast<v1::Algorithm>(code)) == options.algorithm) {
      settings.set_algorithm(static_cast<v1::Algorithm>(code));
    }
  }
  for (int code = v1::CODEC_AUTO; code <= v1::Codec_MAX; ++code) {
    if (NameOf(static_cast<v1::Codec>(code)) == options.codec) {
      settings.set_codec(static_cast<v1::Codec>(code));
      settings.set_lossy("off");  // as `codec set` has it: these are exact
    }
  }
  if (options.slice_bytes.has_value()) settings.set_slice_bytes(*options.slice_bytes);
  return Set(context, options.scope, settings);
}

void AddAlgo(Tree* tree) {
  CLI::App* parent = tree->app.add_subcommand("algo", "How operations run.");
  parent->require_subcommand(1);
  AddGet(tree, parent, "Show the algorithm, the slice size and the codec.", false);
  const auto options = std::make_shared<AlgoOptions>();
  CLI::App* set =
      tree->Add(parent, "set", "Change the algorithm, while jobs run.",
                [options](Context& context) { return SetAlgorithm(context, *options); });
  tree->Limit(set->add_option("ALGORITHM", options->algorithm, "auto, or one by name.")->required(),
              {"auto", "local", "ring", "two-level-ring", "recursive-doubling", "halving-doubling",
               "split", "direct", "tree"});
  tree->Limit(set->add_option("--codec", options->codec,
                              "Format of sparse sends, too; turns lossy sends off in the scope."),
              {"auto", "dense", "pici", "pici-column", "coo", "gap"});
  AddNumberOption(
      set, "--slice-bytes", [options](uint64_t bytes) { options->slice_bytes = bytes; },
      "Of the slices that are sent between nodes, too; 0: by the density.")
      ->type_name("BYTES");
  AddScopeOptions(set, &options->scope);
  AddReset(tree, parent,
           "Forget the scope's own algorithm, slice size and codec, and with it whether sends are "
           "lossy.",
           v1::SETTINGS_PART_ALGORITHM);
}

struct CodecOptions {
  ScopeOptions scope;
  std::string codec;
  std::optional<std::string> absolute, relative, seed;
};

// The text of policy/lossy.h; the daemon says what is wrong with a number.
absl::StatusOr<std::string> LossyText(const CodecOptions& options) {
  const bool bounded = options.codec == "errorbound";
  if (bounded != (options.absolute.has_value() || options.relative.has_value())) {
    return absl::InvalidArgumentError(
        bounded ? "errorbound needs a bound: name --absolute or --relative"
                : "--absolute and --relative are for errorbound");
  }
  if (bounded) {
    return absl::StrCat("errorbound:", options.absolute.has_value() ? "absolute=" : "relative=",
                        options.absolute.value_or(options.relative.value_or("")));
  }
  return options.seed.has_value() ? absl::StrCat(options.codec, ":seed=", *options.seed)
                                  : options.codec;
}

absl::Status SetCodec(Context& context, const CodecOptions& options) {
  v1::Settings settings;
  for (int code = v1::CODEC_AUTO; code <= v1::Codec_MAX; ++code) {
    if (NameOf(static_cast<v1::Codec>(code)) == options.codec) {
      settings.set_codec(static_cast<v1::Codec>(code));
      settings.set_lossy("off");
    }
  }
  const bool exact = settings.codec() != v1::CODEC_UNSPECIFIED;
  if (options.seed.has_value() && (exact || options.codec == "errorbound")) {
    return absl::InvalidArgumentError("--seed is for qsgd2, qsgd4 and qsgd8");
  }
  SPCCL_ASSIGN_OR_RETURN(const std::string lossy, LossyText(options));
  if (!exact) settings.set_lossy(lossy);
  return Set(context, options.scope, settings);
}

void AddCodec(Tree* tree) {
  CLI::App* parent = tree->app.add_subcommand("codec", "In which format sends travel.");
  parent->require_subcommand(1);
  AddGet(tree, parent, "Show the algorithm, the slice size and the codec.", false);
  const auto options = std::make_shared<CodecOptions>();
  CLI::App* set = tree->Add(parent, "set", "Change the codec, while jobs run.",
                            [options](Context& context) { return SetCodec(context, *options); });
  tree->Limit(
      set->add_option("CODEC", options->codec,
                      "Exact: auto to gap. Lossy: errorbound, and QSGD with 2, 4 or 8 bits.")
          ->required(),
      {"auto", "dense", "pici", "pici-column", "coo", "gap", "errorbound", "qsgd2", "qsgd4",
       "qsgd8"});
  CLI::Option* absolute =
      set->add_option("--absolute", options->absolute, "How far an element may be off.")
          ->type_name("BOUND");
  set->add_option("--relative", options->relative,
                  "The same, as a fraction of the largest magnitude in a slice.")
      ->type_name("BOUND")
      ->excludes(absolute);
  set->add_option("--seed", options->seed, "Of QSGD's random rounding.")->type_name("NUMBER");
  AddScopeOptions(set, &options->scope);
  AddReset(tree, parent, "Forget the scope's own codec, and with it whether sends are lossy.",
           v1::SETTINGS_PART_CODEC);
}

}  // namespace

void AddSettingsCommands(Tree* tree) {
  AddThreshold(tree);
  AddAlgo(tree);
  AddCodec(tree);
}

}  // namespace spccl::ctl
