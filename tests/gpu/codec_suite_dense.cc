// Reductions in one pass and in steps, and copies, against the host's dense kernels.
#include <memory>

#include "kernels/host/dense.h"
#include "tests/gpu/codec_suite.h"
#include "tests/kernels/host/elements.h"
#include "tests/support/frame_oracle.h"

namespace spccl::gpu_test {
namespace {

constexpr uint64_t kSizes[] = {0, 1, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 100003};

// One dtype and reduction, at one size.
class DenseCase {
 public:
  DenseCase(Suite& suite, DType dtype, RedOp op, uint64_t elements, std::mt19937_64& rng)
      : suite_(suite), dtype_(dtype), op_(op), elements_(elements), rng_(rng) {
    suite_.SetCase(std::string(NameOf(op)) + " " + std::string(NameOf(dtype)) + " elements " +
                   std::to_string(elements));
  }

  void Reduces(uint32_t inputs) {
    std::vector<Bytes> sources;
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    std::vector<const void*> host_from, from;
    for (uint32_t r = 0; r < inputs; ++r) {
      sources.push_back(Random(dtype_));
      arrays.push_back(Make(dtype_, &sources.back()));
      from.push_back(arrays.back()->get());
    }
    for (const Bytes& source : sources) host_from.push_back(source.data());
    const auto other = Make(dtype_, nullptr);
    void* const to[] = {other->get(), arrays.back()->get()};  // in place, too
    suite_.Run(suite_.table().reduce(suite_.queue(), Code(dtype_), Code(op_), from.data(), inputs,
                                     to, 2, elements_),
               "reduce");
    Bytes expected(elements_ * SizeOf(dtype_));
    void* const host_to[] = {expected.data()};
    Reduce(dtype_, op_, host_from, host_to, elements_, false);
    Expect(dtype_, *other, expected, "reduce: not the host's result");
    Expect(dtype_, *arrays.back(), expected, "reduce in place: not the host's result");
  }

  void Steps() {
    const DType accumulator = AccumulatorOf(dtype_, op_);
    const uint32_t ranks = 1 + static_cast<uint32_t>(rng_() % 9);
    const Bytes input = Random(dtype_), partial = Random(accumulator);
    Bytes sum(elements_ * SizeOf(accumulator)), output(elements_ * SizeOf(dtype_));
    const auto device_input = Make(dtype_, &input), device_partial = Make(accumulator, &partial);
    const auto device_sum = Make(accumulator, nullptr);
    Widen(dtype_, op_, input.data(), sum.data(), elements_);
    suite_.Run(suite_.table().widen(suite_.queue(), Code(dtype_), Code(op_), device_input->get(),
                                    device_sum->get(), elements_),
               "widen");
    Expect(accumulator, *device_sum, sum, "widen: not the host's result");
    Accumulate(accumulator, op_, partial.data(), sum.data(), elements_);
    suite_.Run(suite_.table().accumulate(suite_.queue(), Code(accumulator), Code(op_),
                                         device_partial->get(), device_sum->get(), elements_),
               "accumulate");
    Expect(accumulator, *device_sum, sum, "accumulate: not the host's result");
    // Both sides finish the same sums: those above may differ in the payloads of NaNs.
    const auto again = Make(accumulator, &sum);
    const auto first = Make(dtype_, nullptr), second = Make(dtype_, nullptr);
    std::vector<void*> to = {first->get(), second->get()};
    if (accumulator == dtype_) to.push_back(again->get());
    Finish(dtype_, op_, sum.data(), output.data(), elements_, ranks);
    suite_.Run(suite_.table().finish(suite_.queue(), Code(dtype_), Code(op_), again->get(),
                                     to.data(), static_cast<uint32_t>(to.size()), elements_, ranks),
               "finish");
    Expect(dtype_, *first, output, "finish: not the host's result");
    Expect(dtype_, *second, output, "finish: not the host's result in the second output");
    if (accumulator == dtype_) {
      Expect(dtype_, *again, output, "finish in place: not the host's result");
    }
  }

  void Copies() {
    const Bytes input = Random(dtype_);
    const auto from = Make(dtype_, &input);
    const auto first = Make(dtype_, nullptr), second = Make(dtype_, nullptr);
    void* const to[] = {first->get(), from->get(), second->get()};
    suite_.Run(
        suite_.table().copy_to_many(suite_.queue(), Code(dtype_), from->get(), to, 3, elements_),
        "copy_to_many");
    bool intact = true;
    suite_.Check(first->Read(intact) == input && second->Read(intact) == input &&
                     from->Read(intact) == input,
                 "copy_to_many: not the input");
    suite_.Check(intact, "copy_to_many wrote past an output");
  }

 private:
  template <class E>
  static uint8_t Code(E value) {
    return static_cast<uint8_t>(value);
  }
  Bytes Random(DType dtype) {
    Bytes dense(elements_ * SizeOf(dtype));
    FillElements(dtype, kPatterns[rng_() % std::size(kPatterns)], rng_, elements_, dense.data());
    return dense;
  }
  std::unique_ptr<DeviceArray> Make(DType dtype, const Bytes* content) {
    auto array = std::make_unique<DeviceArray>();
    const size_t offset = rng_() % 3 == 0 ? rng_() % 16 * SizeOf(dtype) : 0;
    array->Make(content != nullptr ? content->data() : nullptr, elements_ * SizeOf(dtype), offset);
    return array;
  }
  void Expect(DType dtype, const DeviceArray& array, const Bytes& expected, const char* what) {
    bool intact = true;
    const Bytes found = array.Read(intact);
    suite_.Check(
        oracle::FirstDifference(dtype, found.data(), expected.data(), elements_) == elements_,
        what);
    suite_.Check(intact, "something was written past an array");
  }

  Suite& suite_;
  const DType dtype_;
  const RedOp op_;
  const uint64_t elements_;
  std::mt19937_64& rng_;
};

}  // namespace

void TestDense(Suite& suite, const SuiteOptions& options, std::mt19937_64& rng) {
  for (int code = 0; code < kDTypeCount; ++code) {
    for (int op = 0; op < kRedOpCount; ++op) {
      for (const uint64_t elements : kSizes) {
        if (rng() % options.thinning != 0) continue;
        DenseCase c(suite, static_cast<DType>(code), static_cast<RedOp>(op), elements, rng);
        c.Reduces(1 + static_cast<uint32_t>(rng() % 9));
        c.Steps();
        if (op == 0) c.Copies();
      }
    }
  }
}

}  // namespace spccl::gpu_test
