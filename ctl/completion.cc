#include "ctl/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace spccl::ctl {
namespace {

// One command of the tree: what may follow it.
struct CommandNode {
  std::string path;  // " threshold set"; empty for the tool itself
  std::vector<std::string> commands;
  std::vector<std::string> command_helps;
  std::vector<const CLI::Option*> options;
  std::vector<std::string> values;  // of its positional argument, where there is a list
};

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

void Collect(const Tree& tree, const CLI::App& app, const std::string& path,
             std::vector<CommandNode>* nodes) {
  CommandNode node{.path = path, .commands = {}, .command_helps = {}, .options = {}, .values = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      if (const auto found = tree.choices.find(option); found != tree.choices.end()) {
        node.values = found->second;
      }
    } else {
      node.options.push_back(option);
    }
  }
  // The global options may stand anywhere.
  if (&app != &tree.app) {
    for (const CLI::Option* option : tree.app.get_options()) {
      if (option->check_lname("help") || option->check_lname("version")) continue;
      node.options.push_back(option);
    }
  }
  const std::vector<const CLI::App*> below =
      app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : below) {
    node.commands.push_back(sub->get_name());
    node.command_helps.push_back(sub->get_description());
  }
  nodes->push_back(std::move(node));
  for (const CLI::App* sub : below)
    Collect(tree, *sub, absl::StrCat(path, " ", sub->get_name()), nodes);
}

std::vector<CommandNode> CommandNodesOf(const Tree& tree) {
  std::vector<CommandNode> nodes;
  Collect(tree, tree.app, "", &nodes);
  return nodes;
}

std::string Words(const CommandNode& node) {
  std::vector<std::string> words = node.commands;
  words.insert(words.end(), node.values.begin(), node.values.end());
  for (const CLI::Option* option : node.options) {
    for (const std::string& name : NamesOf(*option)) words.push_back(name);
  }
  return absl::StrJoin(words, " ");
}

// The body that bash and zsh share: from $path and $previous to $candidates.
std::string Cases(const Tree& tree, const std::vector<CommandNode>& nodes) {
  std::string script = "  case \"$path $previous\" in\n";
  for (const CommandNode& node : nodes) {
    for (const CLI::Option* option : node.options) {
      if (option->get_items_expected_max() == 0) continue;  // a flag: takes no value
      const auto found = tree.choices.find(option);
      for (const std::string& name : NamesOf(*option)) {
        absl::StrAppend(&script, "    \"", node.path, " ", name, "\") candidates=\"",
                        found == tree.choices.end() ? "" : absl::StrJoin(found->second, " "),
                        "\"; return ;;\n");
      }
    }
  }
  absl::StrAppend(&script, "  esac\n  case \"$path\" in\n");
  for (const CommandNode& node : nodes) {
    absl::StrAppend(&script, "    \"", node.path, "\") candidates=\"", Words(node), "\" ;;\n");
  }
  return script + "  esac\n";
}

// The case pattern of every command's path.
std::string Paths(const std::vector<CommandNode>& nodes) {
  std::vector<std::string> paths;
  for (const CommandNode& node : nodes) {
    if (!node.path.empty()) paths.push_back(absl::StrCat("\"", node.path, "\""));
  }
  return absl::StrJoin(paths, "|");
}

std::string FishQuote(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishOption(const Tree& tree, const std::string& condition, const CLI::Option& option) {
  std::string line = absl::StrCat("complete -c spcclctl -n ", condition);
  for (const std::string& name : option.get_snames()) absl::StrAppend(&line, " -s ", name);
  for (const std::string& name : option.get_lnames()) absl::StrAppend(&line, " -l ", name);
  if (option.get_items_expected_max() > 0) absl::StrAppend(&line, " -r");
  if (const auto found = tree.choices.find(&option); found != tree.choices.end()) {
    absl::StrAppend(&line, " -f -a ", FishQuote(absl::StrJoin(found->second, " ")));
  }
  return absl::StrCat(line, " -d ", FishQuote(option.get_description()), "\n");
}

}  // namespace

std::string BashCompletion(const Tree& tree) {
  const std::vector<CommandNode> nodes = CommandNodesOf(tree);
  return absl::StrCat(R"(# Completion of spcclctl for bash: source it, or save it as
# /usr/share/bash-completion/completions/spcclctl.
_spcclctl_candidates() {
)",
                      Cases(tree, nodes), R"(}
_spcclctl() {
  local path="" candidates="" previous="${COMP_WORDS[COMP_CWORD-1]}" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${COMP_WORDS[i]}" in
      )",
                      Paths(nodes), R"() path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  _spcclctl_candidates
  COMPREPLY=($(compgen -W "$candidates" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _spcclctl spcclctl
)");
}

std::string ZshCompletion(const Tree& tree) {
  const std::vector<CommandNode> nodes = CommandNodesOf(tree);
  return absl::StrCat(R"(#compdef spcclctl
# Completion of spcclctl for zsh: save it as _spcclctl in a folder of $fpath.
_spcclctl_candidates() {
)",
                      Cases(tree, nodes), R"(}
_spcclctl() {
  # Not "path": in zsh that is the command search path.
  local line="" candidates="" previous="${words[CURRENT-1]}" i
  typeset -h path
  local path=""
  for ((i = 2; i < CURRENT; i++)); do
    case "$path ${words[i]}" in
      )",
                      Paths(nodes), R"() path="$path ${words[i]}" ;;
    esac
  done
  _spcclctl_candidates
  if [[ -n "$candidates" ]]; then
    compadd -- ${=candidates}
  fi
  _files
}
if [[ "$funcstack[1]" == "_spcclctl" ]]; then _spcclctl "$@"; else compdef _spcclctl spcclctl; fi
)");
}

std::string FishCompletion(const Tree& tree) {
  std::string script =
      "# Completion of spcclctl for fish: save it as ~/.config/fish/completions/spcclctl.fish.\n"
      "# The commands named so far, as \" threshold set\".\n"
      "function __spcclctl_path\n"
      "  set -l path ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$path $word\"\n"
      "      case";
  const std::vector<CommandNode> nodes = CommandNodesOf(tree);
  for (const CommandNode& node : nodes) {
    if (!node.path.empty()) absl::StrAppend(&script, " ", FishQuote(node.path));
  }
  script +=
      "\n        set path \"$path $word\"\n"
      "    end\n"
      "  end\n"
      "  echo -- $path\n"
      "end\n";
  for (const CommandNode& node : nodes) {
    const std::string condition = absl::StrCat("'test (__spcclctl_path) = \"", node.path, "\"'");
    for (size_t i = 0; i < node.commands.size(); ++i) {
      absl::StrAppend(&script, "complete -c spcclctl -f -n ", condition, " -a ", node.commands[i],
                      " -d ", FishQuote(node.command_helps[i]), "\n");
    }
    for (const std::string& value : node.values) {
      absl::StrAppend(&script, "complete -c spcclctl -f -n ", condition, " -a ", value, "\n");
    }
    for (const CLI::Option* option : node.options) {
      script += FishOption(tree, condition, *option);
    }
  }
  return script;
}

}  // namespace spccl::ctl
