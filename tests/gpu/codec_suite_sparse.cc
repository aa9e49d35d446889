// Frames, one at a time, against the host's codecs.
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "tests/gpu/codec_suite.h"
#include "tests/kernels/host/elements.h"
#include "tests/support/frame_oracle.h"

namespace spccl::gpu_test {
namespace {

struct Case {
  Format format;
  DType dtype;
  uint64_t elements;
  Pattern pattern;

  std::string Name() const {
    return std::string(NameOf(format)) + " " + std::string(NameOf(dtype)) + " elements " +
           std::to_string(elements) + " pattern " + std::to_string(static_cast<int>(pattern));
  }
};

Bytes Random(DType dtype, Pattern pattern, uint64_t elements, std::mt19937_64& rng) {
  Bytes dense(elements * SizeOf(dtype));
  FillElements(dtype, pattern, rng, elements, dense.data());
  return dense;
}

// Elements lie as they must and no better in one case of three.
size_t Offset(DType dtype, std::mt19937_64& rng) {
  return rng() % 3 == 0 ? rng() % 16 * SizeOf(dtype) : 0;
}

FrameHeader HeaderOf(const Bytes& frame) {
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  return header;
}

device::DeviceFrame FrameOf(const Bytes& frame, const DeviceArray& array) {
  const FrameHeader header = HeaderOf(frame);
  return {header.format, header.dtype, header.element_count, header.nnz, array.get()};
}

// The arrays of all cases: making one costs more than most cases do.
struct Arrays {
  DeviceArray dense, frame, scratch, output, local, word;
};

void TestEncode(Suite& suite, Arrays& arrays, const Case& c, const Bytes& dense,
                const Bytes& expected, std::mt19937_64& rng) {
  const auto format = static_cast<uint8_t>(c.format);
  const auto dtype = static_cast<uint8_t>(c.dtype);
  arrays.dense.Make(dense.data(), dense.size(), Offset(c.dtype, rng));
  arrays.frame.Make(nullptr, MaxFrameBytes(c.format, c.dtype, c.elements));
  arrays.scratch.MakeZeros(suite.table().scratch_bytes(format, dtype, c.elements));
  suite.Run(suite.table().encode(suite.queue(), format, dtype, arrays.dense.get(), c.elements,
                                 arrays.frame.get(), arrays.scratch.get()),
            "encode");
  bool intact = true;
  const Bytes found = arrays.frame.Read(intact);
  (void)arrays.scratch.Read(intact);
  suite.Check(intact, "encode wrote past its frame or its scratch");
  suite.Check(std::equal(expected.begin(), expected.end(), found.begin()),
              "encode: not the host's frame");
  arrays.word.MakeZeros(sizeof(uint64_t));
  suite.Run(suite.table().count_nonzeros(suite.queue(), dtype, arrays.dense.get(), c.elements,
                                         static_cast<uint64_t*>(arrays.word.get())),
            "count_nonzeros");
  uint64_t count = 0;
  std::memcpy(&count, arrays.word.Read(intact).data(), sizeof(count));
  suite.Check(count == CountNonzeros(c.dtype, dense.data(), c.elements), "count_nonzeros");
}

void TestDecode(Suite& suite, Arrays& arrays, const Case& c, const Bytes& frame,
                std::mt19937_64& rng) {
  arrays.frame.Make(frame.data(), frame.size());
  arrays.output.Make(nullptr, c.elements * SizeOf(c.dtype), Offset(c.dtype, rng));
  const device::DeviceFrame from = FrameOf(frame, arrays.frame);
  suite.Run(suite.table().decode(suite.queue(), &from, arrays.output.get()), "decode");
  Bytes expected(c.elements * SizeOf(c.dtype));
  Decode(frame.data(), expected.data());
  bool intact = true;
  suite.Check(arrays.output.Read(intact) == expected, "decode: not the host's elements");
  suite.Check(intact, "decode wrote past its output");
}

void TestReduceInto(Suite& suite, Arrays& arrays, const Case& c, const Bytes& frame,
                    DType accumulator, std::mt19937_64& rng) {
  Bytes expected = Random(accumulator, Pattern::kHalf, c.elements, rng);
  arrays.frame.Make(frame.data(), frame.size());
  arrays.output.Make(expected.data(), expected.size(), Offset(accumulator, rng));
  const device::DeviceFrame from = FrameOf(frame, arrays.frame);
  suite.Run(suite.table().reduce_into(suite.queue(), &from, arrays.output.get(),
                                      static_cast<uint8_t>(accumulator)),
            "reduce_into");
  ReduceInto(frame.data(), expected.data(), accumulator);
  bool intact = true;
  const Bytes found = arrays.output.Read(intact);
  suite.Check(
      oracle::FirstDifference(accumulator, found.data(), expected.data(), c.elements) == c.elements,
      "reduce_into: not the host's sums");
  suite.Check(intact, "reduce_into wrote past its accumulator");
}

uint32_t FaultsOf(Suite& suite, Arrays& arrays, const Bytes& frame) {
  arrays.frame.Make(frame.data(), frame.size());
  arrays.word.MakeZeros(sizeof(uint32_t));
  const device::DeviceFrame from = FrameOf(frame, arrays.frame);
  suite.Run(
      suite.table().validate_body(suite.queue(), &from, static_cast<uint32_t*>(arrays.word.get())),
      "validate_body");
  bool intact = true;
  uint32_t faults = 0;
  std::memcpy(&faults, arrays.word.Read(intact).data(), sizeof(faults));
  return faults;
}

void TestValidate(Suite& suite, Arrays& arrays, const Case& c, Bytes frame, std::mt19937_64& rng) {
  suite.Check(FaultsOf(suite, arrays, frame) == 0, "validate_body refuses the host's frame");
  if (frame.size() == sizeof(FrameHeader)) return;
  const size_t at = sizeof(FrameHeader) + rng() % (frame.size() - sizeof(FrameHeader));
  frame[at] = static_cast<uint8_t>(frame[at] ^ 1u << rng() % 8);
  const bool valid = Validate(frame.data(), frame.size(), c.dtype, c.elements).ok();
  suite.Check(FaultsOf(suite, arrays, frame) == (valid ? 0 : 1),
              "validate_body and the host's Validate() of a damaged body disagree");
}

void TestFrame(Suite& suite, Arrays& arrays, const Case& c, std::mt19937_64& rng) {
  suite.SetCase(c.Name());
  const Bytes dense = Random(c.dtype, c.pattern, c.elements, rng);
  const Bytes frame = HostFrame(c.format, c.dtype, dense, c.elements);
  TestEncode(suite, arrays, c, dense, frame, rng);
  TestDecode(suite, arrays, c, frame, rng);
  TestReduceInto(suite, arrays, c, frame, c.dtype, rng);
  if (SizeOf(c.dtype) == 2) TestReduceInto(suite, arrays, c, frame, DType::kFloat32, rng);
  TestValidate(suite, arrays, c, frame, rng);
}

// The fused hop: (local + frame), encoded.
void TestHop(Suite& suite, Arrays& arrays, DType dtype, DType local_dtype, uint64_t elements,
             std::mt19937_64& rng) {
  const Pattern mine = kPatterns[rng() % std::size(kPatterns)];
  const Pattern theirs = kPatterns[rng() % std::size(kPatterns)];
  suite.SetCase("fused " + std::string(NameOf(local_dtype)) + " into " +
                std::string(NameOf(dtype)) + " elements " + std::to_string(elements));
  const Bytes local = Random(local_dtype, mine, elements, rng);
  const Bytes frame =
      HostFrame(Format::kPici, dtype, Random(dtype, theirs, elements, rng), elements);
  arrays.frame.Make(frame.data(), frame.size());
  arrays.local.Make(local.data(), local.size(), Offset(local_dtype, rng));
  arrays.output.Make(nullptr, MaxFrameBytes(Format::kPici, dtype, elements));
  arrays.scratch.MakeZeros(suite.table().scratch_bytes(static_cast<uint8_t>(Format::kPici),
                                                       static_cast<uint8_t>(dtype), elements));
  const device::DeviceFrame from = FrameOf(frame, arrays.frame);
  suite.Run(
      suite.table().add_and_encode(suite.queue(), &from, static_cast<uint8_t>(local_dtype),
                                   arrays.local.get(), arrays.output.get(), arrays.scratch.get()),
      "add_and_encode");
  Bytes sum(elements * SizeOf(dtype));
  if (local_dtype == dtype) {
    sum = local;
  } else {
    Widen(local_dtype, RedOp::kSum, local.data(), sum.data(), elements);
  }
  ReduceInto(frame.data(), sum.data(), dtype);
  const Bytes expected = HostFrame(Format::kPici, dtype, sum, elements);
  const FrameHeader header = HeaderOf(expected);
  bool intact = true;
  const Bytes found = arrays.output.Read(intact);
  suite.Check(intact, "add_and_encode wrote past its frame");
  // Byte for byte but for the payloads of NaNs that an addition made.
  const size_t values = header.values_offset;
  suite.Check(std::equal(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(values),
                         found.begin()) &&
                  oracle::FirstDifference(dtype, found.data() + values, expected.data() + values,
                                          header.nnz) == header.nnz,
              "add_and_encode: not the host's frame");
}

constexpr Format kFormats[] = {Format::kDense, Format::kPici, Format::kPiciColumn, Format::kCoo,
                               Format::kGap};

}  // namespace

void TestFrames(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng) {
  Arrays arrays;
  for (const Format format : kFormats) {
    for (int code = 0; code < kDTypeCount; ++code) {
      for (const uint64_t elements : EdgeSizes()) {
        for (const Pattern pattern : kPatterns) {
          if (rng() % options.thinning != 0) continue;
          TestFrame(suite, arrays, {format, static_cast<DType>(code), elements, pattern}, rng);
        }
      }
    }
  }
}

void TestFused(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng) {
  Arrays arrays;
  for (int code = 0; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    for (const uint64_t elements : EdgeSizes()) {
      if (rng() % options.thinning != 0) continue;
      TestHop(suite, arrays, dtype, dtype, elements, rng);
      if (SizeOf(dtype) == 2) TestHop(suite, arrays, DType::kFloat32, dtype, elements, rng);
    }
  }
}

}  // namespace spccl::gpu_test
