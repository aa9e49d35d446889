#include "bench/tune/train.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/view.h"

namespace spccl::tune {
namespace {

// Of the mean loss: chance.
constexpr double kNoGain = 1e-3;

double Fastest(const Measured& measured) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const auto& [way, time] : measured.time_us) fastest = std::min(fastest, time);
  return fastest;
}

// Of a way that was not measured, the slowest that was: no better can be claimed of it.
double TimeOf(const Measured& measured, const std::string& way) {
  const auto found = measured.time_us.find(way);
  if (found != measured.time_us.end()) return found->second;
  double slowest = 0;
  for (const auto& [other, time] : measured.time_us) slowest = std::max(slowest, time);
  return slowest;
}

// Of a choice that took `time_us`. "auto" counts among what was measured: it may be faster than
// every way that has a name here.
void AddTo(Score* score, const Measured& measured, double time_us, double tie) {
  const double loss = time_us / std::min(Fastest(measured), measured.auto_us) - 1;
  score->mean_loss = (score->mean_loss * score->cases + loss) / (score->cases + 1);
  score->worst_loss = std::max(score->worst_loss, loss);
  score->right += loss <= tie ? 1 : 0;
  ++score->cases;
}

// A case as the table will see it. Scaled by what was measured: sizes and densities to 0 to 1;
// nodes and ranks, of which few numbers are measured, to less, or no kernel that tells sizes apart
// would reach from one number of nodes to the next.
constexpr Features kSpans = {1, 1, 0.25, 0.25};

class Scale {
 public:
  explicit Scale(const std::vector<Measured>& cases) {
    low_.fill(std::numeric_limits<double>::infinity());
    high_.fill(-std::numeric_limits<double>::infinity());
    for (const Measured& measured : cases) {
      const Features raw = Raw(measured.at);
      for (int i = 0; i < kFeatures; ++i) {
        low_[i] = std::min(low_[i], raw[i]);
        high_[i] = std::max(high_[i], raw[i]);
      }
    }
  }
  Features Of(uint32_t size_class, uint32_t density_class,
              const policy::PlanModel::Shape& shape) const {
    Features row = {1.0 * size_class, 1.0 * density_class, std::log2(shape.nodes),
                    std::log2(shape.most_ranks)};
    for (int i = 0; i < kFeatures; ++i) {
      row[i] = high_[i] > low_[i] ? kSpans[i] * (row[i] - low_[i]) / (high_[i] - low_[i]) : 0;
    }
    return row;
  }
  Features Of(const Case& at) const {
    return Of(policy::SizeClass(at.bytes), policy::DensityClass(1 - at.sparsity),
              {.nodes = at.nodes, .most_ranks = at.most_ranks()});
  }

 private:
  static Features Raw(const Case& at) {
    return {1.0 * policy::SizeClass(at.bytes), 1.0 * policy::DensityClass(1 - at.sparsity),
            std::log2(at.nodes), std::log2(at.most_ranks())};
  }
  Features low_, high_;
};

// Cases to learn from: what is scaled and labelled is by these alone.
class Trainer {
 public:
  Trainer(const std::vector<Measured>& cases, const TrainOptions& options)
      : cases_(cases),
        options_(options),
        scale_(cases),
        labels_(Label(cases, options.tie, &ways_)) {
    for (const Measured& measured : cases) rows_.push_back(scale_.Of(measured.at));
  }

  const std::vector<int>& labels() const { return labels_; }
  const std::vector<std::string>& ways() const { return ways_; }
  const Scale& scale() const { return scale_; }

  Svm Fit(double c, double gamma) const { return Svm::Train(rows_, labels_, c, gamma); }
  // Of a machine that was fitted to these cases, on one of them or another.
  void Test(const Svm& svm, const Measured& measured, Score* score) const {
    const std::string& way = ways_[svm.Predict(scale_.Of(measured.at))];
    AddTo(score, measured, TimeOf(measured, way), options_.tie);
  }

  // The parameters that lose least in cross-validation; in learned->c and ->gamma.
  void Search(Learned* learned) const {
    const std::vector<int> fold = StratifiedFolds(labels_, options_.folds, options_.seed + 1);
    double least = std::numeric_limits<double>::infinity();
    // Of equals the smoothest, which says most of what lies between.
    for (int log_gamma = -5; log_gamma <= 5; log_gamma += 2) {
      for (int log_c = -1; log_c <= 11; log_c += 2) {
        const double c = std::exp2(log_c), gamma = std::exp2(log_gamma);
        const Score score = CrossValidate(fold, c, gamma);
        if (score.mean_loss >= least - kNoGain) continue;
        least = score.mean_loss;
        learned->c = c;
        learned->gamma = gamma;
        learned->cross_validated = score;
      }
    }
  }

 private:
  Score CrossValidate(const std::vector<int>& fold, double c, double gamma) const {
    Score score;
    for (int held = 0; held < options_.folds; ++held) {
      std::vector<Features> rows;
      std::vector<int> labels;
      for (size_t i = 0; i < rows_.size(); ++i) {
        if (fold[i] == held) continue;
        rows.push_back(rows_[i]);
        labels.push_back(labels_[i]);
      }
      const Svm svm = Svm::Train(rows, labels, c, gamma);
      for (size_t i = 0; i < cases_.size(); ++i) {
        if (fold[i] == held) Test(svm, cases_[i], &score);
      }
    }
    return score;
  }

  const std::vector<Measured>& cases_;
  const TrainOptions options_;
  const Scale scale_;
  std::vector<std::string> ways_;
  const std::vector<int> labels_;
  std::vector<Features> rows_;
};

struct Bounds {
  uint32_t low = std::numeric_limits<uint32_t>::max(), high = 0;
  void Take(uint32_t value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// What was measured to be fastest in a cell, where all cases in it agree.
using Cell = std::tuple<policy::PlanModel::Shape, uint32_t, uint32_t>;
std::map<Cell, int> MeasuredCells(const std::vector<Measured>& cases,
                                  const std::vector<int>& labels) {
  std::map<Cell, int> cells;
  std::set<Cell> disputed;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& at = cases[i].at;
    const Cell cell({.nodes = at.nodes, .most_ranks = at.most_ranks()}, policy::SizeClass(at.bytes),
                    policy::DensityClass(1 - at.sparsity));
    const auto [found, is_new] = cells.emplace(cell, labels[i]);
    if (!is_new && found->second != labels[i]) disputed.insert(cell);
  }
  for (const Cell& cell : disputed) cells.erase(cell);
  return cells;
}

// A table for each shape between those that were measured: where it was measured, the fastest;
// between, what the machine says; what is denser than all of them is the cost model's.
void FillGrids(const std::vector<Measured>& cases, const Trainer& trainer, const Svm& svm,
               Learned* learned) {
  Bounds nodes, ranks, sizes, densities;
  for (const Measured& measured : cases) {
    nodes.Take(measured.at.nodes);
    ranks.Take(measured.at.most_ranks());
    sizes.Take(policy::SizeClass(measured.at.bytes));
    densities.Take(policy::DensityClass(1 - measured.at.sparsity));
  }
  const std::map<Cell, int> known = MeasuredCells(cases, trainer.labels());
  for (uint32_t n = nodes.low; n <= nodes.high; ++n) {
    for (uint32_t r = ranks.low; r <= ranks.high; ++r) {
      const policy::PlanModel::Shape shape{.nodes = n, .most_ranks = r};
      policy::PlanGrid& grid = learned->grids[shape];
      grid.first_size = sizes.low;
      grid.densities = densities.high + 1;
      for (uint32_t size = sizes.low; size <= sizes.high; ++size) {
        grid.picks.insert(grid.picks.end(), densities.low, policy::Pick{});  // denser: not measured
        for (uint32_t density = densities.low; density < grid.densities; ++density) {
          const auto found = known.find(Cell(shape, size, density));
          const int label = found != known.end()
                                ? found->second
                                : svm.Predict(trainer.scale().Of(size, density, shape));
          grid.picks.push_back(
              policy::PickFromName(trainer.ways()[label]).value_or(policy::Pick{}));
        }
      }
    }
  }
}

}  // namespace

std::vector<int> Label(const std::vector<Measured>& cases, double tie,
                       std::vector<std::string>* ways) {
  ways->clear();
  std::vector<int> labels(cases.size(), -1);
  const auto ties = [&](size_t i, const std::string& way) {
    return TimeOf(cases[i], way) <= (1 + tie) * Fastest(cases[i]);
  };
  for (size_t left = cases.size(); left > 0;) {
    std::map<std::string, size_t> count;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (labels[i] >= 0) continue;
      for (const auto& [way, time] : cases[i].time_us) count[way] += ties(i, way) ? 1 : 0;
    }
    const auto most =
        std::max_element(count.begin(), count.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    for (size_t i = 0; i < cases.size(); ++i) {
      if (labels[i] >= 0 || !ties(i, most->first)) continue;
      labels[i] = static_cast<int>(ways->size());
      --left;
    }
    ways->push_back(most->first);
  }
  return labels;
}

std::vector<int> StratifiedFolds(const std::vector<int>& labels, int folds, uint64_t seed) {
  std::map<int, std::vector<size_t>> members;
  for (size_t i = 0; i < labels.size(); ++i) members[labels[i]].push_back(i);
  std::mt19937_64 random(seed);
  std::vector<int> fold(labels.size());
  size_t dealt = 0;  // goes on from label to label: the folds are of one size
  for (auto& [label, rows] : members) {
    for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
    for (const size_t row : rows)
      fold[row] = static_cast<int>(dealt++ % static_cast<size_t>(folds));
  }
  return fold;
}

absl::StatusOr<Learned> Train(const std::vector<Measured>& cases, const TrainOptions& options) {
  const size_t least = 2 * static_cast<size_t>(options.folds);
  if (cases.size() < least) {
    return absl::InvalidArgumentError(absl::StrCat("found ", cases.size(),
                                                   " measured cases, expected at least ", least,
                                                   ": two for each of ", options.folds, " folds"));
  }
  // The split alone is by the labels of all: what is held out must not say how the others count.
  const Trainer whole(cases, options);
  const std::vector<int> fold = StratifiedFolds(whole.labels(), options.folds, options.seed);
  std::vector<Measured> train, test;
  for (size_t i = 0; i < cases.size(); ++i) (fold[i] == 0 ? test : train).push_back(cases[i]);
  Learned learned{.op = cases[0].at.op, .cases = static_cast<int>(cases.size())};
  learned.ways = whole.ways();
  const Trainer trainer(train, options);
  trainer.Search(&learned);
  const Svm svm = trainer.Fit(learned.c, learned.gamma);
  for (const Measured& measured : test) {
    trainer.Test(svm, measured, &learned.held_out);
    AddTo(&learned.cost_model, measured, measured.auto_us, options.tie);
  }
  // What the daemons get has seen all cases.
  FillGrids(cases, whole, whole.Fit(learned.c, learned.gamma), &learned);
  return learned;
}

}  // namespace spccl::tune
