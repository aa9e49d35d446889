// completion bash|zsh|fish.
#include "ctl/completion.h"
#include "ctl/context.h"

namespace spccl::ctl {

void AddCompletionCommand(Tree* tree) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      tree->Add(&tree->app, "completion", "Print a completion script for a shell.",
                [shell](Context& context) {
                  const std::unique_ptr<Tree> whole = BuildTree();
                  const std::string script = *shell == "bash"  ? BashCompletion(*whole)
                                             : *shell == "zsh" ? ZshCompletion(*whole)
                                                               : FishCompletion(*whole);
                  if (context.json()) {
                    context.PrintJson({{"shell", *shell}, {"script", script}});
                  } else {
                    context.out() << script;
                  }
                  return absl::OkStatus();
                });
  tree->Limit(completion->add_option("SHELL", *shell, "bash, zsh or fish.")->required(),
              {"bash", "zsh", "fish"});
}

}  // namespace spccl::ctl
