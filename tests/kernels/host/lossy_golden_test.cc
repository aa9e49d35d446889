// The lossy formats against the golden frames that tests/vectors/make_lossy_vectors.py makes from
// docs/wire.md: every target encodes to the same bytes and decodes to the same elements.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "kernels/host/codec.h"
#include "tests/kernels/host/elements.h"

namespace spccl {
namespace {

using Bytes = std::vector<uint8_t>;

struct Case {
  std::string name, dtype, format;
  uint64_t elements = 0, stored = 0, frame_bytes = 0;
  std::string parameter, kind;
};

Bytes ReadFile(const std::string& name) {
  std::ifstream file(std::string(SPCCL_VECTORS_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

std::vector<Case> ReadCases() {
  std::ifstream file(SPCCL_VECTORS_DIR "/lossy.tsv");
  std::vector<Case> cases;
  Case row;
  while (file >> row.name >> row.dtype >> row.format >> row.elements >> row.stored >>
         row.frame_bytes >> row.parameter >> row.kind) {
    cases.push_back(row);
  }
  return cases;
}

std::optional<Encoded> EncodeCase(const Case& row, DType dtype, const Bytes& input, Bytes* frame) {
  const Format format = FormatFromName(row.format).value();
  frame->assign(MaxFrameBytes(format, dtype, row.elements) + kEncodeSlack, 0xEE);
  if (format == Format::kErrorBound) {
    const ErrorBound bound{std::strtod(row.parameter.c_str(), nullptr), row.kind == "rel"};
    return EncodeErrorBound(dtype, input.data(), row.elements, bound, frame->data());
  }
  char* end = nullptr;
  Draws draws{.seed = std::strtoull(row.parameter.c_str(), &end, 10)};
  if (*end == '@') draws.first = std::strtoull(end + 1, nullptr, 10);
  return EncodeQsgd(format, dtype, input.data(), row.elements, draws, frame->data());
}

class LossyGoldenTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceTarget(GetParam())); }
  void TearDown() override { ForceTarget(""); }
};

TEST_P(LossyGoldenTest, EncodesAndDecodesByteForByte) {
  const std::vector<Case> cases = ReadCases();
  ASSERT_EQ(cases.size(), 118u);
  for (const Case& row : cases) {
    SCOPED_TRACE(row.name);
    const DType dtype = DTypeFromName(row.dtype).value();
    const Bytes input = ReadFile(row.name + ".in");
    const Bytes golden = ReadFile(row.name + ".frame");
    ASSERT_EQ(golden.size(), row.frame_bytes);
    Bytes frame;
    const auto encoded = EncodeCase(row, dtype, input, &frame);
    ASSERT_TRUE(encoded.has_value());
    EXPECT_EQ(encoded->nnz, row.stored);
    ASSERT_EQ(encoded->frame_bytes, golden.size());
    frame.resize(golden.size());
    EXPECT_TRUE(frame == golden);
    const FrameFault fault = Validate(golden.data(), golden.size(), dtype, row.elements);
    ASSERT_TRUE(fault.ok()) << NameOf(fault.error) << " at " << fault.at;
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      Buffer decoded(input.size(), 16, 256);
      Decode(golden.data(), decoded.data(), stores);
      EXPECT_TRUE(decoded.Intact());
      EXPECT_TRUE(decoded.bytes() == ReadFile(row.name + ".out"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LossyGoldenTest, testing::ValuesIn(TestedTargets()),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace spccl
