// One process of a soak's job: its ranks, their communicators, and every result checked.
#pragma once

#include <spccl/spccl.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/perf/pattern.h"
#include "bench/soak/first_failure.h"
#include "bench/soak/memory.h"
#include "bench/soak/script.h"
#include "nlohmann/json.hpp"

namespace spccl::bench {

struct JobOptions {
  uint32_t ranks = 1;
  uint64_t seed = 1;
  uint64_t steps = 100;  // 0: until something fails
  uint64_t max_bytes = uint64_t{1} << 20;
  std::string meet;      // file in which rank 0 puts the first unique id
  std::string may_fail;  // file that is there once the job may fail
};

// Prints an object as one line, whole, whoever else writes.
void Say(const nlohmann::json& line);

class SoakProcess {
 public:
  // `own`: the ranks of the job that this process has, in rising order.
  SoakProcess(const JobOptions& options, std::vector<uint32_t> own);

  // Runs the whole script and says how it went: "started", "joined", now and then "step", then one
  // of "done", "failed" (a call of the library's) and "wrong" (a result). Returns the exit code: 0,
  // 0 and 3.
  int Run();

 private:
  struct Member {
    uint32_t rank = 0;  // in the communicator
    size_t own = 0;     // which of own_ that is
    spcclComm_t handle = nullptr;
  };
  struct Comm {
    std::vector<uint32_t> members;  // all of them, ranks of the job; empty: there is none
    std::vector<Member> here;
  };
  // One rank's part of a call.
  struct Part {
    const SoakCall* call;
    Comm* comm;
    Member member;
    Pattern pattern;
    SoakMemory::Region send{}, recv{};
    const std::byte* send_at = nullptr;
    std::byte* recv_at = nullptr;
  };
  using Streams = std::array<spcclStream_t, 2>;

  bool Start();
  bool MeetAll(spcclUniqueId* id);
  bool RunSteps();
  bool RunStep(const SoakStep& step);
  bool Leave();

  bool Join(const SoakStep& step);
  bool Init(Comm& comm, const spcclUniqueId& id);
  bool SetCodec(const SoakStep& step);

  bool RunCalls(const SoakStep& step);
  bool Prepare(const SoakStep& step, std::vector<Part>* parts);
  bool Place(Part& part);
  bool IssueAll(StepKind kind, std::vector<Part>& parts);
  bool IssueGroup(std::span<Part> parts);
  bool IssueOnStreams(std::vector<Part>& parts);
  static spcclResult_t Issue(const Part& part, spcclStream_t stream);
  bool Check(const Part& part);
  // A failure of a group or of streams is laid to the communicator that has failed.
  bool Blame(spcclResult_t result, const std::string& phase, std::span<const Part> parts);

  int TellFailure();
  std::string CleanUp();

  const JobOptions options_;
  const std::vector<uint32_t> own_;
  SoakScript script_;
  FirstFailure failure_;
  SoakMemory memory_;
  std::array<Comm, SoakScript::kMostComms> comms_;
  std::vector<Streams> streams_;  // by own_
  std::vector<std::byte> scratch_;
  const std::vector<uint32_t>* failed_members_ = nullptr;
  std::string wrong_;
  uint64_t step_ = 0, operations_ = 0, bytes_ = 0, joins_ = 0;
  size_t descriptors_joined_ = 0;
};

}  // namespace spccl::bench
