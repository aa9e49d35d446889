// Whether the kernels for GPUs, on a GPU, write what the host's codecs write.
//
//   gpu-codec-suite LIBSPCCL_DEVICE [--thin N] [--large BYTES]
//
// Ends with 0 if they do, 1 if not, 77 if there is no GPU. SPCCL_TEST_SEED repeats a run.
#include "tests/gpu/codec_suite.h"

#include <string_view>

#include "tests/support/seed.h"

namespace spccl::gpu_test {
namespace {

constexpr char kUsage[] =
    R"(usage: gpu-codec-suite LIBSPCCL_DEVICE [--thin N] [--large BYTES]

  --thin N       one case in N, drawn by the seed
  --large BYTES  of elements, of the largest frames (default: 268435456; 0: none)
)";

[[noreturn]] void RefuseUse() {
  std::fputs(kUsage, stderr);
  std::exit(2);
}

int Main(int argc, char** argv) {
  SuiteOptions options;
  const char* library = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argument == "--thin" && i + 1 < argc) {
      options.thinning = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else if (argument == "--large" && i + 1 < argc) {
      options.large_bytes = std::strtoull(argv[++i], nullptr, 10);
    } else if (library == nullptr && !argument.starts_with("-")) {
      library = argv[i];
    } else {
      RefuseUse();
    }
  }
  if (library == nullptr || options.thinning == 0) RefuseUse();
  role = "codec suite";
  Suite suite(library);
  std::mt19937_64 rng(TestSeed());
  TestFrames(suite, options, rng);
  std::printf("frames: %llu checks\n", static_cast<unsigned long long>(suite.checks()));
  TestFused(suite, options, rng);
  TestDense(suite, options, rng);
  std::printf("and fused, dense: %llu checks\n", static_cast<unsigned long long>(suite.checks()));
  TestReplay(suite, rng);
  if (options.large_bytes > 0) TestLarge(suite, options, rng);
  std::printf("codec suite: %llu checks, %d wrong\n",
              static_cast<unsigned long long>(suite.checks()), suite.wrong());
  return suite.wrong() == 0 ? 0 : kFailed;
}

}  // namespace
}  // namespace spccl::gpu_test

int main(int argc, char** argv) {
  return spccl::gpu_test::Main(argc, argv);
}
