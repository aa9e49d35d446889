// Learns from a sweep which way to run an operation: one classifier a collective, over size,
// density, nodes and ranks, after PCCL (Singh et al., section IV-C: an SVM, a stratified 80/20
// split, its parameters by five-fold cross-validation on the larger part).
//
// Two things are done otherwise. Ways that are as fast as the fastest within a tie (2%: less than
// what a repeated measurement differs by) count as one: the label is the way that is among the
// fastest in most cases, so that noise makes no classes. And parameters are chosen by the time that
// is lost, not by the number of errors: an error between equals costs nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/tune/samples.h"
#include "bench/tune/svm.h"
#include "collective/policy/plan_table.h"

namespace spccl::tune {

struct TrainOptions {
  double tie = 0.02;
  int folds = 5;  // of which one is held out, and of the cross-validation
  uint64_t seed = 1;
};

// How good choices were, on some cases.
struct Score {
  int cases = 0;
  int right = 0;         // within a tie of the fastest that was measured
  double mean_loss = 0;  // time over the fastest's, less 1; "auto" is one of what was measured
  double worst_loss = 0;
  double accuracy() const { return cases == 0 ? 0 : 1.0 * right / cases; }
};

// What was learned of one collective.
struct Learned {
  OpKind op = OpKind::kAllReduce;
  int cases = 0;
  double c = 0, gamma = 0;
  std::vector<std::string> ways{};      // what labels stand for
  Score held_out{}, cross_validated{};  // of the classifier that has seen the others only
  Score cost_model{};                   // on the held-out cases
  std::map<policy::PlanModel::Shape, policy::PlanGrid> grids{};
};

// The label of each case: an index into *ways.
std::vector<int> Label(const std::vector<Measured>& cases, double tie,
                       std::vector<std::string>* ways);

// The fold of each, from 0 to folds - 1: each label's members are spread over the folds evenly, to
// one, and all of them are too.
std::vector<int> StratifiedFolds(const std::vector<int>& labels, int folds, uint64_t seed);

// `cases` are of one collective. InvalidArgument: fewer than two a fold.
absl::StatusOr<Learned> Train(const std::vector<Measured>& cases, const TrainOptions& options);

}  // namespace spccl::tune
