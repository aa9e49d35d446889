// Ranks as processes of their own, joined in one communicator of a daemon that was started for
// them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "tests/support/multi_process.h"

namespace spccl::testing {

struct RankWorld {
  int rank;
  int ranks;
  spcclComm_t comm;
  pid_t daemon_pid;
  // Blocks until every rank has called it as often; nothing of spccl takes part.
  std::function<void()> meet;
};

// 0: all was well; else a line number or a count.
using RankBody = std::function<int(const RankWorld& world, const MultiProcess::Report& report)>;

// Starts spccld with `flags`, forks the ranks with `environment` set in them, joins them, runs
// `body` in each and destroys the communicator. False, with what was reported on stderr, if
// anything went wrong.
bool RunRanks(int ranks, const RankBody& body,
              const std::map<std::string, std::string>& environment = {},
              const std::vector<std::string>& flags = {});

}  // namespace spccl::testing
