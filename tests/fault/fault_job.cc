#include "tests/fault/fault_job.h"

#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <ostream>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"
#include "tests/support/raw_client.h"

namespace spccl::testing {
spcclUniqueId NewUniqueId(const SpawnedDaemon& daemon) {
  absl::StatusOr<RawClient> client = RawClient::Open(daemon.socket_path());
  SPCCL_CHECK(client.ok());
  absl::StatusOr<std::string> bytes = client->UniqueId();
  SPCCL_CHECK(bytes.ok() && bytes->size() == SPCCL_UNIQUE_ID_BYTES);
  spcclUniqueId id;
  std::memcpy(id.internal, bytes->data(), sizeof id.internal);
  return id;
}

void FaultJob::Unmap::operator()(Shared* shared) const {
  ::munmap(shared, sizeof *shared);
}

std::unique_ptr<SpawnedDaemon> StartServing(std::vector<std::string> flags) {
  absl::StatusOr<std::unique_ptr<SpawnedDaemon>> daemon = SpawnedDaemon::Start(std::move(flags));
  SPCCL_CHECK(daemon.ok());
  return *std::move(daemon);
}

void RaiseStop(std::atomic<uint32_t>& stop) {
  stop.store(1);
  FutexWakeAll(&stop);
}

void AwaitStop(std::atomic<uint32_t>& stop) {
  while (stop.load() == 0) FutexWait(&stop, 0, -1);
}

FaultJob::FaultJob(const SpawnedDaemon& daemon, int ranks, std::function<int(RankContext&)> body)
    : FaultJob(std::vector<const SpawnedDaemon*>(ranks, &daemon), std::move(body)) {}

FaultJob::FaultJob(const std::vector<const SpawnedDaemon*>& daemon_of_rank,
                   std::function<int(RankContext&)> body) {
  const int ranks = static_cast<int>(daemon_of_rank.size());
  std::vector<std::string> runtime_dirs;
  for (const SpawnedDaemon* daemon : daemon_of_rank) runtime_dirs.push_back(daemon->runtime_dir());
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SPCCL_CHECK(memory != MAP_FAILED);
  shared_.reset(new (memory) Shared);
  const spcclUniqueId id = NewUniqueId(*daemon_of_rank[0]);
  Shared* const shared = shared_.get();
  processes_ =
      std::make_unique<MultiProcess>(ranks, [=](int rank, const MultiProcess::Report& report) {
        ::setsid();
        ::setenv("SPCCL_RUNTIME_DIR", runtime_dirs[rank].c_str(), 1);
        spcclComm_t comm = nullptr;
        if (spcclCommInitRank(&comm, ranks, id, rank) != spcclSuccess) {
          report(std::string("no communicator: ") + spcclGetLastError(nullptr));
          return 99;
        }
        RankContext context{rank, comm, report, shared->stop};
        return body(context);
      });
}

spcclResult_t AllReduce(RankContext& context, const std::vector<float>& send,
                        std::vector<float>* recv) {
  return spcclAllReduce(send.data(), recv->data(), send.size(), spcclFloat32, spcclSum,
                        context.comm, nullptr);
}

void ReportResult(RankContext& context, spcclResult_t result) {
  const int64_t now_ns = MonotonicNanos();
  context.report("result " + std::to_string(result) + " at " + std::to_string(now_ns) + ": " +
                 spcclGetLastError(context.comm) + ";");
}

Told ParseResult(const std::string& output) {
  Told told;
  const size_t start = output.rfind("result ");
  if (start == std::string::npos) return told;
  long long at_ns = 0;
  int text_at = 0;
  if (std::sscanf(output.c_str() + start, "result %d at %lld: %n", &told.result, &at_ns,
                  &text_at) == 2) {
    told.at_ns = at_ns;
    told.text = output.substr(start + text_at);
  }
  return told;
}

int KeepSumming(RankContext& context) {
  int ranks = 0;
  spcclCommCount(context.comm, &ranks);
  std::vector<float> send(50'000), recv(send.size());
  float expected = 0;
  for (int round = 0;; ++round) {
    // All ranks must leave after the same round: rank 0 decides, and its word is part of the sum.
    const bool last = context.rank == 0 && context.stop.load() != 0;
    for (size_t i = 0; i < send.size(); ++i) send[i] = static_cast<float>(round % 7 + context.rank);
    send[0] = last ? 1.0f : 0.0f;
    if (AllReduce(context, send, &recv) != spcclSuccess) {
      context.report(std::string("sum failed: ") + spcclGetLastError(context.comm));
      return 1;
    }
    const int of_ranks = ranks * (ranks - 1) / 2;  // 0 + 1 + ...
    expected = static_cast<float>(ranks * (round % 7) + of_ranks);
    for (size_t i = 1; i < recv.size(); ++i) {
      if (recv[i] == expected) continue;
      context.report("wrong sum " + std::to_string(recv[i]));
      return 1;
    }
    if (round == 0) context.report("summing;");
    if (recv[0] != 0) return spcclCommDestroy(context.comm) == spcclSuccess ? 0 : 1;
  }
}

namespace {

// ThreadSanitizer opens two pipes, to what finds it the names, when it first has something to say,
// also where that is then suppressed: before what a test takes for the start, or after.
bool IsOfTheSanitizer([[maybe_unused]] const std::string& descriptor) {
#ifdef __SANITIZE_THREAD__
  char target[8] = {};
  return ::readlink(descriptor.c_str(), target, sizeof target) > 0 &&
         std::string_view(target, 5) == "pipe:";
#else
  return false;
#endif
}

}  // namespace

Holdings HoldingsOf(pid_t pid) {
  Holdings holdings;
  const std::string proc = "/proc/" + std::to_string(pid);
  DIR* const folder = ::opendir((proc + "/fd").c_str());
  SPCCL_CHECK(folder != nullptr);
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    holdings.descriptors += !IsOfTheSanitizer(proc + "/fd/" + entry->d_name);
  }
  ::closedir(folder);
  std::ifstream maps(proc + "/maps");
  for (std::string line; std::getline(maps, line);) {
    holdings.shared_mappings += line.find("/memfd:") != std::string::npos;
  }
  return holdings;
}

std::ostream& operator<<(std::ostream& out, const Holdings& holdings) {
  return out << holdings.descriptors << " descriptors and " << holdings.shared_mappings
             << " shared mappings";
}

Holdings AwaitHoldings(pid_t pid, const Holdings& expected, int64_t timeout_ms) {
  const int64_t deadline_ns = MonotonicNanos() + timeout_ms * 1'000'000;
  Holdings now = HoldingsOf(pid);
  while (now != expected && MonotonicNanos() < deadline_ns) {
    // Nothing tells of another process's unmapping, so look again, and leave it the processor.
    ::poll(nullptr, 0, 2);
    now = HoldingsOf(pid);
  }
  return now;
}

}  // namespace spccl::testing
