// The manual page of spcclctl lists what the tool takes, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "ctl/context.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

struct Taken {
  std::set<std::string> commands, options;
};

void Collect(const CLI::App& app, const std::string& path, Taken* taken) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) taken->options.insert(name);
  }
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  if (below.empty()) taken->commands.insert(path);
  for (const CLI::App* sub : below) {
    Collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), taken);
  }
}

TEST(ManualTest, ListsEveryCommandAndOptionAndNoOther) {
  std::stringstream text;
  text << std::ifstream(SPCCL_SOURCE_DIR "/docs/man/spcclctl.1").rdbuf();
  const std::string page = text.str();
  const std::unique_ptr<Tree> tree = BuildTree();
  Taken taken;
  Collect(tree->app, "", &taken);
  for (const std::string& command : taken.commands) EXPECT_THAT(page, HasSubstr("Cm " + command));
  std::set<std::string> listed;
  const std::regex option("Fl -([a-z-]+)");
  for (std::sregex_iterator found(page.begin(), page.end(), option), end; found != end; ++found) {
    listed.insert((*found)[1]);
  }
  EXPECT_EQ(listed, taken.options);
  for (const auto& [limited, values] : tree->choices) {
    for (const std::string& value : values) EXPECT_THAT(page, HasSubstr(value));
  }
}

}  // namespace
}  // namespace spccl::ctl
