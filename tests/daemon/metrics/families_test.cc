#include "daemon/metrics/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace spccl::daemon::metrics {
namespace {

bool EndsWithAny(std::string_view name, const std::vector<std::string_view>& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [name](std::string_view end) { return name.ends_with(end); });
}

TEST(FamiliesTest, NamesFollowTheRules) {
  const std::regex name_rule("[a-z][a-z0-9_]*");
  std::set<std::string_view> names;
  for (const Family& family : Families()) {
    const std::string name(family.name);
    EXPECT_TRUE(std::regex_match(name, name_rule)) << name;
    EXPECT_TRUE(name.starts_with("spccl_") || name.starts_with("process_")) << name;
    EXPECT_TRUE(names.insert(family.name).second) << name;
    EXPECT_EQ(name.ends_with("_total"), family.type == Type::kCounter) << name;
    EXPECT_FALSE(EndsWithAny(name, {"_bucket", "_count", "_sum", "_ms", "_us", "_kb"})) << name;
    if (family.type == Type::kHistogram) {
      EXPECT_TRUE(EndsWithAny(name, {"_seconds", "_ratio", "_bytes"})) << name;
    }
    EXPECT_FALSE(family.help.empty() || family.help.ends_with('.')) << name;
  }
}

TEST(FamiliesTest, LabelsTakeFewValues) {
  const std::set<std::string_view> few = {"cause", "code",   "codec_target", "dtype",   "format",
                                          "kind",  "link",   "op",           "outcome", "phase",
                                          "quota", "reason", "state",        "version", "work"};
  // As many as there are jobs on this node, and nodes beside it.
  const std::set<std::string_view> bounded = {"job_id", "peer"};
  for (const Family& family : Families()) {
    EXPECT_LE(family.labels.size(), 3u) << family.name;
    for (const std::string_view label : family.labels) {
      const bool is_of_job = family.name == "spccl_job_info";
      EXPECT_TRUE(few.contains(label) || bounded.contains(label) || is_of_job)
          << family.name << " " << label;
      EXPECT_NE(label, "le");
      EXPECT_EQ(label == "job_id", family.name.starts_with("spccl_job_")) << family.name;
      if (is_of_job) break;
    }
  }
}

// docs/operations.md, "Metrics": | `name` | type | labels | meaning |
TEST(FamiliesTest, TheManualHasTheSameTable) {
  std::vector<std::string> told, real;
  std::ifstream file(SPCCL_SOURCE_DIR "/docs/operations.md");
  bool in_section = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) in_section = line == "## Metrics";
    const bool is_row = line.starts_with("| `spccl_") || line.starts_with("| `process_");
    if (in_section && is_row) told.push_back(line);
  }
  for (const Family& family : Families()) {
    std::ostringstream row;
    row << "| `" << family.name << "` | " << NameOf(family.type) << " |";
    for (size_t i = 0; i < family.labels.size(); ++i) {
      row << (i == 0 ? " `" : ", `") << family.labels[i] << "`";
    }
    row << " | " << family.help << " |";
    real.push_back(row.str());
  }
  EXPECT_EQ(told, real);
}

}  // namespace
}  // namespace spccl::daemon::metrics
