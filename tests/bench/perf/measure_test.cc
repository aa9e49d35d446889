#include "bench/perf/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace spccl::bench {
namespace {

// A team of one.
class Alone : public Team {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  absl::Status Barrier() override { return absl::OkStatus(); }
  absl::Status MaxOverRanks(std::span<double>) override { return absl::OkStatus(); }
  absl::Status SumOverRanks(std::span<double>) override { return absl::OkStatus(); }
};

// With one rank every collective copies; this one may also get an element wrong, or spoil its
// input.
class Copy : public Backend {
 public:
  Copy(bool faulty, bool in_place) : faulty_(faulty), in_place_(in_place) {}
  absl::Status Open(const Problem& problem) override {
    send_.assign(problem.op.count, 0);
    recv_.assign(problem.op.count, 0);
    return absl::OkStatus();
  }
  void* send() override { return send_.data(); }
  void* recv() override { return in_place_ ? send_.data() : recv_.data(); }
  bool overwrites_input() const override { return in_place_; }
  absl::Status Run() override {
    ++runs;
    nonzero_seen += send_[3] != 0;
    if (in_place_) {
      if (runs <= 4) std::fill(send_.begin(), send_.end(), 0.0f);  // not the one that is checked
    } else {
      recv_ = send_;
    }
    if (faulty_) static_cast<float*>(recv())[3] += 1;
    return absl::OkStatus();
  }
  absl::Status Apply(const Setting& setting) override {
    applied.push_back(setting.name);
    return absl::OkStatus();
  }
  absl::StatusOr<Traffic> ReadTraffic() override {
    Traffic traffic;
    traffic.wire_bytes = 10 * runs;
    traffic.dense_bytes = 40 * runs;
    traffic.sends_by_format[1] = 2 * runs;
    traffic.decisions["reduce_scatter/first"] = 3 * runs;
    traffic.decisions["reduce_scatter/no-gain"] = 1;  // before the measured ones
    traffic.spent_ns["encode"] = 4000 * runs;
    return traffic;
  }
  std::vector<std::string> applied;
  int runs = 0;
  int nonzero_seen = 0;

 private:
  const bool faulty_, in_place_;
  std::vector<float> send_, recv_;
};

Options Four() {
  Options options;
  options.ranks = 1;
  options.iters = 3;
  options.warmup = 1;
  options.check = true;
  return options;
}

const Problem kProblem =
    MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 1, 4000).value();

TEST(Measure, CountsRunsAndTrafficOfTheMeasuredOnesOnly) {
  Alone team;
  Copy backend(/*faulty=*/false, /*in_place=*/false);
  const auto measured = Measure(team, backend, kProblem, Four());
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(backend.runs, 5);  // warmup, three, and the one that is checked
  EXPECT_EQ(measured->at(0).times_us.size(), 3u);
  EXPECT_EQ(measured->at(0).wrong, 0u);
  EXPECT_EQ(measured->at(0).wire_bytes, 10);
  EXPECT_EQ(measured->at(0).dense_bytes, 40);
  EXPECT_EQ(measured->at(0).sends_by_format[1], 2);
  EXPECT_EQ(measured->at(0).decisions,
            (std::map<std::string, double>{{"reduce_scatter/first", 3}}));
  EXPECT_EQ(measured->at(0).spent_us.at("encode"), 4);
}

TEST(Measure, SettingsTakeTurns) {
  Alone team;
  Copy backend(/*faulty=*/false, /*in_place=*/false);
  Options options = Four();
  options.iters = 5;
  options.check = false;
  options.settings = {{.name = "a"}, {.name = "b"}};
  const auto measured = Measure(team, backend, kProblem, options);
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_EQ(measured->size(), 2u);
  EXPECT_EQ(backend.applied, (std::vector<std::string>{"a", "b", "a", "b", "a", "b"}));
  EXPECT_EQ(backend.runs, 2 * (1 + 4 + 3));  // a warmup each; of each turn one is not measured
  for (const Measurement& one : *measured) {
    EXPECT_EQ(one.times_us.size(), 5u);
    EXPECT_EQ(one.wire_bytes, 10);
    EXPECT_EQ(one.spent_us, (std::map<std::string, double>{{"encode", 4}}));
  }
}

// In which an operation takes another rank so long.
class WithASlowRank : public Alone {
 public:
  explicit WithASlowRank(double us) : us_(us) {}
  absl::Status MaxOverRanks(std::span<double> values) override {
    std::fill(values.begin(), values.end(), us_);
    return absl::OkStatus();
  }

 private:
  const double us_;
};

TEST(Measure, WarmsUpForATimeByTheSlowestRank) {
  const auto warm_up = [](double us, int at_most) {
    WithASlowRank team(us);
    Copy backend(/*faulty=*/false, /*in_place=*/false);
    Options options = Four();
    options.check = false;
    options.warmup = at_most;
    options.warmup_seconds = 2;
    EXPECT_TRUE(Measure(team, backend, kProblem, options).ok());
    return backend.runs - options.iters;
  };
  EXPECT_EQ(warm_up(100'000, 120), 20);
  EXPECT_EQ(warm_up(100'000, 7), 7);
  EXPECT_EQ(warm_up(5'000'000, 120), 3);
  EXPECT_EQ(warm_up(5'000'000, 2), 2);
  EXPECT_EQ(warm_up(0, 120), 120);
}

TEST(Measure, WarmsUpForATimeOnlyWhatLearns) {
  WithASlowRank team(/*us=*/100'000);
  Copy backend(/*faulty=*/false, /*in_place=*/false);
  Options options = Four();
  options.check = false;
  options.iters = 3;
  options.warmup = 120;
  options.warmup_seconds = 2;
  options.settings = {{.name = "learns", .codec = "auto"},
                      {.name = "leaves it alone", .algo = "split"},
                      {.name = "fixed codec", .codec = "gap"},
                      {.name = "fixed threshold", .codec = "auto", .threshold = 0.5}};
  ASSERT_TRUE(Measure(team, backend, kProblem, options).ok());
  EXPECT_EQ(backend.runs, 20 + 20 + 3 + 3 + 4 * 4);
}

TEST(Measure, FindsAWrongElement) {
  Alone team;
  Copy backend(/*faulty=*/true, /*in_place=*/false);
  EXPECT_EQ(Measure(team, backend, kProblem, Four())->at(0).wrong, 1u);
}

TEST(Measure, RestoresAnInputThatTheOperationOverwrites) {
  Alone team;
  Copy backend(/*faulty=*/false, /*in_place=*/true);
  EXPECT_EQ(Measure(team, backend, kProblem, Four())->at(0).wrong, 0u);
  EXPECT_EQ(backend.nonzero_seen, 5);
}

}  // namespace
}  // namespace spccl::bench
