#include "examples/classifier/comparison.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"
#include "bench/support/rank_team.h"

namespace classifier {
namespace {

using spccl::bench::RankTeam;
using spccl::bench::SharedArena;

std::vector<Example> FeaturesOf(const std::vector<Document>& documents, int bucket_bits) {
  std::vector<Example> examples;
  for (const Document& document : documents) {
    examples.push_back(
        {.label = document.label, .features = HashTrigrams(document.text, bucket_bits)});
  }
  return examples;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Rank 0's number, for all.
absl::StatusOr<spcclUniqueId> ShareUniqueId(RankTeam& team) {
  spcclUniqueId id = {};
  if (team.rank() == 0) {
    if (const spcclResult_t result = spcclGetUniqueId(&id); result != spcclSuccess) {
      return absl::UnavailableError(
          absl::StrCat(spcclGetErrorString(result), ": ", spcclGetLastError(nullptr)));
    }
  }
  const absl::Status status = team.FromRankZero(&id, sizeof(id));
  if (!status.ok()) return status;
  return id;
}

std::vector<double> Column(const std::vector<StepTime>& times, double StepTime::*column,
                           double sign = 1) {
  std::vector<double> values;
  for (const StepTime& time : times) values.push_back(sign * time.*column);
  return values;
}

// Collective: every rank ends with the same numbers.
absl::Status Summarize(RankTeam& team, const std::vector<StepTime>& times, double parameters,
                       Outcome* outcome) {
  std::vector<double> whole = Column(times, &StepTime::whole_us);
  // The rank that came last waited for nobody: its time is the operation's. The smallest of all
  // ranks' is the largest of their negatives.
  std::vector<double> all_reduce = Column(times, &StepTime::all_reduce_us, -1);
  std::vector<double> nonzero = Column(times, &StepTime::nonzero);
  for (const absl::Status& status :
       {team.MaxOverRanks(whole), team.MaxOverRanks(all_reduce), team.SumOverRanks(nonzero)}) {
    if (!status.ok()) return status;
  }
  outcome->steps = static_cast<int>(times.size());
  outcome->step_us = Median(whole);
  outcome->all_reduce_us = -Median(all_reduce);
  outcome->sparsity = 1 - Mean(nonzero) / team.ranks() / parameters;
  outcome->sum_sparsity = 1 - Mean(Column(times, &StepTime::sum_nonzero)) / parameters;
  return absl::OkStatus();
}

absl::Status TrainRank(RankTeam& team, const Data& data, const Settings& settings,
                       Outcome* outcome) {
  const absl::StatusOr<spcclUniqueId> id = ShareUniqueId(team);
  if (!id.ok()) return id.status();
  Model model(settings.bucket_bits, data.classes);
  absl::StatusOr<Rank> rank = Rank::Join(*id, team.rank(), team.ranks(), model.parameters());
  if (!rank.ok()) return rank.status();

  std::vector<StepTime> times;
  absl::Status status = rank->Train(model, data.train, settings.schedule, &times);
  if (!status.ok()) return status;

  Outcome seen = {};
  status = Summarize(team, times, static_cast<double>(model.parameters()), &seen);
  if (!status.ok()) return status;
  seen.weights_digest = model.Digest();
  uint64_t first_digest = seen.weights_digest;
  status = team.FromRankZero(&first_digest, sizeof(first_digest));
  if (!status.ok()) return status;
  double differs = first_digest != seen.weights_digest ? 1 : 0;
  status = team.MaxOverRanks({&differs, 1});
  if (team.rank() == 0) {
    seen.ranks_agree = differs == 0;
    seen.accuracy = model.Accuracy(data.held_out);
    *outcome = seen;
  }
  return status;
}

}  // namespace

std::span<const Plan> PlansFor(const Settings& settings) {
  if (settings.nodes > 1) return kPlansBetweenNodes;
  return kPlans;
}

Data Featurize(const Corpus& corpus, int bucket_bits) {
  return {.train = FeaturesOf(corpus.train, bucket_bits),
          .held_out = FeaturesOf(corpus.held_out, bucket_bits),
          .classes = static_cast<int>(corpus.classes.size())};
}

absl::StatusOr<Outcome> TrainWith(const Plan& plan, const Data& data, const Settings& settings,
                                  const spccl::bench::Daemons& daemons) {
  setenv("SPCCL_ALGO", plan.algo, 1);
  setenv("SPCCL_CODEC", plan.codec, 1);
  absl::StatusOr<SharedArena> arena = SharedArena::Create(sizeof(Outcome));
  if (!arena.ok()) return arena.status();
  auto* const outcome = new (arena->data()) Outcome();
  const absl::Status status = spccl::bench::RunTeam(settings.ranks, [&](RankTeam& team) {
    daemons.Use(daemons.NodeOf(team.rank(), team.ranks()));
    return TrainRank(team, data, settings, outcome);
  });
  if (!status.ok()) return status;
  outcome->plan = plan;
  return *outcome;
}

}  // namespace classifier
