#include "bench/soak/process.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace spccl::bench {
namespace {

static_assert(spcclCodecGap + 1 == SoakScript::kExactCodecs);
constexpr int64_t kMeetWithinNs = 30'000'000'000;
constexpr int64_t kSayEveryNs = 500'000'000;

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return std::distance(begin(folder), end(folder));
}

}  // namespace

void Say(const nlohmann::json& line) {
  const std::string text = line.dump() + "\n";
  // In one piece: others write to the same pipe.
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) ::_exit(2);  // nobody listens any more
}

SoakProcess::SoakProcess(const JobOptions& options, std::vector<uint32_t> own)
    : options_(options),
      own_(std::move(own)),
      script_(options.seed, options.ranks, options.max_bytes),
      memory_(options.seed * 1009 + own_.front(), &failure_) {}

int SoakProcess::Run() {
  Say({{"at", "started"}, {"ranks", own_}, {"pid", ::getpid()}});
  if (Start() && RunSteps() && Leave()) {
    Say({{"at", "done"},
         {"ranks", own_},
         {"operations", operations_},
         {"bytes", bytes_},
         {"joins", joins_},
         {"descriptors", {descriptors_joined_, OpenDescriptors()}}});
    return 0;
  }
  if (failure_.kept().has_value()) return TellFailure();
  Say({{"at", "wrong"}, {"ranks", own_}, {"step", step_}, {"text", wrong_}});
  return 3;
}

int SoakProcess::TellFailure() {
  const Failure& failure = *failure_.kept();
  nlohmann::json line = {{"at", "failed"},
                         {"ranks", own_},
                         {"step", step_},
                         {"phase", failure.phase},
                         {"result", static_cast<int>(failure.result)},
                         {"text", failure.text},
                         {"ns", MonotonicNanos()},
                         {"expected", std::filesystem::exists(options_.may_fail)},
                         {"operations", operations_},
                         {"bytes", bytes_},
                         {"joins", joins_}};
  // What is of no communicator in particular is done with the one of all: registrations.
  line["members"] = failed_members_ != nullptr ? *failed_members_ : comms_[0].members;
  line["clean_up"] = CleanUp();
  Say(line);
  return 0;
}

// What went wrong with that, or nothing.
std::string SoakProcess::CleanUp() {
  std::string text;
  for (Comm& comm : comms_) {
    for (const Member& member : comm.here) {
      if (member.handle == nullptr) continue;
      const bool aborts = (step_ + member.rank) % 4 != 0;
      const spcclResult_t result =
          aborts ? spcclCommAbort(member.handle) : spcclCommDestroy(member.handle);
      if (result != spcclSuccess) absl::StrAppend(&text, spcclGetLastError(nullptr), "; ");
    }
  }
  for (const Streams& streams : streams_) {
    for (spcclStream_t stream : streams) spcclStreamDestroy(stream);  // its result is known
  }
  memory_.set_registrar(nullptr);
  if (!memory_.Clear()) absl::StrAppend(&text, spcclGetLastError(nullptr), "; ");
  return text;
}

bool SoakProcess::MeetAll(spcclUniqueId* id) {
  const std::string_view bytes(id->internal, sizeof id->internal);
  if (own_.front() == 0) {
    if (!failure_.Ok(spcclGetUniqueId(id), "spcclGetUniqueId", nullptr)) return false;
    const std::string written = options_.meet + ".new";
    std::ofstream(written) << absl::BytesToHexString({bytes.data(), bytes.size()});
    std::filesystem::rename(written, options_.meet);
    return true;
  }
  const int64_t deadline_ns = MonotonicNanos() + kMeetWithinNs;
  while (!std::filesystem::exists(options_.meet)) {
    if (std::filesystem::exists(options_.may_fail) || MonotonicNanos() > deadline_ns) {
      return failure_.Fail("meet", "rank 0 has not come");
    }
    ::usleep(5'000);
  }
  std::string hex;
  std::ifstream(options_.meet) >> hex;
  const std::string read = absl::HexStringToBytes(hex);
  SPCCL_CHECK(read.size() == sizeof id->internal);
  std::memcpy(id->internal, read.data(), read.size());
  return true;
}

bool SoakProcess::Start() {
  spcclUniqueId id = {};
  if (!MeetAll(&id)) return false;
  comms_[0].members = script_.members(0);
  if (!Init(comms_[0], id)) return false;
  descriptors_joined_ = OpenDescriptors();
  memory_.set_registrar(comms_[0].here.front().handle);
  streams_.resize(own_.size());
  for (Streams& streams : streams_) {
    for (spcclStream_t& stream : streams) {
      if (!failure_.Ok(spcclStreamCreate(&stream), "spcclStreamCreate", nullptr)) return false;
    }
  }
  Say({{"at", "joined"}, {"ranks", own_}, {"ns", MonotonicNanos()}});
  return true;
}

bool SoakProcess::RunSteps() {
  int64_t said_ns = MonotonicNanos();
  for (step_ = 1; options_.steps == 0 || step_ <= options_.steps; ++step_) {
    if (!RunStep(script_.Next())) return false;
    if (MonotonicNanos() - said_ns < kSayEveryNs) continue;
    said_ns = MonotonicNanos();
    Say({{"at", "step"}, {"ranks", own_}, {"step", step_}});
  }
  return true;
}

bool SoakProcess::RunStep(const SoakStep& step) {
  failed_members_ = nullptr;
  switch (step.kind) {
    case StepKind::kJoin:
      return Join(step);
    case StepKind::kCodec:
      return SetCodec(step);
    case StepKind::kLeave:
      for (const Member& member : comms_[step.comm].here) {
        if (!failure_.Ok(spcclCommDestroy(member.handle), "spcclCommDestroy", member.handle)) {
          return false;
        }
      }
      comms_[step.comm] = {};
      return true;
    default:
      return RunCalls(step);
  }
}

bool SoakProcess::Leave() {
  bool left = memory_.Clear();
  for (Streams& streams : streams_) {
    for (spcclStream_t stream : streams) {
      left = failure_.Ok(spcclStreamDestroy(stream), "spcclStreamDestroy", nullptr) && left;
    }
  }
  // The first one last: registrations were made with it.
  for (size_t comm = comms_.size(); comm-- > 0;) {
    left = RunStep({.kind = StepKind::kLeave, .comm = comm}) && left;
  }
  return left;
}

// Ranks of the job with a communicator of their own: the first of them makes the id, and all hear
// it over the communicator of all.
bool SoakProcess::Join(const SoakStep& step) {
  const auto root = std::find(own_.begin(), own_.end(), step.members[0]);
  std::vector<spcclUniqueId> ids(own_.size());
  if (root != own_.end() &&
      !failure_.Ok(spcclGetUniqueId(&ids[root - own_.begin()]), "spcclGetUniqueId", nullptr)) {
    return false;
  }
  spcclGroupStart();
  for (const Member& member : comms_[0].here) {
    spcclUniqueId* const id = &ids[member.own];
    spcclBroadcast(id, id, sizeof *id, spcclUint8, static_cast<int>(step.members[0]), member.handle,
                   nullptr);
  }
  failed_members_ = &comms_[0].members;
  if (!failure_.Ok(spcclGroupEnd(), "broadcast of an id", comms_[0].here[0].handle)) return false;
  Comm& comm = comms_[step.comm];
  comm.members = step.members;
  return Init(comm, ids[0]);
}

// Writes `here` of a communicator whose members are known.
bool SoakProcess::Init(Comm& comm, const spcclUniqueId& id) {
  for (uint32_t rank = 0; rank < comm.members.size(); ++rank) {
    const auto own = std::find(own_.begin(), own_.end(), comm.members[rank]);
    if (own != own_.end()) comm.here.push_back({rank, static_cast<size_t>(own - own_.begin())});
  }
  if (comm.here.empty()) return true;
  const int ranks = static_cast<int>(comm.members.size());
  failed_members_ = &comm.members;
  spcclGroupStart();
  for (Member& member : comm.here) {
    spcclCommInitRank(&member.handle, ranks, id, static_cast<int>(member.rank));
  }
  if (!failure_.Ok(spcclGroupEnd(), "spcclCommInitRank", nullptr)) return false;
  ++joins_;
  for (const Member& member : comm.here) {
    int count = 0, rank = 0;
    if (!failure_.Ok(spcclCommCount(member.handle, &count), "spcclCommCount", member.handle) ||
        !failure_.Ok(spcclCommUserRank(member.handle, &rank), "spcclCommUserRank", member.handle)) {
      return false;
    }
    if (count != ranks || rank != static_cast<int>(member.rank)) {
      wrong_ = absl::StrCat("a communicator's rank ", rank, " of ", count);
      return false;
    }
  }
  return true;
}

bool SoakProcess::SetCodec(const SoakStep& step) {
  Comm& comm = comms_[step.comm];
  failed_members_ = &comm.members;
  for (const Member& member : comm.here) {
    const auto codec = static_cast<spcclCodec_t>(step.codec);
    if (!failure_.Ok(spcclCommSetCodec(member.handle, codec, nullptr), "spcclCommSetCodec",
                     member.handle)) {
      return false;
    }
  }
  return true;
}

}  // namespace spccl::bench
