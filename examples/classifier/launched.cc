#include "examples/classifier/launched.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace classifier {
namespace {

constexpr std::chrono::seconds kMeetingLimit(60);
constexpr std::chrono::milliseconds kPoll(20);

absl::StatusOr<int> NumberIn(const char* variable) {
  const char* const text = std::getenv(variable);
  int number = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--meet: ", variable, " is not set: start this with srun"));
  }
  return number;
}

// Whole or not at all, for those that wait for it.
absl::Status Publish(const spcclUniqueId& id, const std::string& path) {
  const std::string beside = absl::StrCat(path, ".new");
  {
    std::ofstream file(beside, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&id), sizeof id);
    if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", beside));
  }
  if (::link(beside.c_str(), path.c_str()) != 0) {  // unlike rename(), not over an old one
    return absl::AlreadyExistsError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
  }
  ::unlink(beside.c_str());
  return absl::OkStatus();
}

absl::StatusOr<spcclUniqueId> AwaitId(const std::string& path) {
  const auto end = std::chrono::steady_clock::now() + kMeetingLimit;
  while (std::chrono::steady_clock::now() < end) {
    spcclUniqueId id = {};
    std::ifstream file(path, std::ios::binary);
    if (file.read(reinterpret_cast<char*>(&id), sizeof id)) return id;
    std::this_thread::sleep_for(kPoll);
  }
  return absl::DeadlineExceededError(absl::StrCat("rank 0 has not made ", path, " in time"));
}

absl::StatusOr<spcclUniqueId> Meet(int rank, const std::string& path) {
  if (rank != 0) return AwaitId(path);
  spcclUniqueId id = {};
  if (const spcclResult_t result = spcclGetUniqueId(&id); result != spcclSuccess) {
    return absl::UnavailableError(
        absl::StrCat(spcclGetErrorString(result), ": ", spcclGetLastError(nullptr)));
  }
  const absl::Status status = Publish(id, path);
  if (!status.ok()) return status;
  return id;
}

}  // namespace

absl::StatusOr<bool> TrainLaunched(const Data& data, const Settings& settings) {
  const absl::StatusOr<int> number = NumberIn("SLURM_PROCID");
  if (!number.ok()) return number.status();
  const absl::StatusOr<int> ranks = NumberIn("SLURM_NTASKS");
  if (!ranks.ok()) return ranks.status();
  const absl::StatusOr<spcclUniqueId> id = Meet(*number, settings.meeting);
  if (!id.ok()) return id.status();
  Model model(settings.bucket_bits, data.classes);
  absl::StatusOr<Rank> rank = Rank::Join(*id, *number, *ranks, model.parameters());
  if (!rank.ok()) return rank.status();
  std::vector<StepTime> times;
  const absl::Status status = rank->Train(model, data.train, settings.schedule, &times);
  if (!status.ok()) return status;
  const absl::StatusOr<bool> same = rank->Agrees(model.Digest());
  if (!same.ok()) return same.status();
  if (*number == 0) {
    std::printf("{\"ranks\": %d, \"steps\": %zu, \"accuracy\": %.4f, \"same_weights\": %s}\n",
                *ranks, times.size(), model.Accuracy(data.held_out), *same ? "true" : "false");
  }
  return *same;
}

}  // namespace classifier
