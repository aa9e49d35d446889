// A process with ranks that a test drives line by line: see Usage(). What a communicator does goes
// on in a thread of its own, so that a process can have several at once.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "client/include/spccl/spccl.h"

namespace spccl::testing {
namespace {

void Usage() {
  std::cerr
      << R"(Reads commands from standard input, answers on standard output; ends with its input.
  id                         -> "id HEX"
  join NAME RANKS RANK HEX   -> "joined NAME", or "refused NAME RESULT NANOS TEXT"
  sum NAME COUNT             sums until rank 0 is told to stop; "summing NAME" once it runs, then
                             "stopped NAME ROUNDS", or "failed NAME RESULT NANOS TEXT" when it fails
  rounds NAME                -> "rounds NAME ROUNDS"
  stop NAME                  (rank 0)
  leave NAME                 -> "left NAME RESULT"
NANOS is the monotonic clock. A wrong sum is a failure with the result -1.
)";
}

void Say(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::cout << line << std::endl;
}

void SayResult(const std::string& word, const std::string& name, int result,
               const std::string& text) {
  const int64_t now_ns = MonotonicNanos();
  std::ostringstream line;
  line << word << ' ' << name << ' ' << result << ' ' << now_ns << ' ' << text;
  Say(line.str());
}

std::string ToHex(const spcclUniqueId& id) {
  std::string hex;
  char digits[3];
  for (const char byte : id.internal) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    hex += digits;
  }
  return hex;
}

spcclUniqueId FromHex(const std::string& hex) {
  spcclUniqueId id{};
  for (size_t i = 0; i < sizeof id.internal && 2 * i + 1 < hex.size(); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

// One in ten, others in each round.
bool IsSet(size_t index, uint32_t round) {
  return ((static_cast<uint32_t>(index) * 2654435761U + round) >> 8) % 10 == 0;
}

// One rank, from join to leave.
class Member {
 public:
  Member(std::string name, spcclComm_t comm, int ranks, int rank)
      : name_(std::move(name)), comm_(comm), ranks_(ranks), rank_(rank) {}
  ~Member() {
    if (thread_.joinable()) thread_.join();
  }

  void Start(size_t count) {
    thread_ = std::thread([this, count] { Sum(count); });
  }
  // relaxed: nothing else is read by it
  void Stop() { stop_.store(true, std::memory_order_relaxed); }
  uint32_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
  spcclResult_t Leave() {
    if (thread_.joinable()) thread_.join();
    return spcclCommDestroy(comm_);
  }

 private:
  // Element 0 is rank 0's word that this round is the last, so that all leave after the same one.
  void Sum(size_t count) {
    std::vector<float> send(count), recv(count);
    for (uint32_t round = 0;; ++round) {
      const float step = static_cast<float>(1 + round % 7);
      for (size_t i = 0; i < count; ++i) {
        send[i] = IsSet(i, round) ? step + static_cast<float>(rank_) : 0;
      }
      send[0] = rank_ == 0 && stop_.load(std::memory_order_relaxed) ? 1 : 0;
      const spcclResult_t result =
          spcclAllReduce(send.data(), recv.data(), count, spcclFloat32, spcclSum, comm_, nullptr);
      if (result != spcclSuccess) {
        SayResult("failed", name_, result, spcclGetLastError(comm_));
        return;
      }
      const float ranks = static_cast<float>(ranks_);
      const float expected = ranks * step + ranks * (ranks - 1) / 2;
      for (size_t i = 1; i < count; ++i) {
        if (recv[i] == (IsSet(i, round) ? expected : 0)) continue;
        SayResult("failed", name_, -1, "wrong sum in round " + std::to_string(round));
        return;
      }
      rounds_.store(round + 1, std::memory_order_relaxed);
      if (round == 2) Say("summing " + name_);
      if (recv[0] != 0) {
        Say("stopped " + name_ + " " + std::to_string(round + 1));
        return;
      }
    }
  }

  const std::string name_;
  const spcclComm_t comm_;
  const int ranks_, rank_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> rounds_{0};
  std::thread thread_;
};

class Process {
 public:
  // False: not a command.
  bool Obey(const std::string& line) {
    std::istringstream words(line);
    std::string command, name;
    words >> command;
    if (command == "id") {
      spcclUniqueId id;
      const spcclResult_t result = spcclGetUniqueId(&id);
      Say(result == spcclSuccess ? "id " + ToHex(id) : spcclGetLastError(nullptr));
      return true;
    }
    words >> name;
    if (command == "join") return Join(name, words);
    const auto member = members_.find(name);
    if (member == members_.end()) return false;
    if (command == "sum") {
      size_t count = 0;
      words >> count;
      member->second->Start(count);
    } else if (command == "rounds") {
      Say("rounds " + name + " " + std::to_string(member->second->rounds()));
    } else if (command == "stop") {
      member->second->Stop();
    } else if (command == "leave") {
      const spcclResult_t result = member->second->Leave();
      members_.erase(member);
      Say("left " + name + " " + std::to_string(result));
    } else {
      return false;
    }
    return true;
  }

 private:
  bool Join(const std::string& name, std::istringstream& words) {
    int ranks = 0, rank = 0;
    std::string hex;
    if (!(words >> ranks >> rank >> hex)) return false;
    spcclComm_t comm = nullptr;
    const spcclResult_t result = spcclCommInitRank(&comm, ranks, FromHex(hex), rank);
    if (result != spcclSuccess) {
      SayResult("refused", name, result, spcclGetLastError(nullptr));
      return true;
    }
    members_[name] = std::make_unique<Member>(name, comm, ranks, rank);
    Say("joined " + name);
    return true;
  }

  std::map<std::string, std::unique_ptr<Member>> members_;
};

int Main() {
  Process process;
  for (std::string line; std::getline(std::cin, line);) {
    if (process.Obey(line)) continue;
    std::cerr << "not understood: " << line << '\n';
    Usage();
    ::_exit(2);
  }
  ::_exit(0);  // as a killed job: what runs is not waited for
}

}  // namespace
}  // namespace spccl::testing

int main() {
  return spccl::testing::Main();
}
