// Jobs share a node: the real spcclctl, the real spccld, ranks with libspccl.
#include <unistd.h>

#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/fault/fault_job.h"
#include "tests/fault/tool.h"

namespace spccl::testing {
namespace {

using ::testing::HasSubstr;

// Of a job of one process, which is a kernel session of its own.
std::string JobIdOf(FaultJob& job) {
  return "u" + std::to_string(::getuid()) + ".s" + std::to_string(job.processes().pid(0));
}

std::string Tool(const SpawnedDaemon& daemon, const std::string& arguments) {
  const ToolEnd end = RunTool(daemon, arguments);
  EXPECT_EQ(end.code, 0) << arguments << "\n" << end.output;
  return end.output;
}

// What each job has had so far.
struct Had {
  double bytes = 0, channel_ns = 0;
};
std::map<std::string, Had> HadByJobs(const SpawnedDaemon& daemon) {
  std::map<std::string, Had> had;
  const auto reply = nlohmann::json::parse(Tool(daemon, "jobs -o json"));
  for (const auto& job : reply.at("jobs")) {
    had[job.at("id")] = {.bytes = job.at("counters").at("payload_bytes").get<double>(),
                         .channel_ns = job.at("channel_ns").get<double>()};
  }
  return had;
}

// Few beside what is waited for: they are counted when they end.
constexpr size_t kBulkBytes = size_t{4} << 20;

// A communicator that is never without work: the operations of one stream are called while those of
// the others wait.
struct Bulk {
  spcclComm_t comm = nullptr;
  spcclStream_t streams[4] = {};
  const char* send = nullptr;
  char* recv = nullptr;

  spcclResult_t Open() {
    spcclUniqueId id;
    spcclResult_t result = spcclGetUniqueId(&id);
    if (result == spcclSuccess) result = spcclCommInitRank(&comm, 1, id, 0);
    for (spcclStream_t& stream : streams) {
      if (result == spcclSuccess) result = spcclStreamCreate(&stream);
    }
    return result;
  }
  // When the stream has nothing left, several all-reduces at once.
  spcclResult_t Refill(spcclStream_t stream) const {
    const spcclResult_t result = spcclStreamSynchronize(stream);
    if (result != spcclSuccess) return result;
    spcclGroupStart();
    for (int i = 0; i < 16; ++i) {
      spcclAllReduce(send, recv, kBulkBytes / sizeof(float), spcclFloat32, spcclSum, comm, stream);
    }
    return spcclGroupEnd();
  }
  bool Close() const {
    for (const spcclStream_t stream : streams) {
      if (spcclStreamSynchronize(stream) != spcclSuccess) return false;
      if (spcclStreamDestroy(stream) != spcclSuccess) return false;
    }
    return spcclCommDestroy(comm) == spcclSuccess;
  }
};

// All-reduces of memory that the daemon maps, until `stop`. There are always some to run, or the
// job would not take its share: what is called takes longer than a machine with other things to do
// lets the process wait for a core, and of so many communicators one always has a next slice while
// the daemon's core thread waits for one, between two operations of the others.
int KeepMoving(RankContext& context) {
  void* memory = nullptr;
  Bulk bulks[4];
  if (spcclMemAlloc(&memory, (1 + std::size(bulks)) * kBulkBytes) != spcclSuccess) return 1;
  char* next = static_cast<char*>(memory);
  for (Bulk& bulk : bulks) {
    bulk.send = static_cast<char*>(memory);
    bulk.recv = next += kBulkBytes;
    if (bulk.Open() != spcclSuccess) return 2;
  }
  for (bool moving = false; context.stop.load() == 0; moving = true) {
    for (size_t i = 0; i < std::size(bulks[0].streams); ++i) {
      for (const Bulk& bulk : bulks) {
        if (bulk.Refill(bulk.streams[i]) != spcclSuccess) return 3;
      }
    }
    if (!moving) context.report("moving;");
  }
  for (const Bulk& bulk : bulks) {
    if (!bulk.Close()) return 4;
  }
  const bool fine = spcclCommDestroy(context.comm) == spcclSuccess;
  return fine && spcclMemFree(memory) == spcclSuccess ? 0 : 5;
}

// The threads' time is what is shared, and a byte costs less of it where the slice before was the
// same job's: of the bytes, a job of weight two gets somewhat more than twice as many.
TEST(SharesTest, AJobOfWeightTwoGetsTwiceTheTimeUnderLoad) {
  const auto daemon = StartServing({"--channels=2"});
  FaultJob one(*daemon, 1, KeepMoving), two(*daemon, 1, KeepMoving);
  Tool(*daemon, "job set " + JobIdOf(two) + " --weight 2");
  for (FaultJob* job : {&one, &two}) {
    ASSERT_TRUE(job->processes().AwaitReport(0, "moving;", kPatienceMs));
  }
  const std::string a = JobIdOf(one), b = JobIdOf(two);
  const int64_t deadline_ns = MonotonicNanos() + 12 * kPatienceMs * 1'000'000;
  auto before = HadByJobs(*daemon), after = before;
  const auto moved = [&](const std::string& job) { return after[job].bytes - before[job].bytes; };
  const auto time = [&](const std::string& job) {
    return after[job].channel_ns - before[job].channel_ns;
  };
  const double enough = 1200.0 * kBulkBytes;
  while (moved(a) + moved(b) < enough && MonotonicNanos() < deadline_ns) {
    after = HadByJobs(*daemon);
  }
  EXPECT_GE(moved(a) + moved(b), enough);
  EXPECT_NEAR(time(b) / time(a), 2, 0.2) << time(b) << " and " << time(a) << " ns";
  EXPECT_GT(moved(b), 1.5 * moved(a)) << moved(b) << " and " << moved(a) << " bytes";
  for (FaultJob* job : {&one, &two}) job->Stop();
  for (FaultJob* job : {&one, &two}) {  // each has much to do yet
    EXPECT_TRUE(AllSucceeded(job->processes().Wait(12 * kPatienceMs)));
  }
}

// Registers what the quota of 6 MiB does not allow, and then what it does, over and over.
int Register(RankContext& context) {
  constexpr size_t kMiB = size_t{1} << 20;
  void *memory = nullptr, *handle = nullptr;
  if (spcclMemAlloc(&memory, 8 * kMiB) != spcclSuccess) return 1;
  context.report("ready;");
  AwaitStop(context.stop);
  ReportResult(context, spcclCommRegister(context.comm, memory, 8 * kMiB, &handle));
  if (spcclMemFree(memory) != spcclSuccess) return 2;
  for (int i = 0; i < 3; ++i) {
    if (spcclMemAlloc(&memory, 4 * kMiB) != spcclSuccess) return 3;
    if (spcclCommRegister(context.comm, memory, 4 * kMiB, &handle) != spcclSuccess) return 4;
    if (spcclAllReduce(memory, memory, kMiB, spcclFloat32, spcclSum, context.comm, nullptr) !=
        spcclSuccess) {
      return 5;
    }
    if (spcclCommDeregister(context.comm, handle) != spcclSuccess) return 6;
    if (spcclMemFree(memory) != spcclSuccess) return 7;
  }
  return spcclCommDestroy(context.comm) == spcclSuccess ? 0 : 8;
}

TEST(SharesTest, WhatPassesAQuotaIsRefusedAndNamedAndWhatDoesNotGoesOn) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 1, Register);
  ASSERT_TRUE(job.processes().AwaitReport(0, "ready;", kPatienceMs));
  const std::string id = JobIdOf(job);
  EXPECT_THAT(Tool(*daemon, "job set " + id + " --max-buffer-bytes 6291456 --max-operations 4"),
              HasSubstr("6.0 MiB"));
  const auto listed = nlohmann::json::parse(Tool(*daemon, "jobs -o json")).at("jobs").at(0);
  EXPECT_EQ(listed.at("share").at("max_buffer_bytes"), 6291456);
  EXPECT_EQ(listed.at("share").at("weight"), 1);
  EXPECT_THAT(Tool(*daemon, "jobs"), HasSubstr("/6.0 MiB"));
  job.Stop();
  const auto ends = job.processes().Wait(kPatienceMs);
  EXPECT_TRUE(AllSucceeded(ends));
  const Told told = ParseResult(ends[0].output);
  EXPECT_EQ(told.result, spcclSystemError);
  EXPECT_THAT(told.text, HasSubstr("job " + id +
                                   " would pass its quota of 6291456 "
                                   "(max_buffer_bytes): it has 0 and asks for 8388608 more"));
}

}  // namespace
}  // namespace spccl::testing
