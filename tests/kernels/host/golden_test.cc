// Every target against the golden frames that tests/vectors/make_vectors.py makes from the format's
// text: encodes to the same bytes, decodes to the same elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/host/codec.h"

namespace spccl {
namespace {

using Bytes = std::vector<uint8_t>;

struct Case {
  std::string name;
  DType dtype;
  Format format;
  uint64_t elements;
  uint64_t nnz;
  uint64_t frame_bytes;
};

Bytes ReadFile(const std::string& name) {
  std::ifstream file(std::string(SPCCL_VECTORS_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

std::vector<Case> ReadManifest() {
  std::ifstream file(SPCCL_VECTORS_DIR "/manifest.tsv");
  std::vector<Case> cases;
  std::string dtype, format;
  Case row;
  while (file >> row.name >> dtype >> format >> row.elements >> row.nnz >> row.frame_bytes) {
    row.dtype = DTypeFromName(dtype).value();
    row.format = FormatFromName(format).value();
    cases.push_back(row);
  }
  return cases;
}

class GoldenTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceTarget(GetParam())); }
  void TearDown() override { ForceTarget(""); }
};

TEST_P(GoldenTest, EncodesAndDecodesByteForByte) {
  const std::vector<Case> cases = ReadManifest();
  ASSERT_EQ(cases.size(), 133u);
  for (const Case& row : cases) {
    SCOPED_TRACE(row.name);
    const Bytes input = ReadFile(row.name + ".in");
    const Bytes golden = ReadFile(row.name + ".frame");
    ASSERT_EQ(input.size(), row.elements * SizeOf(row.dtype));
    ASSERT_EQ(golden.size(), row.frame_bytes);

    Bytes frame(MaxFrameBytes(row.format, row.dtype, row.elements) + kEncodeSlack, 0xEE);
    const Encoded encoded = Encode(row.format, row.dtype, input.data(), row.elements, frame.data());
    EXPECT_EQ(encoded.nnz, row.nnz);
    ASSERT_EQ(encoded.frame_bytes, golden.size());
    frame.resize(encoded.frame_bytes);
    EXPECT_TRUE(frame == golden);
    if (row.format != Format::kDense) {
      EXPECT_EQ(CountNonzeros(row.dtype, input.data(), row.elements), row.nnz);
    }

    EXPECT_TRUE(Validate(golden.data(), golden.size(), row.dtype, row.elements).ok());
    Bytes decoded(input.size(), 0xEE);
    Decode(golden.data(), decoded.data());
    if (row.format == Format::kDense) {
      EXPECT_TRUE(decoded == input);
      continue;
    }
    // A negative zero comes back as zero, everything else bit for bit.
    Bytes expected = input;
    for (uint64_t i = 0; i < row.elements; ++i) {
      uint8_t* element = expected.data() + i * SizeOf(row.dtype);
      if (CountNonzeros(row.dtype, element, 1) == 0) {
        std::fill_n(element, SizeOf(row.dtype), uint8_t{0});
      }
    }
    EXPECT_TRUE(decoded == expected);
  }
}

std::vector<std::string_view> Targets() {
  return {AvailableTargets().begin(), AvailableTargets().end()};
}

INSTANTIATE_TEST_SUITE_P(AllTargets, GoldenTest, testing::ValuesIn(Targets()),
                         [](const auto& info) {
                           std::string name(info.param);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace spccl
