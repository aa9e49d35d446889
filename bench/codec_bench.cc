// codec-bench: how fast frames are made, read and added on this machine, as a ratio to memcpy of
// the same bytes measured in turn in the same run; with --stream, the limit for a reduction.
//
// Exit codes: 0 fine, 1 wrong use, 2 the report could not be printed, 3 wrong results.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/codec_bench_measure.h"
#include "bench/support/check_number.h"
#include "bench/support/output.h"
#include "kernels/host/codec.h"

namespace spccl::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  CodecOptions codec;
  StreamOptions stream;
  bool stream_mode = false;
  bool json = false;
  std::string dtype = "float32";
  std::string format = "pici";
  std::string target;
  std::string pages = "huge";
};

template <class E, int kCount>
std::vector<std::string> NamesOf() {
  std::vector<std::string> names;
  for (int code = 0; code < kCount; ++code) names.emplace_back(NameOf(static_cast<E>(code)));
  return names;
}

std::string_view NameOf(Pages pages) {
  return pages == Pages::kHuge ? "huge" : "small";
}

double Gbps(uint64_t bytes, double seconds) {
  return std::round(static_cast<double>(bytes) / seconds / 1e9 * 1000) / 1000;
}

double Ratio(double reference_s, double seconds) {
  return std::round(reference_s / seconds * 1000) / 1000;
}

Json CodecReport(const CodecOptions& options, const CodecResult& result) {
  const uint64_t elements = options.bytes / SizeOf(options.dtype);
  return {{"op", "codec"},
          {"target", CurrentTarget()},
          {"format", NameOf(options.format)},
          {"dtype", NameOf(options.dtype)},
          {"bytes", options.bytes},
          {"sparsity", 1 - static_cast<double>(result.nnz) / static_cast<double>(elements)},
          {"threads", options.threads},
          {"repeats", options.repeats},
          {"seed", options.seed},
          {"pages", NameOf(options.pages)},
          {"huge_page_bytes", result.huge_bytes},
          {"frame_bytes", result.frame_bytes},
          {"encode_gbps", Gbps(options.bytes, result.encode_s)},
          {"decode_gbps", Gbps(options.bytes, result.decode_s)},
          {"reduce_gbps", Gbps(options.bytes, result.reduce_s)},
          {"validate_gbps", Gbps(options.bytes, result.validate_s)},
          {"memcpy_gbps", Gbps(options.bytes, result.memcpy_s)},
          {"read_gbps", Gbps(options.bytes, result.read_s)},
          {"encode_over_memcpy", Ratio(result.memcpy_s, result.encode_s)},
          {"decode_over_memcpy", Ratio(result.memcpy_s, result.decode_s)},
          {"reduce_over_memcpy", Ratio(result.memcpy_s, result.reduce_s)}};
}

Json StreamReport(const StreamOptions& options, const StreamResult& result) {
  const uint64_t moved = 2 * options.bytes * static_cast<uint64_t>(options.ranks);
  return {{"op", "stream"},
          {"bytes", options.bytes},
          {"ranks", options.ranks},
          {"threads", options.threads},
          {"repeats", options.repeats},
          {"pages", NameOf(options.pages)},
          {"huge_page_bytes", result.huge_bytes},
          {"stream_us", std::round(result.best_s * 1e7) / 10},
          {"stream_us_p50", std::round(result.median_s * 1e7) / 10},
          {"moved_gbps", Gbps(moved, result.best_s)}};
}

void Print(const Json& report, bool json) {
  if (json) {
    std::cout << report.dump() << "\n";
    return;
  }
  for (const auto& [key, value] : report.items()) {
    std::printf("%-20s %s\n", key.c_str(),
                value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
}

// CLI::Range lets a NaN through: it is neither below nor above.
CLI::Validator IsNumber() {
  return CLI::Validator(
      [](std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "not a number" : "";
      },
      "NUMBER");
}

void Define(CLI::App& app, Options& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--bytes", options.codec.bytes, "dense bytes: a number, or with K, M, G")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{64}, uint64_t{8} << 30));
  app.add_option("--dtype", options.dtype, "element type")
      ->check(CLI::IsMember(NamesOf<DType, kDTypeCount>()));
  app.add_option("--format", options.format, "frame format")
      ->check(CLI::IsMember(NamesOf<Format, kFormatCount>()));
  app.add_option("--sparsity", options.codec.sparsity, "share of zeros")
      ->check(CLI::Range(0.0, 1.0))
      ->check(IsNumber());
  app.add_option("--bound", options.codec.bound, "of errorbound, absolute")->check(AboveZero());
  app.add_option("--threads", options.codec.threads, "threads")->check(CLI::Range(1, 256));
  app.add_option("--repeats", options.codec.repeats, "repeats; the best one counts")
      ->check(CLI::Range(1, 100000));
  app.add_option("--seed", options.codec.seed, "of the random positions and values");
  app.add_option("--pages", options.pages,
                 "what buffers lie on: huge pages where the system gives them, as memory of "
                 "spcclMemAlloc does, or small ones")
      ->check(CLI::IsMember({"huge", "small"}));
  app.add_option("--target", options.target, "instruction set to force");
  app.add_flag("--stream", options.stream_mode,
               "time reading --ranks inputs and writing as many outputs instead");
  app.add_option("--ranks", options.stream.ranks, "with --stream: inputs, and outputs")
      ->check(CLI::Range(1, 64));
  app.add_flag("--json", options.json, "one JSON object on one line");
}

// Empty, or what is wrong with the options together.
std::string Complaint(const Options& options) {
  if (!ForceTarget(options.target)) {
    std::string message = "--target: this processor has";
    for (const std::string_view name : AvailableTargets()) message += " " + std::string(name);
    return message + ", not " + options.target;
  }
  if (options.codec.bytes % 64 != 0) return "--bytes: must be a multiple of 64";
  const uint64_t elements = options.codec.bytes / SizeOf(options.codec.dtype);
  if (IsLossy(options.codec.format) && !LossyCarries(options.codec.dtype)) {
    return "--dtype: lossy formats are of float32 and float64";
  }
  const uint64_t share = elements / static_cast<uint64_t>(options.codec.threads) + kTileElements;
  if (!options.stream_mode && share > kMaxFrameElements) {
    return "--bytes: more elements a thread than a frame may hold";
  }
  return "";
}

int Refuse(const std::string& complaint) {
  std::cerr << "codec-bench: " << complaint << "\nTry codec-bench --help.\n";
  return 1;
}

int Run(Options& options) {
  if (options.stream_mode) {
    options.stream.bytes = options.codec.bytes;
    options.stream.threads = options.codec.threads;
    options.stream.repeats = options.codec.repeats;
    options.stream.pages = options.codec.pages;
    Print(StreamReport(options.stream, MeasureStream(options.stream)), options.json);
    return 0;
  }
  const CodecResult result = MeasureCodec(options.codec);
  Print(CodecReport(options.codec, result), options.json);
  if (!result.decoded_right) {
    std::cerr << "codec-bench: what was decoded is not what was encoded\n";
    return 3;
  }
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Speed of frames on the host, as a ratio to memcpy", "codec-bench");
  Define(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    return Refuse(error.what());
  }
  options.codec.dtype = DTypeFromName(options.dtype).value();
  options.codec.format = FormatFromName(options.format).value();
  options.codec.pages = options.pages == "huge" ? Pages::kHuge : Pages::kSmall;
  const std::string complaint = Complaint(options);
  if (!complaint.empty()) return Refuse(complaint);
  return Run(options);
}

}  // namespace
}  // namespace spccl::bench

int main(int argc, char** argv) {
  return spccl::bench::EndOutput("codec-bench", spccl::bench::Main(argc, argv));
}
