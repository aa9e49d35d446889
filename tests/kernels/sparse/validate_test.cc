// The GPU's validator finds what the host's finds in a body, and nothing else.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/kernels/sparse/fibre_codec.h"
#include "tests/support/frame_oracle.h"

namespace spccl {
namespace {

class ValidateTest : public testing::TestWithParam<Format> {
 protected:
  bool DeviceAccepts(const Buffer& frame) {
    simt::FibreLauncher launcher(SharedMachine(TestSeed()));
    uint32_t faults = 0;
    sparse::ValidateBody(launcher, InfoOf(frame.data()), frame.data(), &faults);
    EXPECT_TRUE(launcher.status().ok()) << launcher.status();
    return faults == 0;
  }

  // A frame of exactly its size, so that AddressSanitizer sees a read past it.
  static Buffer FrameOf(Format format, DType dtype, Pattern pattern, uint64_t elements,
                        std::mt19937_64& rng) {
    Buffer input(elements * SizeOf(dtype));
    FillElements(dtype, pattern, rng, elements, input.data());
    const oracle::Bytes bytes = oracle::EncodeFrame(format, dtype, input.data(), elements);
    Buffer frame(bytes.size());
    std::copy(bytes.begin(), bytes.end(), frame.data());
    return frame;
  }
};

TEST_P(ValidateTest, AcceptsWhatIsValid) {
  std::mt19937_64 rng(TestSeed());
  for (const uint64_t elements : EdgeSizes()) {
    for (const Pattern pattern : kPatterns) {
      if (rng() % kFibreThinning != 0) continue;
      const Buffer frame = FrameOf(GetParam(), DType::kUint8, pattern, elements, rng);
      EXPECT_TRUE(DeviceAccepts(frame)) << "elements " << elements << " pattern "
                                        << static_cast<int>(pattern) << " seed " << TestSeed();
    }
  }
}

// One bit, byte or word of what comes between header and values is changed: both say the same.
TEST_P(ValidateTest, AgreesWithTheHostOnEveryLie) {
  std::mt19937_64 rng(TestSeed());
  int refused = 0;
  for (int round = 0; round < 1800 / static_cast<int>(kFibreThinning); ++round) {
    const uint64_t elements = EdgeSizes()[1 + rng() % (EdgeSizes().size() - 1)];
    const Pattern pattern = kPatterns[rng() % std::size(kPatterns)];
    Buffer frame = FrameOf(GetParam(), DType::kUint8, pattern, elements, rng);
    FrameHeader header;
    std::memcpy(&header, frame.data(), sizeof(header));
    const uint64_t room = header.values_offset - sizeof(header);
    if (room == 0) continue;
    const uint64_t at = sizeof(header) + rng() % room;
    switch (rng() % 3) {
      case 0:
        frame.data()[at] = static_cast<uint8_t>(frame.data()[at] ^ 1u << rng() % 8);
        break;
      case 1:
        frame.data()[at] = static_cast<uint8_t>(rng());
        break;
      default: {
        const uint64_t noise = rng();
        std::memcpy(frame.data() + at, &noise,
                    std::min<uint64_t>(header.values_offset - at, 1 + rng() % 8));
      }
    }
    const FrameFault fault = Validate(frame.data(), frame.size());
    refused += !fault.ok();
    ASSERT_EQ(DeviceAccepts(frame), fault.ok())
        << NameOf(fault.error) << " at " << fault.at << ", byte " << at << " was changed, elements "
        << elements << " pattern " << static_cast<int>(pattern) << " seed " << TestSeed();
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ValidateTest,
                         testing::Values(Format::kPici, Format::kPiciColumn, Format::kCoo,
                                         Format::kGap),
                         [](const auto& info) { return TestName(NameOf(info.param)); });

}  // namespace
}  // namespace spccl
