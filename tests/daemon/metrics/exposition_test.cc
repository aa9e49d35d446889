#include "daemon/metrics/exposition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/daemon/metrics/parse.h"

namespace spccl::daemon::metrics {
namespace {

const Family kGauge{"a_bytes", Type::kGauge, {"x"}, "Bytes"};

std::string WithLabel(const std::string& value) {
  Exposition out;
  out.Begin(kGauge);
  out.Sample({value}, uint64_t{1});
  const std::string head = "# HELP a_bytes Bytes\n# TYPE a_bytes gauge\n";
  EXPECT_TRUE(out.text().starts_with(head));
  return out.text().substr(head.size());
}

TEST(ExpositionTest, CountersAndGauges) {
  const Family counter{"a_total", Type::kCounter, {"x", "y"}, "What \"a\"\nis, with a \\"};
  const Family gauge{"b_seconds", Type::kGauge, {}, "B"};
  Exposition out;
  out.Begin(counter);
  out.Sample({"1", "two words"}, std::numeric_limits<uint64_t>::max());
  out.Sample({"", ""}, uint64_t{0});
  out.Begin(gauge);
  out.Sample({}, 0.25);
  EXPECT_EQ(out.text(),
            "# HELP a_total What \"a\"\\nis, with a \\\\\n"
            "# TYPE a_total counter\n"
            "a_total{x=\"1\",y=\"two words\"} 18446744073709551615\n"
            "a_total{x=\"\",y=\"\"} 0\n"
            "# HELP b_seconds B\n"
            "# TYPE b_seconds gauge\n"
            "b_seconds 0.25\n");
}

TEST(ExpositionTest, HistogramsCountUpward) {
  constexpr double kBounds[] = {0.5, 1, 2.5};
  Histogram histogram(kBounds);
  for (const double value : {0.25, 0.5, 0.75, 2.0, 99.0, 100.0}) histogram.Observe(value);
  const Family family{"t_seconds", Type::kHistogram, {"op"}, "T"};
  Exposition out;
  out.Begin(family);
  out.Sample({"x"}, histogram);
  EXPECT_EQ(out.text(),
            "# HELP t_seconds T\n"
            "# TYPE t_seconds histogram\n"
            "t_seconds_bucket{op=\"x\",le=\"0.5\"} 2\n"
            "t_seconds_bucket{op=\"x\",le=\"1\"} 3\n"
            "t_seconds_bucket{op=\"x\",le=\"2.5\"} 4\n"
            "t_seconds_bucket{op=\"x\",le=\"+Inf\"} 6\n"
            "t_seconds_sum{op=\"x\"} 202.5\n"
            "t_seconds_count{op=\"x\"} 6\n");
}

TEST(ExpositionTest, NumbersThatAreNone) {
  Exposition out;
  out.Begin(kGauge);
  out.Sample({"nan"}, std::nan(""));
  out.Sample({"up"}, std::numeric_limits<double>::infinity());
  out.Sample({"down"}, -std::numeric_limits<double>::infinity());
  out.Sample({"small"}, 5e-324);
  EXPECT_NE(out.text().find("{x=\"nan\"} NaN\n"), std::string::npos);
  EXPECT_NE(out.text().find("{x=\"up\"} +Inf\n"), std::string::npos);
  EXPECT_NE(out.text().find("{x=\"down\"} -Inf\n"), std::string::npos);
  EXPECT_EQ(Parse(out.text()).Of("a_bytes{x=small}"), 5e-324);
}

TEST(ExpositionTest, LabelsAreEscaped) {
  EXPECT_EQ(WithLabel("a\"b\\c\nd"), "a_bytes{x=\"a\\\"b\\\\c\\nd\"} 1\n");
  EXPECT_EQ(WithLabel("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "a_bytes{x=\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"} 1\n");
}

TEST(ExpositionTest, WhatIsNotTextIsReplaced) {
  const std::string replacement = "\xEF\xBF\xBD";
  for (const std::string& bad : {std::string("\x01"), std::string(1, '\0'), std::string("\x80"),
                                 std::string("\xFF"), std::string("\xC3")}) {
    EXPECT_EQ(WithLabel("a" + bad), "a_bytes{x=\"a" + replacement + "\"} 1\n");
  }
  // Overlong, a surrogate, above the last character, cut short.
  for (const std::string bad : {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    const std::string text = WithLabel(bad);
    EXPECT_EQ(text.find(bad), std::string::npos);
    EXPECT_NE(text.find(replacement), std::string::npos);
  }
}

// Whatever a label holds, the text is one sample with one label; plain text comes back as it was.
TEST(ExpositionTest, AnyLabelComesBack) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string value(random() % 12, '\0');
    for (char& c : value) c = static_cast<char>(random() % 4 ? 32 + random() % 95 : random());
    const std::string text = WithLabel(value);
    ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "seed " << seed;
    const ParsedSample sample = ParseSample(text.substr(0, text.size() - 1));
    ASSERT_EQ(sample.labels.size(), 1) << "seed " << seed;
    const bool is_plain = std::all_of(value.begin(), value.end(),
                                      [](char c) { return c == '\n' || (c >= 32 && c < 127); });
    if (is_plain) {
      EXPECT_EQ(sample.labels[0].second, value) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace spccl::daemon::metrics
