// The lossy formats' promises on every target: bounds that hold for every finite element, all else
// bit for bit; and the expectations of QSGD.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/host/codec.h"
#include "kernels/lossy_layout.h"
#include "tests/kernels/host/elements.h"
#include "tests/kernels/host/lossy_vectors.h"

namespace spccl {
namespace {

class LossyTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ForceTarget(GetParam()));
    rng_.seed(TestSeed());
  }
  void TearDown() override { ForceTarget(""); }

  template <class T>
  void HoldsBounds();
  template <class T>
  void ReducesWhatItDecodes();
  template <class T>
  void IsUnbiased(Format format);
  template <class T>
  void RoundsToNeighbours(Format format);

  std::mt19937_64 rng_;
};

template <class T>
void LossyTest::HoldsBounds() {
  for (const uint64_t elements : {0, 1, 63, 64, 65, 255, 256, 257, 511, 513, 3000}) {
    for (int kind = 0; kind < kVectorKinds; ++kind) {
      for (const bool relative : {false, true}) {
        // From hopeless to larger than all.
        const double value = std::exp2(relative ? -1.0 - static_cast<double>(rng_() % 40)
                                                : static_cast<double>(rng_() % 200) - 160);
        SCOPED_TRACE(testing::Message()
                     << elements << " elements, kind " << kind << ", bound " << value
                     << (relative ? " relative" : "") << ", seed " << TestSeed());
        const std::vector<T> x = Vector<T>(kind, elements, rng_);
        const std::vector<T> y = Decoded<T>(Frame(x, {value, relative}), elements);
        const double bound = relative ? value * LargestFiniteOf(x) : value;
        for (uint64_t i = 0; i < elements; ++i) {
          if (std::isfinite(x[i])) {
            ASSERT_TRUE(Within(x[i], y[i], bound)) << x[i] << " came back as " << y[i];
          } else {
            // Bit by bit: a NaN equals nothing.
            const void *const given = &x[i], *const back = &y[i];
            ASSERT_EQ(std::memcmp(given, back, sizeof(T)), 0) << x[i];
          }
        }
      }
    }
  }
}

TEST_P(LossyTest, HoldsBoundsOfFloat32) {
  HoldsBounds<float>();
}
TEST_P(LossyTest, HoldsBoundsOfFloat64) {
  HoldsBounds<double>();
}

// The ends of the types: nothing overflows, and what cannot be quantised comes back as it was.
TEST_P(LossyTest, HoldsExtremeBounds) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  const std::vector<float> x = {kMost, -kMost, kLeast, -kLeast, 0.0F, -0.0F, 1.0F, 0x1p-126F};
  for (const double bound :
       {5e-324, 1e-300, 1e-45, 1.4e-45, 1e-38, 1.0, 1e38, 3.4e38, 1e39, 1e308}) {
    const std::vector<float> y = Decoded<float>(Frame(x, {bound, false}), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(std::isfinite(y[i]) && Within(x[i], y[i], bound)) << x[i] << " bound " << bound;
    }
  }
}

TEST_P(LossyTest, SmoothFieldsTakeFewBytes) {
  std::vector<float> x(1 << 16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) / 1000);
  EXPECT_LT(Frame(x, {1e-3, false}).size(), x.size() * 4 / 10);
}

// A block needs its index entry, its base and widths, and nothing of the blocks before it.
TEST_P(LossyTest, ABlockCanBeDecodedByItself) {
  const std::vector<float> x = Vector<float>(6, 5000, rng_);
  const Bytes frame = Frame(x, {1e-3, false});
  const std::vector<float> y = Decoded<float>(frame, x.size());
  FrameHeader header;
  ErrorBoundHead head;
  std::memcpy(&header, frame.data(), sizeof(header));
  std::memcpy(&head, frame.data() + sizeof(header), sizeof(head));
  const ErrorBoundLayout layout = ErrorBoundLayoutOf(4, x.size(), header.nnz, head.plane_words);
  const auto at = [&]<class V>(V, uint64_t offset) {
    V value;
    std::memcpy(&value, frame.data() + offset, sizeof(V));
    return value;
  };
  const auto is_exact = [&](uint64_t element) {
    for (uint64_t i = 0; i < header.nnz; ++i) {
      if (at(uint32_t{}, layout.positions + 4 * i) == element) return true;
    }
    return false;
  };
  for (uint64_t block = ErrorBlocksOf(x.size()); block-- > 0;) {
    uint64_t word = at(uint32_t{}, layout.index + 4 * block);
    auto integer = at(int32_t{}, layout.bases + 4 * block);
    for (uint64_t i = 0; i < kErrorBlockElements; ++i) {
      const uint64_t group = block * kErrorBlockGroups + i / 64;
      const uint32_t width = frame[layout.widths + group];
      uint32_t folded = 0;
      for (uint32_t plane = 0; plane < width; ++plane) {
        folded |= (at(uint64_t{}, layout.planes + 8 * (word + plane)) >> (i % 64) & 1) << plane;
      }
      integer += static_cast<int32_t>(folded >> 1) ^ -static_cast<int32_t>(folded & 1);
      if (i % 64 == 63) word += width;
      const uint64_t element = block * kErrorBlockElements + i;
      if (element >= x.size() || is_exact(element)) continue;
      ASSERT_EQ(y[element], static_cast<float>(integer) * static_cast<float>(head.quantum));
    }
  }
}

template <class T>
void LossyTest::ReducesWhatItDecodes() {
  for (const uint64_t elements : {0, 1, 255, 257, 1025, 2500}) {
    const std::vector<T> x = Vector<T>(2, elements, rng_);
    std::vector<Bytes> frames = {Frame(x, {1e-3, false})};
    for (const Format format : {Format::kQsgd2, Format::kQsgd4, Format::kQsgd8}) {
      Bytes frame(MaxFrameBytes(format, kTypeOf<T>, elements) + kEncodeSlack);
      const auto encoded =
          EncodeQsgd(format, kTypeOf<T>, x.data(), elements, {.seed = rng_()}, frame.data());
      ASSERT_TRUE(encoded.has_value());
      frame.resize(encoded->frame_bytes);
      frames.push_back(frame);
    }
    for (const Bytes& frame : frames) {
      const std::vector<T> y = Decoded<T>(frame, elements);
      Buffer sum(elements * sizeof(T), 5 * sizeof(T), 256);
      const std::vector<T> before = Vector<T>(0, elements, rng_);
      if (elements != 0) std::memcpy(sum.data(), before.data(), elements * sizeof(T));
      ReduceInto(frame.data(), sum.data(), kTypeOf<T>);
      EXPECT_TRUE(sum.Intact());
      for (uint64_t i = 0; i < elements; ++i) {
        T value;
        std::memcpy(&value, sum.data() + i * sizeof(T), sizeof(T));
        ASSERT_EQ(value, before[i] + y[i]) << i << " seed " << TestSeed();
      }
    }
  }
}

TEST_P(LossyTest, ReducesWhatItDecodes) {
  ReducesWhatItDecodes<float>();
  ReducesWhatItDecodes<double>();
}

// Over many fixed seeds the mean of an element is within six of its standard deviations: for
// 2 * 3 * 128 elements a false alarm comes once in a million sets of seeds, and the set is fixed.
template <class T>
void LossyTest::IsUnbiased(Format format) {
  constexpr uint64_t kElements = 128;
  constexpr int kSeeds = 4000;
  std::mt19937_64 rng(20261128);
  const std::vector<T> x = Vector<T>(2, kElements, rng);
  const double scale = LargestFiniteOf(x) / ((1 << (QsgdBits(format) - 1)) - 1);
  std::vector<double> sums(kElements);
  Bytes frame(MaxFrameBytes(format, kTypeOf<T>, kElements) + kEncodeSlack);
  std::vector<T> y(kElements);
  for (int seed = 0; seed < kSeeds; ++seed) {
    ASSERT_TRUE(EncodeQsgd(format, kTypeOf<T>, x.data(), kElements, {.seed = rng()}, frame.data()));
    Decode(frame.data(), y.data());
    for (uint64_t i = 0; i < kElements; ++i) sums[i] += y[i];
  }
  for (uint64_t i = 0; i < kElements; ++i) {
    const double size = std::fabs(x[i]) / scale;
    const double up = size - std::floor(size);
    const double deviation = scale * std::sqrt(up * (1 - up) / kSeeds);
    EXPECT_NEAR(sums[i] / kSeeds, x[i], 6 * deviation + 1e-6 * scale) << i;
  }
}

TEST_P(LossyTest, QsgdIsUnbiased) {
  for (const Format format : {Format::kQsgd2, Format::kQsgd4, Format::kQsgd8}) {
    SCOPED_TRACE(NameOf(format));
    IsUnbiased<float>(format);
    IsUnbiased<double>(format);
  }
}

template <class T>
void LossyTest::RoundsToNeighbours(Format format) {
  for (const uint64_t elements : {1, 64, 1000, 1024, 1025, 4000}) {
    const std::vector<T> x = Vector<T>(static_cast<int>(rng_() % 2) * 2, elements, rng_);
    const uint64_t seed = rng_();
    Bytes frame(MaxFrameBytes(format, kTypeOf<T>, elements) + kEncodeSlack), again = frame;
    const auto encoded =
        EncodeQsgd(format, kTypeOf<T>, x.data(), elements, {.seed = seed}, frame.data());
    ASSERT_TRUE(encoded.has_value());
    EncodeQsgd(format, kTypeOf<T>, x.data(), elements, {.seed = seed}, again.data());
    EXPECT_TRUE(frame == again) << "the same seed makes the same frame";
    EncodeQsgd(format, kTypeOf<T>, x.data(), elements, {.seed = seed + 1}, again.data());
    EXPECT_TRUE(frame != again || elements == 1) << "another seed another";
    frame.resize(encoded->frame_bytes);
    const std::vector<T> y = Decoded<T>(frame, elements);
    for (uint64_t i = 0; i < elements; ++i) {
      const auto bucket = x.begin() + static_cast<ptrdiff_t>(i / 1024 * 1024);
      const auto end = std::min(bucket + 1024, x.end());
      const double scale =
          LargestFiniteOf(std::vector<T>(bucket, end)) / ((1 << (QsgdBits(format) - 1)) - 1);
      ASSERT_LE(std::fabs(double{x[i]} - double{y[i]}), scale * 1.00001) << "seed " << TestSeed();
    }
  }
}

TEST_P(LossyTest, QsgdRoundsToNeighboursAndIsReproducible) {
  for (const Format format : {Format::kQsgd2, Format::kQsgd4, Format::kQsgd8}) {
    RoundsToNeighbours<float>(format);
    RoundsToNeighbours<double>(format);
  }
}

// However a vector is cut between buckets, its elements draw the same.
TEST_P(LossyTest, QsgdDrawsByTheNumberOfTheElement) {
  for (const uint64_t first : {uint64_t{0}, uint64_t{48}, (uint64_t{1} << 32) - 2000}) {
    const std::vector<float> x = Vector<float>(2, 10 * kBucketElements + 100, rng_);
    const uint64_t seed = rng_();
    const auto decoded = [&](uint64_t from, uint64_t to) {
      Bytes frame(MaxFrameBytes(Format::kQsgd4, DType::kFloat32, to - from) + kEncodeSlack);
      const auto encoded = EncodeQsgd(Format::kQsgd4, DType::kFloat32, x.data() + from, to - from,
                                      {.seed = seed, .first = first + from}, frame.data());
      EXPECT_TRUE(encoded.has_value());
      frame.resize(encoded->frame_bytes);
      return Decoded<float>(frame, to - from);
    };
    const std::vector<float> whole = decoded(0, x.size());
    for (const uint64_t step : {1, 2, 3, 7}) {
      std::vector<float> parts;
      for (uint64_t from = 0; from < x.size(); from += step * kBucketElements) {
        const auto part = decoded(from, std::min(from + step * kBucketElements, x.size()));
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(parts == whole) << step << " buckets a part, first " << first;
    }
  }
}

// Equal elements come to both of their levels in every bucket, in other places in each, and beyond
// 2^32 in others again.
TEST_P(LossyTest, QsgdDrawsDifferFromBucketToBucket) {
  constexpr uint64_t kBuckets = 8;
  std::vector<float> x(kBuckets * kBucketElements, 0.5F);
  for (uint64_t i = 0; i < x.size(); i += kBucketElements) x[i] = 1;
  const auto decoded = [&](uint64_t first) {
    Bytes frame(MaxFrameBytes(Format::kQsgd2, DType::kFloat32, x.size()) + kEncodeSlack);
    EncodeQsgd(Format::kQsgd2, DType::kFloat32, x.data(), x.size(), {.seed = 1, .first = first},
               frame.data());
    std::vector<float> y(x.size());
    Decode(frame.data(), y.data());
    return y;
  };
  const auto alike = [](const float* a, const float* b) {
    int count = 0;
    for (uint64_t i = 1; i < kBucketElements; ++i) count += a[i] == b[i] ? 1 : 0;
    return count;
  };
  const std::vector<float> y = decoded(0), beyond = decoded(uint64_t{1} << 32);
  // Half of 1,023 in six standard deviations of 16.
  for (uint64_t a = 0; a < kBuckets; ++a) {
    const float* const bucket = y.data() + a * kBucketElements;
    EXPECT_NEAR(std::count(bucket + 1, bucket + kBucketElements, 1.0F), 512, 96);
    EXPECT_NEAR(alike(bucket, beyond.data() + a * kBucketElements), 512, 96);
    for (uint64_t b = 0; b < a; ++b) {
      EXPECT_NEAR(alike(bucket, y.data() + b * kBucketElements), 512, 96) << a << " " << b;
    }
  }
}

TEST_P(LossyTest, QsgdRefusesWhatItCannotScale) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::nanf(""), 0x1p-120F, 3e38F}) {
    std::vector<float> x(1500);
    x[1200] = bad;
    Bytes frame(MaxFrameBytes(Format::kQsgd4, DType::kFloat32, x.size()) + kEncodeSlack);
    EXPECT_FALSE(
        EncodeQsgd(Format::kQsgd4, DType::kFloat32, x.data(), x.size(), {.seed = 1}, frame.data()))
        << bad;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LossyTest, testing::ValuesIn(TestedTargets()),
                         [](const auto& info) { return TestName(info.param); });

TEST(ErrorBoundTest, OnlyPositiveFiniteBoundsAreValid) {
  EXPECT_TRUE(IsValid(ErrorBound{1e-300, false}));
  EXPECT_TRUE(IsValid(ErrorBound{1e300, false}));
  EXPECT_TRUE(IsValid(ErrorBound{0.5, true}));
  EXPECT_FALSE(IsValid(ErrorBound{1, true}));
  for (const double bad : {0.0, -0.0, -1.0, std::nan(""), -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(IsValid(ErrorBound{bad, false})) << bad;
    EXPECT_FALSE(IsValid(ErrorBound{bad, true})) << bad;
  }
}

}  // namespace
}  // namespace spccl
