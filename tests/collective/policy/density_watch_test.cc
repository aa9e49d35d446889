#include "collective/policy/density_watch.h"

#include <cstdint>
#include <random>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::policy {
namespace {

constexpr uint64_t kInput = 100'000;

// What a leader does after each operation. Whether it took news.
bool Review(DensityWatch* watch, double* known) {
  const auto news = watch->News(*known);
  if (news) {
    *known = *news;
    watch->Taken();
  }
  return news.has_value();
}

TEST(DensityWatchTest, TheFirstOperationIsNews) {
  DensityWatch watch;
  EXPECT_FALSE(watch.News(1));
  watch.Saw(0, 0);
  EXPECT_FALSE(watch.News(1));
  watch.Saw(kInput / 100, kInput);
  EXPECT_EQ(watch.News(1), 0.01);
  EXPECT_FALSE(watch.News(0.01));
  EXPECT_FALSE(watch.News(0.014));
  EXPECT_EQ(watch.News(0.016), 0.01);
}

TEST(DensityWatchTest, NothingButZerosIsNoDensityToPlanFor) {
  DensityWatch watch;
  watch.Saw(0, kInput);
  EXPECT_FALSE(watch.News(1));
}

TEST(DensityWatchTest, AChangeThatStaysIsNewsSoonAndOnce) {
  DensityWatch watch;
  double known = 1;
  watch.Saw(kInput / 100, kInput);
  EXPECT_TRUE(Review(&watch, &known));
  int reviews = 0;
  for (int i = 0; i < 20; ++i) {
    watch.Saw(kInput / 10, kInput);
    if (!Review(&watch, &known)) continue;
    ++reviews;
    EXPECT_EQ(i, 1);
  }
  EXPECT_EQ(reviews, 1);
  EXPECT_EQ(known, 0.1);
}

TEST(DensityWatchTest, OperationsThatTakeTurnsAreNewsOnce) {
  DensityWatch watch;
  double known = 1;
  int reviews = 0;
  for (int i = 0; i < 1000; ++i) {
    watch.Saw(i % 2 == 0 ? kInput / 100 : kInput, kInput);
    reviews += Review(&watch, &known);
  }
  EXPECT_EQ(reviews, 1);
  EXPECT_EQ(known, 0.01);
}

// Each phase as long as it takes to be news, which is longer each time.
TEST(DensityWatchTest, LongTurnsAreNewsEverMoreSeldom) {
  DensityWatch watch;
  double known = 1;
  int reviews = 0;
  for (int i = 0; i < 6400; ++i) {
    const bool sparse = known > 0.1;
    watch.Saw(sparse ? kInput / 100 : kInput, kInput);
    reviews += Review(&watch, &known);
  }
  EXPECT_GE(reviews, 100);  // it still follows
  EXPECT_LE(reviews, 107);
}

TEST(DensityWatchTest, FewNonzerosVaryWithoutBeingNews) {
  std::mt19937_64 random(TestSeed());
  std::poisson_distribution<uint64_t> nonzeros(1.6);
  DensityWatch watch;
  double known = 1.6 / kInput;
  for (int i = 0; i < 10'000; ++i) {
    watch.Saw(nonzeros(random), kInput);
    if (Review(&watch, &known)) ADD_FAILURE() << known * kInput << " nonzeros";
  }
}

}  // namespace
}  // namespace spccl::policy
