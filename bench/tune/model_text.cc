#include "bench/tune/model_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/view.h"

namespace spccl::tune {
namespace {

constexpr size_t kLetters = 26;

// Of the pick; '.' where it is none; what is new is added.
char LetterOf(const policy::Pick& pick, std::vector<policy::Pick>* picks) {
  if (pick == policy::Pick{}) return '.';
  const auto found = std::find(picks->begin(), picks->end(), pick);
  const auto at = static_cast<int>(found - picks->begin());
  if (found == picks->end()) picks->push_back(pick);
  return static_cast<char>('a' + at);
}

void AppendScore(const std::string& prefix, const Score& score, std::string* text) {
  absl::StrAppendFormat(text, "%saccuracy = %.4f\n%smean_loss = %.5f\n%sworst_loss = %.5f\n",
                        prefix, score.accuracy(), prefix, score.mean_loss, prefix,
                        score.worst_loss);
}

void AppendQuality(const Learned& learned, std::string* text) {
  absl::StrAppendFormat(text, "\n[quality.%s]\ncases = %d\nheld_out = %d\n",
                        std::string(NameOf(learned.op)), learned.cases, learned.held_out.cases);
  AppendScore("", learned.held_out, text);
  AppendScore("cost_model_", learned.cost_model, text);
  AppendScore("cross_validated_", learned.cross_validated, text);
  absl::StrAppendFormat(text, "svm_c = %g\nsvm_gamma = %g\n", learned.c, learned.gamma);
}

void AppendGrids(const Learned& learned, std::vector<policy::Pick>* picks, std::string* text) {
  for (const auto& [shape, grid] : learned.grids) {
    absl::StrAppend(text, "\n[plans.", View(NameOf(learned.op)), ".nodes-", shape.nodes, ".ranks-",
                    shape.most_ranks, "]\n");
    for (size_t at = 0; at < grid.picks.size(); at += grid.densities) {
      const uint32_t size = grid.first_size + static_cast<uint32_t>(at / grid.densities);
      std::string row;
      for (size_t i = 0; i < grid.densities; ++i) row += LetterOf(grid.picks[at + i], picks);
      absl::StrAppend(text, policy::BytesOfSizeClass(size), " = \"", row, "\"\n");
    }
  }
}

}  // namespace

absl::StatusOr<std::string> ModelText(const std::vector<Learned>& all, uint32_t channels,
                                      const std::string& made) {
  std::vector<policy::Pick> picks;
  std::string quality, plans;
  for (const Learned& learned : all) {
    AppendQuality(learned, &quality);
    AppendGrids(learned, &picks, &plans);
  }
  if (picks.size() > kLetters) {
    return absl::ResourceExhaustedError(
        absl::StrCat(picks.size(), " different ways to run are fastest somewhere; the format has ",
                     kLetters, " letters for them: measure fewer slice sizes"));
  }
  std::string text = absl::StrCat(
      "# Written by spccl-tune: which plan runs an operation between nodes (docs/tuning.md).\n",
      "format = 1\nmade = \"", made, "\"\nchannels = ", channels, "\n\n[picks]\n");
  for (size_t i = 0; i < picks.size(); ++i) {
    absl::StrAppend(&text, std::string(1, static_cast<char>('a' + i)), " = \"",
                    policy::NameOf(picks[i]), "\"\n");
  }
  return absl::StrCat(
      text, "\n# On the fifth that was held out: accuracy, and time lost over the fastest's.\n",
      quality,
      "\n# By bytes, a letter for each density: 1, 1/2, 1/4 and so on; the last for all below.\n",
      plans);
}

std::string QualityTable(const std::vector<Learned>& all) {
  std::string text = absl::StrFormat("%-15s %6s %9s | %9s %9s %10s | %9s %9s %10s\n", "held out",
                                     "cases", "held out", "accuracy", "mean loss", "worst loss",
                                     "cost m.'s", "mean loss", "worst loss");
  for (const Learned& learned : all) {
    const Score &model = learned.held_out, &cost = learned.cost_model;
    absl::StrAppendFormat(&text,
                          "%-15s %6d %9d | %8.1f%% %8.2f%% %9.2f%% | %8.1f%% %8.2f%% %9.2f%%\n",
                          std::string(NameOf(learned.op)), learned.cases, model.cases,
                          100 * model.accuracy(), 100 * model.mean_loss, 100 * model.worst_loss,
                          100 * cost.accuracy(), 100 * cost.mean_loss, 100 * cost.worst_loss);
  }
  return text;
}

}  // namespace spccl::tune
