// What takes a whole GPU to go wrong: frames of many tiles, whose blocks wait for each other, on
// two streams at a time, with scratch that is used again, and from a captured graph.
#include "kernels/host/codec.h"
#include "tests/gpu/codec_suite.h"
#include "tests/kernels/host/elements.h"

namespace spccl::gpu_test {
namespace {

constexpr Format kSparse[] = {Format::kPici, Format::kPiciColumn, Format::kCoo, Format::kGap};

uint8_t Code(Format format) {
  return static_cast<uint8_t>(format);
}
uint8_t Code(DType dtype) {
  return static_cast<uint8_t>(dtype);
}

// One element in `one_in` is not zero.
Bytes Sparse(DType dtype, uint64_t elements, uint64_t one_in, std::mt19937_64& rng) {
  Bytes dense(elements * SizeOf(dtype));
  for (uint64_t i = 0; i < elements; ++i) {
    const uint64_t bits = rng();
    if (bits % one_in == 0) std::memcpy(&dense[i * SizeOf(dtype)], &bits, SizeOf(dtype));
  }
  return dense;
}

// Encodes on two streams at a time, a few times over, with scratch that is not cleared between.
void TestLargeFrame(Suite& suite, Format format, DType dtype, uint64_t elements, uint64_t one_in,
                    std::mt19937_64& rng) {
  suite.SetCase("large " + std::string(NameOf(format)) + " " + std::string(NameOf(dtype)) +
                " elements " + std::to_string(elements) + ", one in " + std::to_string(one_in));
  const Bytes dense = Sparse(dtype, elements, one_in, rng);
  const Bytes expected = HostFrame(format, dtype, dense, elements);
  DeviceArray from, frames[2], scratch[2], output;
  cuda::Stream second = nullptr;
  SPCCL_MUST(StreamCreateWithPriority(&second, cuda::kStreamNonBlocking, 0));
  const device::Queue queues[2] = {*suite.queue(), {second, suite.queue()->resident_blocks}};
  from.Make(dense.data(), dense.size());
  for (int s = 0; s < 2; ++s) {
    frames[s].Make(nullptr, MaxFrameBytes(format, dtype, elements));
    scratch[s].MakeZeros(suite.table().scratch_bytes(Code(format), Code(dtype), elements));
  }
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (int s = 0; s < 2; ++s) {
      const int error = suite.table().encode(&queues[s], Code(format), Code(dtype), from.get(),
                                             elements, frames[s].get(), scratch[s].get());
      if (error != 0) Stop(kFailed, "encode", suite.table().error_text(error));
    }
  }
  Drain(suite.stream(), "encode on one of two streams");
  Drain(second, "encode on the other of two streams");
  bool intact = true;
  for (const DeviceArray& frame : frames) {
    const Bytes found = frame.Read(intact);
    suite.Check(std::equal(expected.begin(), expected.end(), found.begin()),
                "encode: not the host's frame");
  }
  FrameHeader header;
  std::memcpy(&header, expected.data(), sizeof(header));
  const device::DeviceFrame frame = {header.format, header.dtype, header.element_count, header.nnz,
                                     frames[0].get()};
  output.Make(nullptr, dense.size());
  suite.Run(suite.table().decode(suite.queue(), &frame, output.get()), "decode");
  Bytes back(dense.size());
  Decode(expected.data(), back.data());
  suite.Check(output.Read(intact) == back, "decode: not the host's elements");
  // Onto what was decoded: every element twice, whichever form the density asks for.
  suite.Run(suite.table().reduce_into(suite.queue(), &frame, output.get(), Code(dtype)),
            "reduce_into");
  ReduceInto(expected.data(), back.data(), dtype);
  suite.Check(output.Read(intact) == back, "reduce_into: not the host's sums");
  suite.Check(intact, "something was written past an array");
  SPCCL_MUST(StreamDestroy(second));
}

}  // namespace

void TestLarge(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng) {
  // Integers, so that sums have no NaNs: their bits are compared.
  for (const Format format : kSparse) {
    const uint64_t elements = options.large_bytes / sizeof(uint32_t) / 4 + 77;
    for (const uint64_t one_in : {2, 10, 20, 100, 1000}) {
      TestLargeFrame(suite, format, DType::kUint32, elements, one_in, rng);
    }
    TestLargeFrame(suite, format, DType::kUint8, elements, 10, rng);
    TestLargeFrame(suite, format, DType::kUint64, elements / 2, 100, rng);
  }
  TestLargeFrame(suite, Format::kPici, DType::kUint32, options.large_bytes / sizeof(uint32_t), 100,
                 rng);
}

// A captured encoding, replayed with other elements in the same place.
void TestReplay(Suite& suite, std::mt19937_64& rng) {
  constexpr uint64_t kElements = 300 * 4096 + 5;
  constexpr DType kDType = DType::kUint32;
  for (const Format format : kSparse) {
    suite.SetCase("replayed " + std::string(NameOf(format)));
    DeviceArray from, frame, scratch;
    from.Make(nullptr, kElements * SizeOf(kDType));
    frame.Make(nullptr, MaxFrameBytes(format, kDType, kElements));
    scratch.MakeZeros(suite.table().scratch_bytes(Code(format), Code(kDType), kElements));
    cuda::Graph graph = nullptr;
    cuda::GraphExec exec = nullptr;
    SPCCL_MUST(StreamBeginCapture(suite.stream(), cuda::kStreamCaptureModeThreadLocal));
    const int error = suite.table().encode(suite.queue(), Code(format), Code(kDType), from.get(),
                                           kElements, frame.get(), scratch.get());
    if (error != 0) Stop(kFailed, "encode under capture", suite.table().error_text(error));
    SPCCL_MUST(StreamEndCapture(suite.stream(), &graph));
    SPCCL_MUST(GraphInstantiate(&exec, graph, 0));
    for (const uint64_t one_in : {3, 50, 1}) {
      const Bytes dense = Sparse(kDType, kElements, one_in, rng);
      from.Make(dense.data(), dense.size());  // as large as before: at the same place
      SPCCL_MUST(GraphLaunch(exec, suite.stream()));
      Drain(suite.stream(), "a replayed encode");
      const Bytes expected = HostFrame(format, kDType, dense, kElements);
      bool intact = true;
      const Bytes found = frame.Read(intact);
      suite.Check(intact && std::equal(expected.begin(), expected.end(), found.begin()),
                  "encode: not the host's frame");
    }
    SPCCL_MUST(GraphExecDestroy(exec));
    SPCCL_MUST(GraphDestroy(graph));
  }
}

}  // namespace spccl::gpu_test
