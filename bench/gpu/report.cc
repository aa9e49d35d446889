#include "bench/gpu/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace spccl::gpu_bench {
namespace {

constexpr double kSectorBytes = 32;  // the least that a GPU reads or writes of its memory
constexpr double kJudgedSparsity = 0.99;

template <class... Arguments>
std::string Format(const char* format, Arguments... arguments) {
  char text[512];
  std::snprintf(text, sizeof(text), format, arguments...);
  return text;
}

bool IsJudged(const Row& row) {
  return row.dtype == "float32" && std::abs(row.sparsity - kJudgedSparsity) < 1e-9;
}

const Row* Find(const std::vector<Row>& rows, const std::string& operation,
                const std::string& format, uint64_t bytes) {
  for (const Row& row : rows) {
    if (row.operation == operation && row.format == format && row.bytes == bytes && IsJudged(row)) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

uint64_t MovedBytes(const std::string& operation, uint64_t bytes, uint64_t element_bytes,
                    double density, uint64_t frame_bytes, uint64_t out_frame_bytes) {
  if (operation == "fused") return bytes + frame_bytes + out_frame_bytes;
  if (operation != "reduce-into") return bytes + frame_bytes;
  // Sectors with no nonzero are not touched; the others are read and written.
  const double elements = kSectorBytes / static_cast<double>(element_bytes);
  const double touched = 1 - std::pow(1 - density, elements);
  return frame_bytes + static_cast<uint64_t>(2 * static_cast<double>(bytes) * touched);
}

double GbpsOf(const Row& row) {
  return row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds / 1e9 : 0;
}

double FloorFraction(const Row& row) {
  if (row.seconds <= 0 || row.copy_seconds <= 0) return 0;
  const double bandwidth = 2 * static_cast<double>(row.bytes) / row.copy_seconds;
  return static_cast<double>(row.moved_bytes) / bandwidth / row.seconds;
}

double RivalRatio(const Row& row) {
  if (row.seconds <= 0) return 0;
  double rival = std::max(row.cub_seconds, row.cusparse_seconds);
  if (row.cub_seconds > 0 && row.cusparse_seconds > 0) {
    rival = std::min(row.cub_seconds, row.cusparse_seconds);
  }
  return rival / row.seconds;
}

std::vector<Verdict> Judge(const std::vector<Row>& rows) {
  uint64_t bytes = 0;
  for (const Row& row : rows) {
    if (IsJudged(row)) bytes = std::max(bytes, row.bytes);
  }
  constexpr struct {
    const char* operation;
    double floor;
  } kTargets[] = {{"encode", 0.80}, {"decode", 0.80}, {"fused", 0.75}, {"reduce-into", 0.6}};
  std::vector<Verdict> verdicts;
  for (const auto& target : kTargets) {
    const std::string operation = target.operation;
    const Row* const row = Find(rows, operation, "pici", bytes);
    const double floor = row != nullptr ? FloorFraction(*row) : 0;
    verdicts.push_back({operation + ": of the floor", floor, target.floor, floor > 0});
    const double rival = row != nullptr ? RivalRatio(*row) : 0;
    verdicts.push_back(
        {operation + ": times the faster of CUB and cuSPARSE", rival, 1.5, rival > 0});
    if (operation == "fused") continue;  // has no column form
    const Row* const column = Find(rows, operation, "pici-column", bytes);
    const bool both = row != nullptr && column != nullptr && row->seconds > 0;
    verdicts.push_back({operation + ": times the column form",
                        both ? column->seconds / row->seconds : 0, 1.3, both});
  }
  return verdicts;
}

bool IsTargetCard(std::string_view device) {
  constexpr std::string_view kCard = "H100";
  for (size_t at = device.find(kCard); at != device.npos; at = device.find(kCard, at + 1)) {
    const auto is_edge = [device](size_t i) { return i >= device.size() || device[i] == ' '; };
    if ((at == 0 || is_edge(at - 1)) && is_edge(at + kCard.size())) {
      return device.find("MIG") == device.npos;
    }
  }
  return false;
}

std::string MissingRivals(const std::vector<Row>& rows) {
  const auto lacking = std::count_if(rows.begin(), rows.end(),
                                     [](const Row& row) { return row.cusparse_seconds <= 0; });
  if (lacking == 0) return "";
  return Format("cuSPARSE in %d of %d rows", static_cast<int>(lacking),
                static_cast<int>(rows.size()));
}

void PrintTable(const std::vector<Row>& rows, std::ostream& out) {
  out << Format("%-12s %-12s %-9s %9s %6s %9s %9s %7s %7s %9s\n", "operation", "format", "dtype",
                "sparsity", "MiB", "us", "GB/s", "floor", "rivals", "copy GB/s");
  for (const Row& row : rows) {
    const double copy =
        row.copy_seconds > 0 ? static_cast<double>(row.bytes) / row.copy_seconds / 1e9 : 0;
    out << Format("%-12s %-12s %-9s %8.1f%% %6llu %9.1f %9.1f %7.2f %7.2f %9.1f\n",
                  row.operation.c_str(), row.format.c_str(), row.dtype.c_str(), row.sparsity * 100,
                  static_cast<unsigned long long>(row.bytes >> 20), row.seconds * 1e6, GbpsOf(row),
                  FloorFraction(row), RivalRatio(row), copy);
  }
}

void PrintJson(const std::string& device, const Row& row, std::ostream& out) {
  out << Format(
      "{\"device\":\"%s\",\"operation\":\"%s\",\"format\":\"%s\",\"dtype\":\"%s\","
      "\"sparsity\":%.4f,\"bytes\":%llu,\"frame_bytes\":%llu,\"moved_bytes\":%llu,",
      device.c_str(), row.operation.c_str(), row.format.c_str(), row.dtype.c_str(), row.sparsity,
      static_cast<unsigned long long>(row.bytes), static_cast<unsigned long long>(row.frame_bytes),
      static_cast<unsigned long long>(row.moved_bytes));
  out << Format(
      "\"seconds\":%.9f,\"copy_seconds\":%.9f,\"cub_seconds\":%.9f,\"cusparse_seconds\":%.9f,"
      "\"gbps\":%.3f,\"floor_fraction\":%.4f,\"rival_ratio\":%.4f}\n",
      row.seconds, row.copy_seconds, row.cub_seconds, row.cusparse_seconds, GbpsOf(row),
      FloorFraction(row), RivalRatio(row));
}

bool PrintVerdicts(const std::vector<Verdict>& verdicts, std::string_view device,
                   std::ostream& out) {
  const bool judges = IsTargetCard(device);
  int missed = 0, lacking = 0;
  for (const Verdict& verdict : verdicts) {
    missed += verdict.passed() ? 0 : 1;
    lacking += verdict.measured ? 0 : 1;
    const char* const word = verdict.passed()              ? "ok    "
                             : !verdict.measured || judges ? "MISSED"
                                                           : "below ";
    out << Format("%s %-52s %6.2f, wanted %.2f%s\n", word, verdict.what.c_str(), verdict.found,
                  verdict.wanted, verdict.measured ? "" : "; not measured");
  }
  const int count = static_cast<int>(verdicts.size());
  if (judges || lacking > 0 || verdicts.empty()) {
    const bool passed = missed == 0 && !verdicts.empty();
    out << Format("%s: %d of %d targets missed, %d not measured\n", passed ? "PASS" : "FAIL",
                  judges ? missed : lacking, count, lacking);
    return passed;
  }
  const std::string name(device);
  out << Format("skipped: targets of an H100, not judged on %s\n", name.c_str());
  out << Format("PASS: all measured, below %d of %d targets of an H100, not judged on %s\n", missed,
                count, name.c_str());
  return true;
}

double MedianOf(std::vector<float> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace spccl::gpu_bench
