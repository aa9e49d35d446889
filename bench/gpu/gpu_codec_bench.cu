// How fast the GPU's codecs are, beside a device copy, CUB and cuSPARSE. See --help.
#include <dlfcn.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string_view>

#include "bench/gpu/group.cuh"

namespace spccl::gpu_bench {
namespace {

constexpr char kUsage[] =
    R"(Usage: gpu-codec-bench LIBSPCCL_DEVICE [--mib 256,1024] [--sparsity 0.5,0.9,...] [--repeats N]
                       [--seconds N] [--json FILE]

Encodes, decodes, reduces into and fuses float32 and bfloat16 vectors in every format, beside a device
copy, CUB's DeviceSelect (flagged) with a scatter, and cuSPARSE, all in one interleaved run; medians by
events. "floor": the bytes that must be moved over the copy's bandwidth, over the time it took; "rivals":
how many times as fast as the faster of CUB and cuSPARSE. The last line is PASS or FAIL: the targets for
an H100, on float32 at 99% zeros in the largest size; on another card they are told and not judged, and
what fails is a wrong result, or one that a target needs and that was not measured. After --seconds
nothing new begins. A line "skipped: WHAT" for each part that was not measured or not judged.

Ends with 0 (PASS), 1 (FAIL, or something is wrong), 2 (usage), 77 (there is no GPU, or no usable driver).
)";

struct Options {
  const char* library = nullptr;
  std::vector<uint64_t> mib = {256, 1024};
  std::vector<double> sparsities = {0.5, 0.9, 0.95, 0.99, 0.999};
  int repeats = 11;
  int seconds = 3600;
  const char* json = nullptr;
};

template <class T>
std::vector<T> List(const char* text) {
  std::vector<T> values;
  for (const char* at = text; *at != '\0';) {
    char* end = nullptr;
    const double value = std::strtod(at, &end);
    if (end == at) return {};
    values.push_back(static_cast<T>(value));
    at = *end == ',' ? end + 1 : end;
    if (*end != ',' && *end != '\0') return {};
  }
  return values;
}

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--")) {
      if (options.library != nullptr) return false;
      options.library = argv[i];
      continue;
    }
    if (i + 1 == argc) return false;
    const char* const value = argv[++i];
    if (argument == "--mib") {
      options.mib = List<uint64_t>(value);
    } else if (argument == "--sparsity") {
      options.sparsities = List<double>(value);
    } else if (argument == "--repeats") {
      options.repeats = std::atoi(value);
    } else if (argument == "--seconds") {
      options.seconds = std::atoi(value);
    } else if (argument == "--json") {
      options.json = value;
    } else {
      return false;
    }
  }
  for (const double sparsity : options.sparsities) {
    if (sparsity <= 0 || sparsity >= 1) return false;
  }
  return options.library != nullptr && !options.mib.empty() && !options.sparsities.empty() &&
         options.repeats > 0 && options.seconds > 0;
}

Kernels Load(const char* library, cudaStream_t stream) {
  Kernels kernels;
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const auto get =
      handle == nullptr
          ? nullptr
          : reinterpret_cast<device::GetCodecTable>(dlsym(handle, device::kCodecTableSymbol));
  if (get == nullptr || get()->version != device::kCodecTableVersion) {
    std::printf("FAIL: %s: %s\n", library,
                handle == nullptr ? dlerror() : "no table of this version");
    std::exit(kFailed);
  }
  kernels.table = get();
  kernels.queue.stream = stream;
  kernels.Must(kernels.table->resident_blocks(0, &kernels.queue.resident_blocks),
               "resident_blocks");
  return kernels;
}

// A GPU that has too little memory for a size passes over it.
bool HasRoomFor(uint64_t bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  SPCCL_MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes / 20 > bytes;
}

template <class U>
bool Measure(const Kernels& kernels, const CusparseLibrary* cusparse, const Settings& settings,
             DType dtype, uint64_t bytes, double sparsity, std::vector<Row>& rows) {
  Group<U> group(kernels, cusparse, settings, dtype, bytes, sparsity);
  if (!group.IsRight()) return false;
  group.Measure(rows);
  return true;
}

// Measures all vectors; returns whether what is measured does what it should.
bool MeasureAll(const Options& options, const Kernels& kernels, const CusparseLibrary* cusparse,
                const Settings& settings, std::vector<Row>& rows) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  bool right = true;
  for (const uint64_t mib : options.mib) {
    const uint64_t bytes = mib << 20;
    if (!HasRoomFor(bytes)) {
      std::printf("skipped: %llu MiB (too little memory)\n", static_cast<unsigned long long>(mib));
      continue;
    }
    for (const double sparsity : options.sparsities) {
      if (std::chrono::steady_clock::now() >= end) {
        std::printf("skipped: %llu MiB at %g%% zeros (time was up)\n",
                    static_cast<unsigned long long>(mib), sparsity * 100);
        continue;
      }
      right =
          Measure<uint32_t>(kernels, cusparse, settings, DType::kFloat32, bytes, sparsity, rows) &&
          right;
      right =
          Measure<uint16_t>(kernels, cusparse, settings, DType::kBfloat16, bytes, sparsity, rows) &&
          right;
    }
  }
  return right;
}

int Run(const Options& options) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {  // also where there is none
    std::printf("SKIP: no usable driver (580 or later): %s\n", cudaGetErrorString(status));
    return kSkipped;
  }
  if (status != cudaSuccess || count == 0) {
    std::printf("SKIP: no GPU: %s\n", cudaGetErrorString(status));
    return kSkipped;
  }
  cudaDeviceProp properties = {};
  SPCCL_MUST(cudaSetDevice(0));
  SPCCL_MUST(cudaGetDeviceProperties(&properties, 0));
  Settings settings;
  settings.repeats = options.repeats;
  settings.blocks = properties.multiProcessorCount * 8;
  SPCCL_MUST(cudaStreamCreateWithFlags(&settings.stream, cudaStreamNonBlocking));
  const Kernels kernels = Load(options.library, settings.stream);
  const auto cusparse = CusparseLibrary::Load(settings.stream);
  std::printf("%s; the targets are those of an H100\n", properties.name);
  if (cusparse == nullptr) std::printf("cuSPARSE is not there: CUB is the only rival\n");

  std::vector<Row> rows;
  const bool right = MeasureAll(options, kernels, cusparse.get(), settings, rows);
  PrintTable(rows, std::cout);
  if (options.json != nullptr) {
    std::ofstream file(options.json);
    for (const Row& row : rows) PrintJson(properties.name, row, file);
  }
  const std::string missing = MissingRivals(rows);
  if (!missing.empty()) std::cout << "skipped: " << missing << "\n";
  if (!right) {
    std::cout << "FAIL: results are wrong, see above\n";
    return kFailed;
  }
  return PrintVerdicts(Judge(rows), properties.name, std::cout) ? 0 : kFailed;
}

}  // namespace
}  // namespace spccl::gpu_bench

int main(int argc, char** argv) {
  using namespace spccl::gpu_bench;  // NOLINT(google-build-using-namespace): its own program
  Options options;
  if (argc > 1 && std::strcmp(argv[1], "--help") == 0) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (!Parse(argc, argv, options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return Run(options);
}
