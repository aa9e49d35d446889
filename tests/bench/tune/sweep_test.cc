// Sweeps with a spccl-perf that the test plays.
#include "bench/tune/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>

#include "bench/tune/process.h"
#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;

// Says a line for each --settings, and notes that it ran. With a file "stall" beside it, it waits
// for its end instead, after it has made "stalled"; with "broken", it fails; with "broken-64", it
// fails with 64 channels and no zeros.
constexpr char kScript[] = R"(#!/bin/sh
folder=$(dirname "$0")
echo "$@" >> "$folder/ran"
if [ -e "$folder/broken" ]; then echo "no such host" >&2; exit 2; fi
if [ -e "$folder/stall" ]; then touch "$folder/stalled"; sleep 60 & wait; exit 1; fi
case "$* " in *"--sparsity 0 "*"--channels=64 "*)
  if [ -e "$folder/broken-64" ]; then echo "no memory" >&2; exit 2; fi ;;
esac
channels=1
while [ $# -gt 0 ]; do
  case "$1" in
    --channels=*) channels=${1#--channels=} ;;
    --settings) echo "{\"setting\": \"$2\", \"ran\": \"split\", \"time_us_p50\": $((1000 / channels + channels))}" ;;
  esac
  shift
done
)";

class SweepTest : public ::testing::Test {
 protected:
  SweepTest() {
    options_.nodes = {2};
    options_.bytes = {65536, 1 << 20};
    options_.sparsities = {0, 0.99};
    options_.algorithms = {"split", "tree"};
    options_.perf = folder_.path() + "/spccl-perf";
    options_.csv = folder_.path() + "/points.csv";
    options_.record = folder_.path() + "/sweep.json";
    std::ofstream(options_.perf) << kScript;
    ::chmod(options_.perf.c_str(), 0755);
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  int Launches() const {
    std::ifstream file(path("ran"));
    int lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

  const testing::TempFolder folder_;
  SweepOptions options_;
  std::atomic<bool> interrupt_{false};
};

TEST_F(SweepTest, MeasuresEveryCaseAndNothingTwice) {
  auto end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->ran, 4);
  EXPECT_EQ(end->failed, 0);
  const auto samples = ReadSamples(options_.csv);
  ASSERT_THAT(samples, IsOk());
  ASSERT_EQ(samples->size(), 8u);  // auto and split; there is no tree for an all-reduce
  EXPECT_EQ((*samples)[1].way, "split");
  end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->ran, 0);
  EXPECT_EQ(Launches(), 4);
  options_.rounds = 2;
  options_.slices = {0, 65536};  // a way more: these cases are measured again
  end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->ran, 8);
}

TEST_F(SweepTest, AnInterruptedSweepGoesOnWhereItWas) {
  options_.bytes = {65536};
  options_.sparsities = {0};
  ASSERT_THAT(Sweep(options_, interrupt_), IsOk());
  options_.sparsities = {0, 0.5, 0.99};
  std::ofstream(path("stall")) << "";
  std::thread interrupter([&] {
    while (!std::ifstream(path("stalled"))) std::this_thread::yield();
    interrupt_.store(true);
  });
  auto end = Sweep(options_, interrupt_);
  interrupter.join();
  ASSERT_THAT(end, IsOk());
  EXPECT_TRUE(end->interrupted);
  EXPECT_EQ(Launches(), 2);
  ASSERT_EQ(ReadSamples(options_.csv)->size(), 2u);  // of the first case
  ASSERT_EQ(std::remove(path("stall").c_str()), 0);
  interrupt_.store(false);
  end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_FALSE(end->interrupted);
  EXPECT_EQ(end->ran, 2);
  EXPECT_EQ(Launches(), 4);  // and that which was interrupted once more
}

TEST_F(SweepTest, WhatFailsIsToldAndTriedAgain) {
  std::ofstream(path("broken")) << "";
  ::testing::internal::CaptureStderr();
  auto end = Sweep(options_, interrupt_);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no such host"));
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->failed, 4);
  ASSERT_EQ(std::remove(path("broken").c_str()), 0);
  end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->failed, 0);
  EXPECT_EQ(end->ran, 4);
}

TEST_F(SweepTest, TheBestNumberOfChannelsIsFoundFirst) {
  options_.channels = {1, 8, 32, 64};
  const auto end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->channels, 32u);  // 1000 / 32 + 32 is the least
  EXPECT_EQ(end->ran, 8 + 4);
  EXPECT_EQ(Gather(*ReadSamples(options_.csv), 32).size(), 4u);
}

TEST_F(SweepTest, TheNumberOfChannelsStaysWhenMoreIsMeasured) {
  options_.channels = {1, 8};
  ASSERT_THAT(Sweep(options_, interrupt_), IsOk());
  const int launches = Launches();
  options_.bytes.push_back(4 << 20);  // larger than the size that found it
  options_.sparsities = {0, 0.99, 0.999};
  auto end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->channels, 8u);
  EXPECT_EQ(end->ran, 5);
  EXPECT_EQ(Launches(), launches + 5);  // the plans' new cases alone
  EXPECT_EQ(Gather(*ReadSamples(options_.csv), 8).size(), 9u);
  options_.channels = {1, 8, 32};  // others: it is found anew, over the new last size and sparsity
  end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->channels, 32u);
}

TEST_F(SweepTest, WhatIsLearnedFromIsWhatWasMeasured) {
  options_.channels = {1, 8};
  ASSERT_THAT(Sweep(options_, interrupt_), IsOk());
  const auto samples = ReadSamples(options_.csv);
  const auto record = ReadRecord(options_.record);
  ASSERT_THAT(samples, IsOk());
  ASSERT_THAT(record, IsOk());
  // As --train-only without the sweep's --sizes and --channels has it.
  options_.bytes = {1 << 30};
  options_.channels = {2, 4, 64};
  EXPECT_EQ(ChannelsToLearn(options_, *record, *samples), 8u);
  EXPECT_EQ(ChannelsToLearn(options_, {}, *samples), 8u);
  options_.channels = {1};
  EXPECT_EQ(ChannelsToLearn(options_, *record, *samples), 1u);
}

TEST_F(SweepTest, ANumberOfChannelsThatFailedSomewhereIsNotChosen) {
  std::ofstream(path("broken-64")) << "";
  options_.channels = {1, 8, 64};
  ::testing::internal::CaptureStderr();
  const auto end = Sweep(options_, interrupt_);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("left out, not measured in every case: 64 channels"));
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->failed, 1);
  EXPECT_EQ(end->channels, 8u);  // 64 would be the best of these
  EXPECT_THAT(BestChannels(options_, *ReadSamples(options_.csv)).left_out, ElementsAre(64));
}

TEST_F(SweepTest, WithoutAMeasuredNumberOfChannelsNoPlanIsMeasured) {
  std::ofstream(path("broken")) << "";
  options_.channels = {1, 8};
  const auto end = Sweep(options_, interrupt_);
  EXPECT_THAT(std::string(end.status().message()), HasSubstr("no number of channels"));
  EXPECT_EQ(Launches(), 4);
}

TEST(ProcessTest, TellsHowItEnded) {
  const std::atomic<bool> interrupt{false};
  constexpr int64_t kLimit = 60'000'000'000;
  EXPECT_EQ(RunProcess({"echo", "a"}, kLimit, interrupt).output, "a\n");
  const ProcessEnd failed =
      RunProcess({"sh", "-c", "echo one >&2; echo two >&2; exit 7"}, kLimit, interrupt);
  EXPECT_THAT(std::string(failed.status.message()), HasSubstr("exit 7: two"));
  EXPECT_FALSE(RunProcess({"/nowhere/at-all"}, kLimit, interrupt).status.ok());
  EXPECT_THAT(std::string(RunProcess({"sleep", "60"}, 1, interrupt).status.message()),
              HasSubstr("stopped"));
}

TEST_F(SweepTest, SamplesOfOtherDaemonsAreNotMixed) {
  options_.perf_arguments = {"--launcher", "ssh {}"};
  ASSERT_THAT(Sweep(options_, interrupt_), IsOk());
  options_.rounds = 2;
  EXPECT_THAT(Sweep(options_, interrupt_), IsOk());
  const int launches = Launches();
  options_.rounds = 3;
  options_.perf_arguments = {};
  const absl::Status status = Sweep(options_, interrupt_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("points.csv was measured with \"--launcher ssh {}\""));
  EXPECT_EQ(Launches(), launches);
  ASSERT_EQ(std::remove(options_.record.c_str()), 0);
  EXPECT_THAT(Sweep(options_, interrupt_), IsOk());
  options_.rounds = 4;
  options_.perf_arguments = {"--launcher", "ssh {}"};
  EXPECT_FALSE(Sweep(options_, interrupt_).ok());
}

TEST_F(SweepTest, WhereNothingWasMeasuredOtherDaemonsMayBe) {
  std::ofstream(path("broken")) << "";
  options_.perf_arguments = {"--launcher", "shh {}"};
  ASSERT_THAT(Sweep(options_, interrupt_), IsOk());
  ASSERT_EQ(std::remove(path("broken").c_str()), 0);
  options_.perf_arguments = {"--launcher", "ssh {}"};
  const auto end = Sweep(options_, interrupt_);
  ASSERT_THAT(end, IsOk());
  EXPECT_EQ(end->ran, 4);
}

// Its end is not known then, but it has ended.
TEST(ProcessTest, AnIgnoredSigchldIsToldAndNotWaitedForForever) {
  const std::atomic<bool> interrupt{false};
  void (*const before)(int) = ::signal(SIGCHLD, SIG_IGN);
  const ProcessEnd end = RunProcess({"sh", "-c", "echo a; echo b >&2"}, 60'000'000'000, interrupt);
  ::signal(SIGCHLD, before);
  EXPECT_EQ(end.output, "a\n");
  EXPECT_THAT(std::string(end.status.message()), HasSubstr("SIGCHLD is ignored: b"));
}

}  // namespace
}  // namespace spccl::tune
