// Reads Prometheus' text format back, strictly, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace spccl::daemon::metrics {

struct ParsedSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;  // unescaped
  double value = 0;
};

struct Parsed {
  std::vector<std::string> families;  // in order
  std::map<std::string, std::string> types, helps;
  std::vector<ParsedSample> samples;
  // "name{a=x,b=y}" to the value.
  std::map<std::string, double> series;

  double Of(const std::string& key) const {
    const auto found = series.find(key);
    EXPECT_NE(found, series.end()) << "no series " << key;
    return found == series.end() ? -1 : found->second;
  }
};

// One line of a sample; fails the test where it is not well-formed.
inline ParsedSample ParseSample(const std::string& line) {
  ParsedSample sample;
  size_t at = line.find_first_of("{ ");
  EXPECT_NE(at, std::string::npos) << line;
  sample.name = line.substr(0, at);
  while (at < line.size() && line[at] != ' ' && line[at] != '}') {
    const size_t equals = line.find("=\"", ++at);
    const std::string name = line.substr(at, equals - at);
    std::string value;
    for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
      if (line[at] != '\\') {
        value.push_back(line[at]);
        continue;
      }
      ++at;
      EXPECT_NE(std::string("\\\"n").find(line[at]), std::string::npos) << line;
      value.push_back(line[at] == 'n' ? '\n' : line[at]);
    }
    EXPECT_LT(at, line.size()) << line;
    sample.labels.emplace_back(name, value);
    ++at;
  }
  if (at < line.size() && line[at] == '}') ++at;
  EXPECT_EQ(line[at], ' ') << line;
  char* end = nullptr;
  sample.value = std::strtod(line.c_str() + at + 1, &end);
  EXPECT_EQ(*end, '\0') << line;
  return sample;
}

inline Parsed Parse(const std::string& text) {
  Parsed parsed;
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) {
      std::istringstream words(line);
      std::string hash, keyword, name, rest;
      words >> hash >> keyword >> name;
      std::getline(words >> std::ws, rest);
      auto& of = keyword == "HELP" ? parsed.helps : parsed.types;
      EXPECT_TRUE(of.emplace(name, rest).second) << "twice: " << line;
      if (keyword == "HELP") parsed.families.push_back(name);
      continue;
    }
    ParsedSample sample = ParseSample(line);
    EXPECT_FALSE(parsed.families.empty());
    EXPECT_TRUE(sample.name.starts_with(parsed.families.back())) << line;
    std::string key = sample.name;
    for (const auto& [label, value] : sample.labels) {
      absl::StrAppend(&key, key.size() == sample.name.size() ? "{" : ",", label, "=", value);
    }
    if (!sample.labels.empty()) key += "}";
    EXPECT_TRUE(parsed.series.emplace(key, sample.value).second) << "twice: " << key;
    parsed.samples.push_back(std::move(sample));
  }
  return parsed;
}

}  // namespace spccl::daemon::metrics
