#include "bench/model/paper.h"

#include <cmath>
#include <map>

#include "bench/model/fit.h"
#include "gtest/gtest.h"

namespace spccl::bench::model {
namespace {

using Agrees = Verdict::Agrees;

const System& Of(const char* preset) {
  return FindPreset(preset)->system;
}

// What docs/model.md tells. The fitted system meets all that the SpCCL paper says within 15%.
TEST(PaperTest, ModelBesideThePaper) {
  const std::map<std::string, double> kModel = {
      {"all-gather, 99%, largest", 5.16},
      {"reduce-scatter, 99%, largest", 2.40},
      {"all-reduce, 99%, largest", 3.01},
      {"all-reduce, 99%, 16 GPUs, pici over coo", 1.16},
      {"all-reduce, 95%, 16 GPUs, pici over coo", 1.27},
  };
  size_t found = 0;
  for (const Claim& claim : Claims()) {
    const Verdict verdict = Judge(claim, Of("perlmutter"), 0.15);
    if (claim.fitted) EXPECT_NE(verdict.agrees, Agrees::kNo) << claim.what;
    const auto expected = kModel.find(claim.what);
    if (expected == kModel.end()) continue;
    ++found;
    EXPECT_NEAR(verdict.outcome.value, expected->second, 0.01) << claim.what;
    EXPECT_EQ(verdict.agrees, Agrees::kYes) << claim.what;
  }
  EXPECT_EQ(found, kModel.size());
}

// Kernels at the memory's rate would do two to three times better than the paper: the model says
// that, and what kernels the paper's must have been.
TEST(PaperTest, DisagreementsAreExplained) {
  for (const Claim& claim : Claims()) {
    if (claim.what.find("largest") == std::string::npos) continue;
    const Verdict verdict = Judge(claim, Of("perlmutter-floor"), 0.15);
    EXPECT_EQ(verdict.agrees, Agrees::kNo);
    EXPECT_GT(verdict.outcome.value, 2 * claim.high);
    EXPECT_NE(verdict.why.find("the paper's takes kernels that reach 0."), std::string::npos)
        << verdict.why;
  }
}

TEST(PaperTest, VerdictsKnowNumbersFromRanges) {
  Claim claim{.what = "x", .low = 2, .high = 2};
  claim.model = [](const System&) { return Outcome{2.2, "there", "links"}; };
  EXPECT_EQ(Judge(claim, {}, 0.15).agrees, Agrees::kYes);
  EXPECT_EQ(Judge(claim, {}, 0.05).agrees, Agrees::kNo);
  claim.low = 1;
  EXPECT_EQ(Judge(claim, {}, 0.15).agrees, Agrees::kNear);
  EXPECT_FALSE(Judge(claim, {}, 0.15).why.empty());
  claim.high = 3;
  EXPECT_EQ(Judge(claim, {}, 0.15).agrees, Agrees::kYes);
}

// The preset's kernels are what the fit finds, and nothing beside it is better.
TEST(FitTest, PresetIsTheFit) {
  const Fit fit = FitToPaper(Of("perlmutter-floor"));
  const System& preset = Of("perlmutter");
  const auto share = [&](Kernel kernel) {
    return preset.kernels.shares[static_cast<size_t>(kernel)];
  };
  EXPECT_NEAR(share(Kernel::kEncode), fit.encode, 0.005);
  EXPECT_NEAR(share(Kernel::kCombine), fit.encode, 0.005);
  EXPECT_NEAR(share(Kernel::kDecode), fit.decode, 0.005);
  EXPECT_NEAR(preset.overlap, fit.overlap, 0.005);
  EXPECT_LT(fit.error, 0.05);
}

TEST(PresetsTest, EveryNumberHasASource) {
  for (const Preset& preset : Presets()) {
    EXPECT_GE(preset.sources.size(), 7U) << preset.name;
    for (const Source& source : preset.sources) {
      const bool known = source.kind == "stated" || source.kind == "derived" ||
                         source.kind == "fitted" || source.kind == "target" ||
                         source.kind == "assumed";
      EXPECT_TRUE(known) << source.kind;
      EXPECT_FALSE(source.where.empty());
    }
  }
  EXPECT_EQ(FindPreset("none"), nullptr);
}

}  // namespace
}  // namespace spccl::bench::model
