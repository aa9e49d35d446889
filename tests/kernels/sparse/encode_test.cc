// What the suites do not reach: scratch that is used again, and the fused hop of a ring.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/kernels/sparse/fibre_codec.h"
#include "tests/support/frame_oracle.h"

namespace spccl {
namespace {

// Launches of all sizes leave words of their look-backs behind; none may be taken for a later
// one's.
TEST(ScratchTest, IsUsedAgainWithoutBeingCleared) {
  std::mt19937_64 rng(TestSeed());
  constexpr uint64_t kMost = 20 * 4096 / kFibreThinning * 3;
  for (const Format format : {Format::kPici, Format::kPiciColumn, Format::kCoo, Format::kGap}) {
    DeviceMemory scratch(sparse::ScratchBytes(format, DType::kUint8, kMost));
    simt::FibreMachine machine({.seed = TestSeed(), .resident_blocks = 5});
    simt::FibreLauncher launcher(machine);
    // Where a launch's values lie in the scratch is its own affair, so that another size will do.
    for (const uint64_t elements :
         {kMost, uint64_t{9000}, uint64_t{0}, kMost - 1, uint64_t{4096}}) {
      Buffer input(elements);
      FillElements(DType::kUint8, Pattern::kHalf, rng, elements, input.data());
      Buffer frame(MaxFrameBytes(format, DType::kUint8, elements), 0, kGuard);
      sparse::Encode(launcher, format, DType::kUint8, input.data(), elements, frame.data(),
                     scratch.get());
      ASSERT_TRUE(launcher.status().ok()) << launcher.status();
      const oracle::Bytes expected =
          oracle::EncodeFrame(format, DType::kUint8, input.data(), elements);
      ASSERT_TRUE(frame.Intact());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), frame.data()))
          << NameOf(format) << " elements " << elements << " seed " << TestSeed();
    }
  }
}

struct Hop {
  DType frame;
  DType local;
};

class FusedTest : public testing::TestWithParam<Hop> {};

// The local elements in the frame's dtype.
oracle::Bytes Widened(const Hop& hop, const uint8_t* local, uint64_t elements) {
  oracle::Bytes result(local, local + elements * SizeOf(hop.local));
  if (hop.frame == hop.local) return result;
  result.resize(elements * sizeof(float));
  for (uint64_t i = 0; i < elements; ++i) {
    uint16_t bits;
    std::memcpy(&bits, local + 2 * i, sizeof(bits));
    const float wide =
        hop.local == DType::kFloat16 ? oracle::FromFloat16(bits) : oracle::FromBfloat16(bits);
    std::memcpy(&result[4 * i], &wide, sizeof(wide));
  }
  return result;
}

// Byte for byte but for the payloads of NaNs that an addition made.
void ExpectSameFrame(const uint8_t* found, const oracle::Bytes& expected, DType dtype) {
  FrameHeader header;
  std::memcpy(&header, expected.data(), sizeof(header));
  EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + header.values_offset, found));
  EXPECT_EQ(oracle::FirstDifference(dtype, found + header.values_offset,
                                    expected.data() + header.values_offset, header.nnz),
            header.nnz);
}

TEST_P(FusedTest, IsReduceIntoAndThenEncode) {
  const Hop hop = GetParam();
  std::mt19937_64 rng(TestSeed());
  simt::FibreLauncher launcher(SharedMachine(TestSeed()));
  for (const uint64_t elements : {0, 1, 33, 4095, 4096, 3 * 4096 + 77}) {
    for (const auto& [mine, theirs] : {std::pair(Pattern::kHalf, Pattern::kTenth),
                                       std::pair(Pattern::kSpecials, Pattern::kSpecials),
                                       std::pair(Pattern::kZeros, Pattern::kHundredth)}) {
      if (elements != 4096 && rng() % kFibreThinning > 1) continue;
      SCOPED_TRACE(testing::Message() << "elements " << elements << " seed " << TestSeed());
      const size_t offset = rng() % 4 * SizeOf(hop.local);
      Buffer local(elements * SizeOf(hop.local), offset);
      FillElements(hop.local, mine, rng, elements, local.data());
      Buffer other(elements * SizeOf(hop.frame));
      FillElements(hop.frame, theirs, rng, elements, other.data());
      const oracle::Bytes arrived =
          oracle::EncodeFrame(Format::kPici, hop.frame, other.data(), elements);
      oracle::Bytes sum = Widened(hop, local.data(), elements);
      oracle::AddFrame(arrived, hop.frame, sum);
      const oracle::Bytes expected =
          oracle::EncodeFrame(Format::kPici, hop.frame, sum.data(), elements);

      Buffer from(arrived.size());
      std::copy(arrived.begin(), arrived.end(), from.data());
      Buffer to(MaxFrameBytes(Format::kPici, hop.frame, elements), 0, kGuard);
      DeviceMemory scratch(sparse::ScratchBytes(Format::kPici, hop.frame, elements));
      sparse::AddAndEncode(launcher, InfoOf(from.data()), from.data(), hop.local, local.data(),
                           to.data(), scratch.get());
      ASSERT_TRUE(launcher.status().ok()) << launcher.status();
      ASSERT_TRUE(to.Intact());
      ExpectSameFrame(to.data(), expected, hop.frame);
      if (HasFailure()) return;
    }
  }
}

std::vector<Hop> Hops() {
  std::vector<Hop> hops;
  for (const DType dtype : AllDTypes()) hops.push_back({dtype, dtype});
  hops.push_back({DType::kFloat32, DType::kFloat16});
  hops.push_back({DType::kFloat32, DType::kBfloat16});
  return hops;
}

INSTANTIATE_TEST_SUITE_P(All, FusedTest, testing::ValuesIn(Hops()), [](const auto& info) {
  return std::string(NameOf(info.param.frame)) + "_of_" + std::string(NameOf(info.param.local));
});

}  // namespace
}  // namespace spccl
