// The same training, once with each plan, and what was seen.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/private_daemon.h"
#include "examples/classifier/corpus.h"
#include "examples/classifier/training.h"

namespace classifier {

struct Settings {
  std::string corpus = "auto";
  int per_class = 400;
  int bucket_bits = 20;
  int ranks = 4;
  uint32_t nodes = 1;
  Schedule schedule{.epochs = 3, .batch = 8, .rate = 20};
  bool json = false;
  std::string runtime_dir;    // of a running daemon; empty: a private one
  std::string daemon_binary;  // of private ones; empty: beside this program
  // For private ones, a node each; see spccl::bench::DaemonWish.
  std::vector<std::string> daemon_arguments;
  std::string launcher;
  std::string meeting;  // see launched.h; empty: the ranks are forked from here
};

// How spccl is told to sum: what SPCCL_ALGO and SPCCL_CODEC say; empty: nothing.
struct Plan {
  const char* name;
  const char* algo;
  const char* codec;
};
inline constexpr Plan kPlans[] = {{"flat ring, dense", "ring", "dense"},
                                  {"flat ring, sparse", "ring", "pici"},
                                  {"local plan", "local", "auto"}};
inline constexpr Plan kPlansBetweenNodes[] = {{"flat ring, dense", "ring", "dense"},
                                              {"flat ring, sparse", "ring", "pici"},
                                              {"daemon's choice, dense", "auto", "dense"},
                                              {"daemon's choice", "auto", "auto"}};
// Those that are compared, the first being what the others are measured by.
std::span<const Plan> PlansFor(const Settings& settings);

// One training.
struct Outcome {
  Plan plan;
  double accuracy;  // on the held-out documents
  uint64_t weights_digest;
  bool ranks_agree;      // all ranks ended with the same weights
  double step_us;        // median over the steps, of the slowest rank
  double all_reduce_us;  // median, from the last rank's call to its return
  double sparsity;       // of a rank's gradient, mean
  double sum_sparsity;   // of the sum, mean
  int steps;
};

// The documents as the model sees them.
struct Data {
  std::vector<Example> train;
  std::vector<Example> held_out;
  int classes;
};
Data Featurize(const Corpus& corpus, int bucket_bits);

// Forks the ranks and trains, with these daemons.
absl::StatusOr<Outcome> TrainWith(const Plan& plan, const Data& data, const Settings& settings,
                                  const spccl::bench::Daemons& daemons);

}  // namespace classifier
