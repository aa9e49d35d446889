#include "bench/perf/problem.h"

#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/view.h"

namespace spccl::bench {

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  const auto wrong = [text] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(text), "\" is not a size such as 8, 64K, 16M or 1G"));
  };
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number == 0) return wrong();
  int shift = 0;
  if (rest != end) {
    const std::string_view unit(rest, end - rest);
    if (unit == "K" || unit == "k") {
      shift = 10;
    } else if (unit == "M" || unit == "m") {
      shift = 20;
    } else if (unit == "G" || unit == "g") {
      shift = 30;
    } else {
      return wrong();
    }
  }
  if (number > (std::numeric_limits<uint64_t>::max() >> (shift + 8))) return wrong();
  return number << shift;
}

absl::StatusOr<std::vector<uint64_t>> ParseSizes(std::string_view text) {
  std::vector<uint64_t> sizes;
  for (const absl::string_view part : absl::StrSplit(View(text), ',')) {
    SPCCL_ASSIGN_OR_RETURN(const uint64_t size, ParseSize({part.data(), part.size()}));
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<Problem> MakeProblem(Collective kind, DType dtype, RedOp redop, uint32_t ranks,
                                    uint64_t bytes) {
  const uint64_t shares = Shares(kind) ? ranks : 1;
  const uint64_t count = bytes / SizeOf(dtype) / shares;
  if (count == 0) {
    return absl::InvalidArgumentError(absl::StrCat("size ", bytes, " is less than one element of ",
                                                   std::string(NameOf(dtype)),
                                                   shares > 1 ? " for each rank" : ""));
  }
  return Problem{.op = {.kind = kind, .dtype = dtype, .redop = redop, .root = 0, .count = count},
                 .ranks = ranks,
                 .bytes = count * shares * SizeOf(dtype)};
}

double AlgorithmBandwidth(uint64_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us / 1e3 : 0;
}

double BusFactor(Collective kind, uint32_t ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case Collective::kAllReduce:
      return 2 * share;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return share;
    case Collective::kBroadcast:
      return 1;
  }
  return 1;
}

InPlaceOffsets InPlace(const Problem& problem, uint32_t rank) {
  const uint64_t share = problem.op.count * SizeOf(problem.op.dtype) * rank;
  switch (problem.op.kind) {
    case Collective::kAllGather:
      return {.send = share, .recv = 0};
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {.send = 0, .recv = share};
    default:
      return {};
  }
}

}  // namespace spccl::bench
