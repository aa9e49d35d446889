#include "tests/client/rank_world.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <new>

#include "base/futex.h"
#include "base/status.h"
#include "tests/support/daemon_env.h"

namespace spccl::testing {
namespace {

constexpr int64_t kTimeoutMs = 90'000;

// Where rank 0 leaves the unique id for the others, and where they meet: shared by fork().
struct Noticeboard {
  std::atomic<uint32_t> ready{0};
  std::atomic<uint32_t> arrived{0};
  spcclUniqueId id;

  static Noticeboard* Create() {
    void* memory = ::mmap(nullptr, sizeof(Noticeboard), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SPCCL_CHECK(memory != MAP_FAILED);
    return new (memory) Noticeboard;
  }

  spcclResult_t Exchange(int rank) {
    if (rank == 0) {
      const spcclResult_t result = spcclGetUniqueId(&id);
      ready.store(1 + result, std::memory_order_release);
      FutexWakeAll(&ready);
    }
    while (ready.load(std::memory_order_acquire) == 0) FutexWait(&ready, 0, -1);
    return static_cast<spcclResult_t>(ready.load(std::memory_order_acquire) - 1);
  }

  void Meet(uint32_t ranks) {
    // What each did before is visible to all afterwards.
    const uint32_t before = arrived.fetch_add(1, std::memory_order_acq_rel);
    const uint32_t all = (before / ranks + 1) * ranks;
    if (before + 1 == all) FutexWakeAll(&arrived);
    for (uint32_t seen; (seen = arrived.load(std::memory_order_acquire)) < all;) {
      FutexWait(&arrived, seen, -1);
    }
  }
};

int RunRank(RankWorld world, Noticeboard* board, const RankBody& body,
            const MultiProcess::Report& report) {
  const int rank = world.rank;
  spcclResult_t result = board->Exchange(rank);
  if (result == spcclSuccess) result = spcclCommInitRank(&world.comm, world.ranks, board->id, rank);
  if (result == spcclSuccess) {
    if (const int failed = body(world, report); failed != 0) return failed > 255 ? 255 : failed;
    result = spcclCommDestroy(world.comm);
  }
  if (result != spcclSuccess) report(std::string(spcclGetLastError(nullptr)) + "\n");
  return result;
}

}  // namespace

bool RunRanks(int ranks, const RankBody& body,
              const std::map<std::string, std::string>& environment,
              const std::vector<std::string>& flags) {
  auto daemon = SpawnedDaemon::Start(flags);
  if (!daemon.ok()) {
    std::cerr << daemon.status() << std::endl;
    return false;
  }
  Noticeboard* board = Noticeboard::Create();
  MultiProcess processes(ranks, [&](int rank, const MultiProcess::Report& report) {
    ::setenv("SPCCL_RUNTIME_DIR", (*daemon)->runtime_dir().c_str(), 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    const RankWorld world{.rank = rank,
                          .ranks = ranks,
                          .comm = nullptr,
                          .daemon_pid = (*daemon)->pid(),
                          .meet = [board, ranks] { board->Meet(static_cast<uint32_t>(ranks)); }};
    return RunRank(world, board, body, report);
  });
  const bool succeeded = AllSucceeded(processes.Wait(kTimeoutMs));
  if (!succeeded) std::cerr << (*daemon)->ReadLog();
  ::munmap(board, sizeof *board);
  return succeeded;
}

}  // namespace spccl::testing
