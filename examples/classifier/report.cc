#include "examples/classifier/report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace classifier {

bool SameWeights(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (!outcome.ranks_agree || outcome.weights_digest != outcomes[0].weights_digest) return false;
  }
  return true;
}

std::string Text(const Corpus& corpus, const Settings& settings,
                 const std::vector<Outcome>& outcomes) {
  const Outcome& first = outcomes[0];
  const double parameters = std::ldexp(corpus.classes.size(), settings.bucket_bits);
  std::string text = absl::StrFormat(
      "\nAccuracy on %d held-out documents: %.1f%% (always the largest class: %.1f%%).\n"
      "A gradient has %.0f elements (%.0f MiB); of a rank's %.2f%% are zero, of the sum's "
      "%.2f%%.\n\n%-20s %12s %14s %12s\n",
      corpus.held_out.size(), 100 * first.accuracy, 100 * corpus.Chance(), parameters,
      parameters * sizeof(float) / (1 << 20), 100 * first.sparsity, 100 * first.sum_sparsity,
      "plan", "step, ms", "all-reduce, ms", "of the first");
  for (size_t i = 0; i < outcomes.size(); ++i) {
    absl::StrAppendFormat(&text, "%-20s %12.2f %14.2f %11.2fx\n", outcomes[i].plan.name,
                          outcomes[i].step_us / 1e3, outcomes[i].all_reduce_us / 1e3,
                          first.all_reduce_us / outcomes[i].all_reduce_us);
  }
  absl::StrAppend(&text, SameWeights(outcomes)
                             ? "\nAll ranks of all runs end with the same weights, bit by bit.\n"
                             : "\nThe weights DIFFER.\n");
  return text;
}

std::string Json(const Corpus& corpus, const Settings& settings,
                 const std::vector<Outcome>& outcomes) {
  nlohmann::ordered_json all = {
      {"corpus", corpus.source},
      {"classes", corpus.classes},
      {"train_documents", corpus.train.size()},
      {"held_out_documents", corpus.held_out.size()},
      {"chance", corpus.Chance()},
      {"parameters", corpus.classes.size() << settings.bucket_bits},
      {"ranks", settings.ranks},
      {"nodes", settings.nodes},
      {"epochs", settings.schedule.epochs},
      {"batch", settings.schedule.batch},
      {"accuracy", outcomes[0].accuracy},
      {"gradient_sparsity", outcomes[0].sparsity},
      {"sum_sparsity", outcomes[0].sum_sparsity},
      {"same_weights", SameWeights(outcomes)},
  };
  for (size_t i = 0; i < outcomes.size(); ++i) {
    all["runs"].push_back({{"plan", outcomes[i].plan.name},
                           {"algo", outcomes[i].plan.algo},
                           {"codec", outcomes[i].plan.codec},
                           {"steps", outcomes[i].steps},
                           {"step_us", outcomes[i].step_us},
                           {"all_reduce_us", outcomes[i].all_reduce_us},
                           {"accuracy", outcomes[i].accuracy},
                           {"weights", absl::StrFormat("%016x", outcomes[i].weights_digest)}});
  }
  return all.dump() + "\n";
}

}  // namespace classifier
