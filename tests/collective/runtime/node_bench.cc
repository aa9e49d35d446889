// Not a test: what an operation between two nodes costs where the network costs little. Both nodes
// are in this process, over TCP on the loopback device.
//
//   collective_node_bench [MiB] [rounds]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/collective/runtime/cluster.h"
#include "tests/collective/runtime/ucx_nodes.h"

namespace spccl::runtime {
namespace {

OpResult RunOnce(UcxNodes* nodes, const ClusterCase& c, uint64_t sequence,
                 testing::RankMemory* memory, double* ms) {
  policy::Tuning tuning;
  tuning.algorithm = c.algorithm;
  tuning.slice_bytes = c.slice_bytes;
  testing::ResultBox boxes[2];
  const int64_t begin = MonotonicNanos();
  std::vector<std::thread> threads;
  for (uint32_t node : {0U, 1U}) {
    threads.emplace_back([&, node] {
      auto made = nodes->Make(node, sequence, c.op, *memory, c.settings, tuning, boxes[node].Fn());
      if (made.ok()) testing::RunTask(made->task.get(), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  *ms = static_cast<double>(MonotonicNanos() - begin) / 1e6;
  return boxes[0].result().value_or(OpResult{});
}

void Measure(UcxNodes* nodes, ClusterCase c, uint64_t* sequence, int rounds) {
  const std::vector<testing::Bytes> inputs = InputsOf(c);
  testing::RankMemory memory(c.op, inputs, c.in_place, 0);
  std::vector<double> times;
  OpStats stats;
  for (int round = 0; round < rounds; ++round) {
    double ms;
    const OpResult result = RunOnce(nodes, c, (*sequence)++, &memory, &ms);
    if (!result.status.ok()) std::printf("failed: %s\n", result.status.ToString().c_str());
    times.push_back(ms);
    stats = result.stats;
  }
  std::sort(times.begin(), times.end());
  const auto ms = [](uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  std::printf(
      "%-18s %-10s sparsity %.2f %s: median %7.2f least %7.2f ms; wire %.3f of dense; "
      "encode %.2f reduce %.2f send %.2f ms\n",
      std::string(policy::NameOf(c.algorithm)).c_str(), std::string(NameOf(c.op.kind)).c_str(),
      c.sparsity, c.in_place != 0 ? "in place" : "apart   ", times[times.size() / 2], times[0],
      static_cast<double>(stats.wire_bytes) / static_cast<double>(stats.dense_bytes),
      ms(stats.encode_ns), ms(stats.reduce_ns), ms(stats.send_ns));
}

}  // namespace
}  // namespace spccl::runtime

int main(int argc, char** argv) {
  using namespace spccl;
  using namespace spccl::runtime;
  const uint64_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  UcxNodes nodes({0, 1});
  uint64_t sequence = 0;
  for (const double sparsity : {0.99, 0.9, 0.0}) {
    for (const uint64_t in_place : {uint64_t{0}, ~uint64_t{0}}) {
      ClusterCase c;
      c.algorithm = policy::Algorithm::kRecursiveDoubling;
      c.op = {.count = (mib << 20) / 4};
      c.sparsity = sparsity;
      c.in_place = in_place;
      c.slice_bytes = 0;
      Measure(&nodes, c, &sequence, rounds);
      c.algorithm = policy::Algorithm::kSplit;
      Measure(&nodes, c, &sequence, rounds);
    }
  }
}
