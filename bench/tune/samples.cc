#include "bench/tune/samples.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "base/view.h"
#include "collective/policy/plan_table.h"
#include "collective/policy/settings.h"

namespace spccl::tune {
namespace {

constexpr char kHeader[] = "op,nodes,ranks,bytes,sparsity,channels,way,ran,iters,time_us\n";

std::optional<Sample> Parse(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  if (fields.size() != 10) return std::nullopt;
  Sample sample;
  Case& at = sample.at;
  int code = 0;
  while (code < kOpKindCount && View(NameOf(static_cast<OpKind>(code))) != fields[0]) ++code;
  if (code == kOpKindCount) return std::nullopt;
  at.op = static_cast<OpKind>(code);
  sample.way = std::string(fields[6]);
  sample.ran = std::string(fields[7]);
  const bool numbers =
      absl::SimpleAtoi(fields[1], &at.nodes) && absl::SimpleAtoi(fields[2], &at.ranks) &&
      absl::SimpleAtoi(fields[3], &at.bytes) && absl::SimpleAtod(fields[4], &at.sparsity) &&
      absl::SimpleAtoi(fields[5], &at.channels) && absl::SimpleAtoi(fields[8], &sample.iters) &&
      absl::SimpleAtod(fields[9], &sample.time_us);
  const bool known = (sample.way == "auto" || policy::PickFromName(sample.way)) &&
                     policy::AlgorithmFromName(sample.ran);
  const bool possible = known && numbers && at.nodes > 0 && at.ranks >= at.nodes && at.bytes > 0 &&
                        at.sparsity >= 0 && at.sparsity <= 1 && sample.time_us > 0 &&
                        std::isfinite(sample.time_us);
  return possible ? std::optional(sample) : std::nullopt;
}

}  // namespace

std::string Describe(const Case& at) {
  return absl::StrCat(View(NameOf(at.op)), ", ", at.nodes, " nodes, ", at.ranks, " ranks, ",
                      at.bytes, " bytes, ", absl::StrFormat("%.6g", 100 * at.sparsity), "% zeros",
                      at.channels == 0 ? "" : absl::StrCat(", ", at.channels, " channels"));
}

absl::StatusOr<std::vector<Sample>> ReadSamples(const std::string& path) {
  std::vector<Sample> samples;
  std::ifstream file(path, std::ios::binary);
  if (!file) return samples;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t whole = text.rfind('\n') + 1;  // npos + 1 is 0
  if (whole != text.size() && ::truncate(path.c_str(), static_cast<off_t>(whole)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("truncate ", path));
  }
  text.resize(whole);
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || (number == 1 && absl::StrCat(line, "\n") == kHeader)) continue;
    const auto sample = Parse(line);
    if (!sample) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": found \"", line, "\", expected ", kHeader));
    }
    samples.push_back(*sample);
  }
  return samples;
}

absl::Status AppendSamples(const std::string& path, const std::vector<Sample>& samples) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  std::string text = ::lseek(fd.get(), 0, SEEK_END) == 0 ? kHeader : "";
  for (const Sample& sample : samples) {
    const Case& at = sample.at;
    absl::StrAppend(&text, View(NameOf(at.op)), ",", at.nodes, ",", at.ranks, ",", at.bytes, ",",
                    absl::StrFormat("%.9g", at.sparsity), ",", at.channels, ",", sample.way, ",",
                    sample.ran, ",", sample.iters, ",", absl::StrFormat("%.3f", sample.time_us),
                    "\n");
  }
  const ssize_t written = ::write(fd.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return ErrnoStatus(written < 0 ? errno : ENOSPC, absl::StrCat("write ", path));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<Measured> Gather(const std::vector<Sample>& samples, uint32_t channels) {
  std::map<Case, std::map<std::string, std::vector<double>>> times;
  for (const Sample& sample : samples) {
    if (sample.at.channels == channels) times[sample.at][sample.way].push_back(sample.time_us);
  }
  std::vector<Measured> all;
  for (auto& [at, ways] : times) {
    const auto by_cost_model = ways.extract("auto");
    if (by_cost_model.empty() || ways.empty()) continue;
    Measured& measured =
        all.emplace_back(Measured{.at = at, .auto_us = Median(by_cost_model.mapped())});
    for (const auto& [way, values] : ways) measured.time_us[way] = Median(values);
  }
  return all;
}

}  // namespace spccl::tune
