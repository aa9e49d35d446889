// Every kind of lie that a frame can tell is found, and named by its kind and place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>

#include "base/crc32c.h"
#include "kernels/host/codec.h"
#include "kernels/layout.h"
#include "tests/support/frame_oracle.h"

namespace spccl {
namespace {

using oracle::Bytes;

constexpr uint64_t kElements = 4096 + 100;  // a whole tile and a short one
constexpr DType kDType = DType::kFloat32;

// Two of three elements are nonzero.
Bytes ValidFrame(Format format) {
  std::vector<float> dense(kElements);
  for (uint64_t i = 0; i < kElements; ++i) dense[i] = i % 3 == 0 ? 0.0f : static_cast<float>(i);
  return oracle::EncodeFrame(format, kDType, reinterpret_cast<const uint8_t*>(dense.data()),
                             kElements);
}

FrameHeader HeaderOf(const Bytes& frame) {
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  return header;
}

// The frame with a changed header whose checksum is right again: a liar that knows the format.
Bytes WithHeader(Bytes frame, const std::function<void(FrameHeader&)>& change) {
  FrameHeader header = HeaderOf(frame);
  change(header);
  header.header_crc = Crc32c(&header, offsetof(FrameHeader, header_crc));
  std::memcpy(frame.data(), &header, sizeof(header));
  return frame;
}

FrameFault Check(const Bytes& frame) {
  return Validate(frame.data(), frame.size(), kDType, kElements);
}

MATCHER_P2(FaultIs, error, at, "") {
  *result_listener << NameOf(arg.error) << " at " << arg.at << ", found " << arg.found
                   << ", expected " << arg.expected;
  return arg.error == error && arg.at == static_cast<uint64_t>(at);
}

class ValidateTest : public testing::TestWithParam<Format> {
 protected:
  Bytes frame_ = ValidFrame(GetParam());
  FrameHeader header_ = HeaderOf(frame_);
};

TEST_P(ValidateTest, AcceptsATrueFrame) {
  EXPECT_TRUE(Check(frame_).ok());
  EXPECT_TRUE(Validate(frame_.data(), frame_.size()).ok());
}

TEST_P(ValidateTest, FindsTooFewBytes) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{47}}) {
    EXPECT_THAT(Validate(frame_.data(), size), FaultIs(FrameError::kTooShort, size));
    EXPECT_THAT(Validate(frame_.data(), size, kDType, kElements),
                FaultIs(FrameError::kTooShort, size));
  }
  for (const size_t size : {size_t{48}, frame_.size() - 1}) {
    EXPECT_THAT(Validate(frame_.data(), size), FaultIs(FrameError::kTooShort, size));
  }
}

TEST_P(ValidateTest, FindsBytesLeftOver) {
  const size_t size = frame_.size();
  frame_.push_back(0);
  EXPECT_THAT(Check(frame_), FaultIs(FrameError::kBadPayloadSize, size));
}

TEST_P(ValidateTest, FindsEveryFlippedBitOfTheHeader) {
  for (size_t bit = 0; bit < 48 * 8; ++bit) {
    Bytes frame = frame_;
    frame[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    EXPECT_FALSE(Check(frame).ok()) << "bit " << bit;
  }
}

TEST_P(ValidateTest, FindsWrongIdentity) {
  EXPECT_THAT(Check(WithHeader(frame_, [](FrameHeader& h) { h.magic ^= 1; })),
              FaultIs(FrameError::kBadMagic, 0));
  EXPECT_THAT(Check(WithHeader(frame_, [](FrameHeader& h) { h.version = 2; })),
              FaultIs(FrameError::kBadVersion, 4));
  EXPECT_THAT(Check(WithHeader(frame_, [](FrameHeader& h) { h.format = kFormatCount; })),
              FaultIs(FrameError::kBadFormat, 5));
  EXPECT_THAT(Check(WithHeader(frame_, [](FrameHeader& h) { h.dtype = 10; })),
              FaultIs(FrameError::kBadDType, 6));
  EXPECT_THAT(Check(WithHeader(frame_, [](FrameHeader& h) { h.reserved = 1; })),
              FaultIs(FrameError::kBadReserved, 7));
  frame_[44] ^= 0x80;
  EXPECT_THAT(Check(frame_), FaultIs(FrameError::kBadCrc, 44));
}

TEST_P(ValidateTest, FindsWhatTheStepDoesNotExpect) {
  EXPECT_THAT(Validate(frame_.data(), frame_.size(), DType::kInt32, kElements),
              FaultIs(FrameError::kWrongDType, 6));
  EXPECT_THAT(Validate(frame_.data(), frame_.size(), kDType, kElements + 1),
              FaultIs(FrameError::kWrongCount, 8));
}

TEST_P(ValidateTest, FindsWrongCounts) {
  const Bytes many =
      WithHeader(frame_, [](FrameHeader& h) { h.element_count = kMaxFrameElements + 1; });
  EXPECT_THAT(Validate(many.data(), many.size()), FaultIs(FrameError::kTooManyElements, 8));
  const Bytes most = WithHeader(frame_, [](FrameHeader& h) { h.element_count = ~uint64_t{0}; });
  EXPECT_THAT(Validate(most.data(), most.size()), FaultIs(FrameError::kTooManyElements, 8));
  EXPECT_EQ(Validate(many.data(), many.size()).bound, Bound::kAtMost);
  EXPECT_EQ(Check(WithHeader(frame_, [](FrameHeader& h) { h.dtype = 10; })).bound,
            Bound::kLessThan);
  for (const uint64_t nnz : {kElements + 1, ~uint64_t{0}}) {
    EXPECT_THAT(Check(WithHeader(frame_, [nnz](FrameHeader& h) { h.nnz = nnz; })),
                FaultIs(FrameError::kBadNnz, 16));
  }
}

TEST_P(ValidateTest, FindsWrongSizesAndPlaces) {
  for (const int64_t by : {int64_t{-16}, int64_t{-1}, int64_t{1}, int64_t{16}, INT64_MIN}) {
    EXPECT_THAT(Check(WithHeader(frame_, [by](FrameHeader& h) { h.payload_bytes += by; })),
                FaultIs(FrameError::kBadPayloadSize, 24));
  }
  for (const uint32_t by : {uint32_t{16}, 0u - 16, uint32_t{1} << 31}) {
    EXPECT_THAT(Check(WithHeader(frame_, [by](FrameHeader& h) { h.bitmap_offset += by; })),
                FaultIs(FrameError::kBadBitmapOffset, 32));
    EXPECT_THAT(Check(WithHeader(frame_, [by](FrameHeader& h) { h.index_offset += by; })),
                FaultIs(FrameError::kBadIndexOffset, 36));
    EXPECT_THAT(Check(WithHeader(frame_, [by](FrameHeader& h) { h.values_offset += by; })),
                FaultIs(FrameError::kBadValuesOffset, 40));
  }
}

// A stored count that is off by one, with every size changed to match. (gap: neither makes another
// byte of its positions.)
TEST_P(ValidateTest, FindsAStoredCountThatIsNotSo) {
  if (GetParam() == Format::kDense) {
    EXPECT_THAT(Check(WithHeader(frame_, [](FrameHeader& h) { h.nnz -= 1; })),
                FaultIs(FrameError::kBadNnz, 16));
    return;
  }
  if (GetParam() == Format::kCoo) return;  // its count is its indices' count, whatever it is
  const bool gap = GetParam() == Format::kGap;
  const auto is_found = testing::Field(
      &FrameFault::error, testing::AnyOf(gap ? FrameError::kBadBitmap : FrameError::kBadNnz,
                                         gap ? FrameError::kBadPadding : FrameError::kBadNnz));
  Bytes longer = frame_;
  longer.resize(longer.size() + 4);
  EXPECT_THAT(Check(WithHeader(longer,
                               [](FrameHeader& h) {
                                 h.nnz += 1;
                                 h.payload_bytes += 4;
                               })),
              is_found);
  Bytes shorter = frame_;
  shorter.resize(shorter.size() - 4);
  EXPECT_THAT(Check(WithHeader(shorter,
                               [](FrameHeader& h) {
                                 h.nnz -= 1;
                                 h.payload_bytes -= 4;
                               })),
              is_found);
}

TEST_P(ValidateTest, FindsPaddingThatIsNotZero) {
  if (GetParam() == Format::kDense) return;  // has none
  // kElements makes two index words and, for coo, an even number of indices: both leave a gap.
  const size_t last = header_.values_offset - 1;
  const uint64_t indices = GetParam() == Format::kCoo ? header_.nnz : 2;
  ASSERT_LT(header_.index_offset + 4 * indices, header_.values_offset);
  frame_[last] = 1;
  EXPECT_THAT(Check(frame_), FaultIs(FrameError::kBadPadding, last));
}

INSTANTIATE_TEST_SUITE_P(AllFormats, ValidateTest,
                         testing::Values(Format::kDense, Format::kPici, Format::kPiciColumn,
                                         Format::kCoo, Format::kGap),
                         [](const auto& info) {
                           return info.param == Format::kPiciColumn
                                      ? "pici_column"
                                      : std::string(NameOf(info.param));
                         });

TEST(ValidatePiciTest, FindsBitsThatDisagreeWithThePrefixSums) {
  for (const Format format : {Format::kPici, Format::kPiciColumn}) {
    const Bytes good = ValidFrame(format);
    const FrameHeader header = HeaderOf(good);
    Bytes frame = good;
    frame[header.bitmap_offset + 7] ^= 1;  // a bit of the first tile
    EXPECT_THAT(Check(frame), FaultIs(FrameError::kBadIndex, header.index_offset + 4));
    frame = good;
    frame[header.bitmap_offset + 64 * 8] ^= 1;  // of the last tile: only nnz can tell
    EXPECT_THAT(Check(frame), FaultIs(FrameError::kBadNnz, 16));
    for (const size_t tile : {0, 1}) {
      frame = good;
      frame[header.index_offset + 4 * tile] ^= 1;
      EXPECT_THAT(Check(frame), FaultIs(FrameError::kBadIndex, header.index_offset + 4 * tile));
    }
    frame = good;
    frame[header.index_offset + 7] = 0xFF;  // far past the values
    EXPECT_THAT(Check(frame), FaultIs(FrameError::kBadIndex, header.index_offset + 4));
  }
}

// A bit past the last element, in exchange for one within: all counts stay right.
TEST(ValidatePiciTest, FindsBitsPastTheLastElement) {
  for (const Format format : {Format::kPici, Format::kPiciColumn}) {
    const Bytes good = ValidFrame(format);
    const FrameHeader header = HeaderOf(good);
    const size_t tile = header.bitmap_offset + 64 * 8;
    size_t with_bit = tile;
    while (good[with_bit] == 0) ++with_bit;
    for (size_t bit = 0; bit < 4096; ++bit) {
      const uint64_t element =
          format == Format::kPici ? bit : 64 * (bit % 64) + bit / 64;  // within the tile
      if (element < 100) continue;
      Bytes frame = good;
      frame[with_bit] &= frame[with_bit] - 1;
      frame[tile + bit / 8] |= static_cast<uint8_t>(1 << (bit % 8));
      ASSERT_THAT(Check(frame), FaultIs(FrameError::kBadBitmap, tile + bit / 64 * 8))
          << "bit " << bit;
    }
  }
}

TEST(ValidateCooTest, FindsIndicesThatDoNotRiseOrRunOut) {
  const Bytes good = ValidFrame(Format::kCoo);
  const FrameHeader header = HeaderOf(good);
  const auto set = [&](uint64_t i, uint32_t index) {
    Bytes frame = good;
    std::memcpy(&frame[header.index_offset + 4 * i], &index, 4);
    return frame;
  };
  EXPECT_THAT(Check(set(1, 1)), FaultIs(FrameError::kBadIndex, header.index_offset + 4));
  EXPECT_THAT(Check(set(1, 0)), FaultIs(FrameError::kBadIndex, header.index_offset + 4));
  EXPECT_THAT(Check(set(5, 0xFFFFFFFF)), FaultIs(FrameError::kBadIndex, header.index_offset + 24));
  const uint64_t last = header.nnz - 1;
  for (const uint32_t index : {static_cast<uint32_t>(kElements), 0x80000000u, 0xFFFFFFFFu}) {
    EXPECT_THAT(Check(set(last, index)),
                FaultIs(FrameError::kBadIndex, header.index_offset + 4 * last));
  }
  EXPECT_TRUE(Check(set(last, kElements - 1)).ok());
}

// Of all bits that say where values belong, only low bits may be other than they are: they then
// name another place, or one that is found out.
TEST(ValidateGapTest, FindsEveryFlippedBitButInTheLowBits) {
  const Bytes good = ValidFrame(Format::kGap);
  const FrameHeader header = HeaderOf(good);
  const FrameLayout layout = LayoutOf(Format::kGap, kDType, kElements, header.nnz);
  const uint64_t low_end = layout.low * 8 + header.nnz * GapShapeOf(kElements, header.nnz).shift;
  for (uint64_t bit = layout.index * 8; bit < layout.values * 8; ++bit) {
    if (bit >= layout.low * 8 && bit < low_end) continue;
    Bytes frame = good;
    frame[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    ASSERT_FALSE(Check(frame).ok()) << "bit " << bit << " of bitmap at " << layout.bitmap;
  }
}

// Exchanges that leave every count as it was.
TEST(ValidateGapTest, FindsOnesInAnotherTileAndPositionsThatDoNotRiseOrRunOut) {
  const std::vector<uint8_t> dense = [] {
    std::vector<uint8_t> elements(1000);  // 4 values: shift 8, 4 buckets, the last one not whole
    for (const size_t at : {100, 101, 500, 999}) elements[at] = 1;
    return elements;
  }();
  const Bytes good = oracle::EncodeFrame(Format::kGap, DType::kUint8, dense.data(), dense.size());
  const FrameHeader header = HeaderOf(good);
  const FrameLayout layout = LayoutOf(Format::kGap, DType::kUint8, dense.size(), header.nnz);
  ASSERT_EQ(GapShapeOf(dense.size(), header.nnz).shift, 8u);
  ASSERT_EQ(good[layout.bitmap], 0b01001011);  // 11 0 1 0 0 1 0
  const auto check = [&](size_t at, uint8_t byte) {
    Bytes frame = good;
    frame[at] = byte;
    return Validate(frame.data(), frame.size(), DType::kUint8, dense.size());
  };
  EXPECT_THAT(check(layout.low + 1, 100), FaultIs(FrameError::kBadIndex, layout.low + 1));
  EXPECT_THAT(check(layout.low + 1, 99), FaultIs(FrameError::kBadIndex, layout.low + 1));
  EXPECT_TRUE(check(layout.low + 1, 102).ok());
  EXPECT_THAT(check(layout.low + 3, 1000 - 768), FaultIs(FrameError::kBadIndex, layout.low + 3));
  EXPECT_TRUE(check(layout.low + 3, 998 - 768).ok());
  // A one behind the last bucket's zero.
  EXPECT_THAT(check(layout.bitmap, 0b10001011), FaultIs(FrameError::kBadBitmap, layout.bitmap));
  EXPECT_THAT(check(layout.index, 1), FaultIs(FrameError::kBadIndex, layout.index));
}

TEST(ValidateGapTest, FindsAnIndexThatFallsOrRunsOut) {
  const Bytes good = ValidFrame(Format::kGap);
  const FrameHeader header = HeaderOf(good);
  for (const uint32_t index : {0u, static_cast<uint32_t>(header.nnz) + 1, 0xFFFFFFFFu}) {
    Bytes frame = good;
    std::memcpy(&frame[header.index_offset + 8], &index, 4);
    EXPECT_THAT(Check(frame), FaultIs(FrameError::kBadIndex, header.index_offset + 8));
  }
}

TEST(FrameErrorTest, EveryErrorHasAName) {
  for (int code = 0; code <= static_cast<int>(FrameError::kBadQuantum); ++code) {
    EXPECT_NE(NameOf(static_cast<FrameError>(code)), "unknown error") << code;
  }
  EXPECT_EQ(NameOf(static_cast<FrameError>(static_cast<int>(FrameError::kBadQuantum) + 1)),
            "unknown error")
      << "one more, of which this test should know";
}

}  // namespace
}  // namespace spccl
