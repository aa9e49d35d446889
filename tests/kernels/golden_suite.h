// A codec against the golden frames that tests/vectors/make_vectors.py makes from the format's
// text: encodes to the same bytes, decodes to the same elements. Include it in one file and
// instantiate GoldenSuite with the codecs to test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/tested_codec.h"
#include "tests/support/frame_oracle.h"

namespace spccl {

struct GoldenCase {
  std::string name;
  DType dtype;
  Format format;
  uint64_t elements;
  uint64_t nnz;
  uint64_t frame_bytes;
};

inline oracle::Bytes ReadFile(const std::string& name) {
  std::ifstream file(std::string(SPCCL_VECTORS_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return oracle::Bytes(std::istreambuf_iterator<char>(file), {});
}

inline std::vector<GoldenCase> ReadManifest() {
  std::ifstream file(SPCCL_VECTORS_DIR "/manifest.tsv");
  std::vector<GoldenCase> cases;
  std::string dtype, format;
  GoldenCase row;
  while (file >> row.name >> dtype >> format >> row.elements >> row.nnz >> row.frame_bytes) {
    row.dtype = DTypeFromName(dtype).value();
    row.format = FormatFromName(format).value();
    cases.push_back(row);
  }
  return cases;
}

class GoldenSuite : public testing::TestWithParam<CodecUnderTest> {};

TEST_P(GoldenSuite, EncodesAndDecodesByteForByte) {
  const std::unique_ptr<TestedCodec> codec = GetParam().make();
  const std::vector<GoldenCase> cases = ReadManifest();
  std::mt19937_64 rng(TestSeed());
  ASSERT_EQ(cases.size(), 133u);
  for (const GoldenCase& row : cases) {
    SCOPED_TRACE(row.name);
    if (codec->Skip(rng)) continue;
    const oracle::Bytes input = ReadFile(row.name + ".in");
    const oracle::Bytes golden = ReadFile(row.name + ".frame");
    ASSERT_EQ(input.size(), row.elements * SizeOf(row.dtype));
    ASSERT_EQ(golden.size(), row.frame_bytes);

    oracle::Bytes frame(MaxFrameBytes(row.format, row.dtype, row.elements) + kEncodeSlack, 0xEE);
    const Encoded encoded =
        codec->Encode(row.format, row.dtype, input.data(), row.elements, frame.data());
    EXPECT_EQ(encoded.nnz, row.nnz);
    ASSERT_EQ(encoded.frame_bytes, golden.size());
    frame.resize(encoded.frame_bytes);
    EXPECT_TRUE(frame == golden);
    if (row.format != Format::kDense) {
      EXPECT_EQ(codec->CountNonzeros(row.dtype, input.data(), row.elements), row.nnz);
    }

    EXPECT_TRUE(Validate(golden.data(), golden.size(), row.dtype, row.elements).ok());
    oracle::Bytes decoded(input.size(), 0xEE);
    codec->Decode(golden.data(), decoded.data(), Stores::kAuto);
    if (row.format == Format::kDense) {
      EXPECT_TRUE(decoded == input);
      continue;
    }
    // A negative zero comes back as zero, everything else bit for bit.
    oracle::Bytes expected = input;
    for (uint64_t i = 0; i < row.elements; ++i) {
      uint8_t* element = expected.data() + i * SizeOf(row.dtype);
      if (CountNonzeros(row.dtype, element, 1) == 0) {
        std::fill_n(element, SizeOf(row.dtype), uint8_t{0});
      }
    }
    EXPECT_TRUE(decoded == expected);
  }
}

inline std::string GoldenSuiteName(const testing::TestParamInfo<CodecUnderTest>& info) {
  return info.param.name;
}

}  // namespace spccl
