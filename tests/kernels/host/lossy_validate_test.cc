// What a lossy frame may lie about is found.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "base/crc32c.h"
#include "kernels/host/codec.h"
#include "kernels/lossy_layout.h"
#include "tests/kernels/host/elements.h"
#include "tests/kernels/host/lossy_vectors.h"

namespace spccl {
namespace {

// One lie a row, in an otherwise valid frame.
struct Lie {
  const char* what;
  FrameError error;
  std::function<void(Bytes*, FrameHeader*, const ErrorBoundLayout&)> tell;
};

void Add(Bytes* frame, uint64_t at, uint8_t by) {
  (*frame)[at] = static_cast<uint8_t>((*frame)[at] + by);
}

void Repair(Bytes* frame, FrameHeader header) {
  header.header_crc = Crc32c(&header, offsetof(FrameHeader, header_crc));
  std::memcpy(frame->data(), &header, sizeof(header));
}

void ExpectFound(const Bytes& good, const ErrorBoundLayout& layout, const std::vector<Lie>& lies) {
  for (const Lie& lie : lies) {
    Bytes frame = good;
    FrameHeader header;
    std::memcpy(&header, frame.data(), sizeof(header));
    lie.tell(&frame, &header, layout);
    Repair(&frame, header);
    const Buffer exact = [&] {
      Buffer block(frame.size());
      std::memcpy(block.data(), frame.data(), frame.size());
      return block;
    }();
    EXPECT_EQ(NameOf(Validate(exact.data(), exact.size()).error), NameOf(lie.error)) << lie.what;
  }
}

TEST(LossyValidateTest, FindsLiesOfErrorBound) {
  std::mt19937_64 rng(1);
  std::vector<float> x = Vector<float>(0, 700, rng);
  x[5] = std::nanf("");
  x[300] = std::numeric_limits<float>::infinity();
  const Bytes good = Frame(x, {LargestFiniteOf(x) / 1000, false});
  ErrorBoundHead head;
  std::memcpy(&head, good.data() + sizeof(FrameHeader), sizeof(head));
  const ErrorBoundLayout layout = ErrorBoundLayoutOf(4, 700, 2, head.plane_words);
  ASSERT_TRUE(Validate(good.data(), good.size(), DType::kFloat32, 700).ok());
  ASSERT_EQ(layout.total, good.size());
  const auto set = [](auto value, uint64_t at) {
    return [=](Bytes* frame, FrameHeader*, const ErrorBoundLayout&) {
      std::memcpy(frame->data() + at, &value, sizeof(value));
    };
  };
  ExpectFound(
      good, layout,
      {{"dtype", FrameError::kBadDType,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { header->dtype = 2; }},
       {"more exact values", FrameError::kBadPayloadSize,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { header->nnz += 100; }},
       {"cut off", FrameError::kTooShort,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout&) { frame->pop_back(); }},
       {"no head", FrameError::kTooShort,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout&) { frame->resize(50); }},
       {"bytes behind", FrameError::kBadPayloadSize,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout&) { frame->push_back(0); }},
       {"bitmap offset", FrameError::kBadBitmapOffset,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { header->bitmap_offset += 16; }},
       {"index offset", FrameError::kBadIndexOffset,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { header->index_offset += 16; }},
       {"values offset", FrameError::kBadValuesOffset,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { header->values_offset += 16; }},
       {"quantum 0", FrameError::kBadQuantum, set(0.0, layout.head)},
       {"quantum negative", FrameError::kBadQuantum, set(-1.0, layout.head)},
       {"quantum no number", FrameError::kBadQuantum, set(std::nan(""), layout.head)},
       {"quantum infinite", FrameError::kBadQuantum, set(HUGE_VAL, layout.head)},
       {"quantum not of the type", FrameError::kBadQuantum, set(1.0 + 0x1p-40, layout.head)},
       {"many plane words", FrameError::kBadPayloadSize,
        set(uint32_t{0xFFFFFFFF}, layout.head + 8)},
       {"reserved", FrameError::kBadReserved, set(uint32_t{1}, layout.head + 12)},
       {"index", FrameError::kBadIndex,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout& at) {
          Add(frame, at.index + 4, 1);
        }},
       {"width larger", FrameError::kBadIndex,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout& at) { Add(frame, at.widths, 1); }},
       {"width too large", FrameError::kBadIndex, set(uint8_t{200}, layout.widths + 10)},
       {"width of nothing", FrameError::kBadIndex, set(uint8_t{1}, layout.widths + 11)},
       {"past the end", FrameError::kBadBitmap, set(~uint64_t{0}, layout.positions - 16)},
       {"a difference before the first element", FrameError::kBadBitmap,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout& at) { (*frame)[at.planes] |= 1; }},
       {"a difference before a later block's first element", FrameError::kBadBitmap,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout& at) {
          uint32_t words;
          std::memcpy(&words, frame->data() + at.index + 4, sizeof(words));
          (*frame)[at.planes + 8 * words] |= 1;
        }},
       {"positions fall", FrameError::kBadIndex, set(uint32_t{301}, layout.positions)},
       {"positions past the end", FrameError::kBadIndex, set(uint32_t{700}, layout.positions + 4)},
       {"padding", FrameError::kBadPadding, set(uint8_t{1}, layout.values - 1)}});
}

TEST(LossyValidateTest, FindsLiesOfQsgd) {
  std::mt19937_64 rng(1);
  const std::vector<float> x = Vector<float>(2, 1100, rng);
  Bytes good(MaxFrameBytes(Format::kQsgd4, DType::kFloat32, x.size()) + kEncodeSlack);
  const auto encoded =
      EncodeQsgd(Format::kQsgd4, DType::kFloat32, x.data(), x.size(), {.seed = 3}, good.data());
  ASSERT_TRUE(encoded.has_value());
  good.resize(encoded->frame_bytes);
  const QsgdLayout layout = QsgdLayoutOf(4, 4, x.size());
  const auto set = [](auto value, uint64_t at) {
    return [=](Bytes* frame, FrameHeader*, const ErrorBoundLayout&) {
      std::memcpy(frame->data() + at, &value, sizeof(value));
    };
  };
  ExpectFound(
      good, {},
      {{"buckets", FrameError::kBadNnz,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { ++header->nnz; }},
       {"dtype", FrameError::kBadDType,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { header->dtype = 9; }},
       {"format", FrameError::kBadPayloadSize,
        [](Bytes*, FrameHeader* header, const ErrorBoundLayout&) { header->format = 8; }},
       {"scale negative", FrameError::kBadQuantum, set(-1.0F, layout.scales)},
       {"scale no number", FrameError::kBadQuantum, set(std::nanf(""), layout.scales + 4)},
       {"a level below the lowest", FrameError::kBadBitmap,
        [](Bytes* frame, FrameHeader*, const ErrorBoundLayout&) {
          for (int plane = 0; plane < 4; ++plane) (*frame)[48 + 8 * plane] |= 1;
        }},
       {"past the end", FrameError::kBadBitmap, set(uint8_t{0x80}, layout.scales - 16 + 7)}});
}

TEST(LossyValidateTest, TellsTheWholeScale) {
  const std::vector<double> x(100, 1.5);
  Bytes frame(MaxFrameBytes(Format::kQsgd4, DType::kFloat64, x.size()) + kEncodeSlack);
  const auto encoded =
      EncodeQsgd(Format::kQsgd4, DType::kFloat64, x.data(), x.size(), {.seed = 3}, frame.data());
  ASSERT_TRUE(encoded.has_value());
  const QsgdLayout layout = QsgdLayoutOf(4, sizeof(double), x.size());
  const double wrong = -1.5;
  std::memcpy(frame.data() + layout.scales, &wrong, sizeof(wrong));
  const FrameFault fault = Validate(frame.data(), encoded->frame_bytes);
  EXPECT_EQ(fault.at, layout.scales);
  EXPECT_EQ(fault.found, std::bit_cast<uint64_t>(wrong));
}

}  // namespace
}  // namespace spccl
