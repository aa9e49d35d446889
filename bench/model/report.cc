#include "bench/model/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace spccl::bench::model {
namespace {

using policy::Algorithm;
using Json = nlohmann::ordered_json;

constexpr char kTool[] = "spccl-model";

// The C++ library's views are not absl's here.
std::string Text(std::string_view view) {
  return std::string(view);
}

std::string NameOfAsked(Algorithm algorithm) {
  return algorithm == Algorithm::kAuto ? "best" : Text(policy::NameOf(algorithm));
}

const char* NameOf(Verdict::Agrees agrees) {
  constexpr const char* kNames[] = {"yes", "near", "no"};
  return kNames[static_cast<int>(agrees)];
}

std::string SizeText(double bytes) {
  if (bytes >= 1 << 30) return absl::StrFormat("%gG", bytes / (1 << 30));
  if (bytes >= 1 << 20) return absl::StrFormat("%gM", bytes / (1 << 20));
  return absl::StrFormat("%gK", bytes / (1 << 10));
}

std::string SystemText(const Options& options) {
  return absl::StrCat(options.preset, options.changed.empty() ? "" : " with ",
                      absl::StrJoin(options.changed, ", "));
}

Json Head(const Options& options) {
  return {{"tool", kTool}, {"preset", options.preset}, {"changed", options.changed}};
}

const char* ThresholdsText(const Options& options) {
  return options.sending.thresholds.inter == policy::kAutoThreshold ? "auto" : "paper";
}

double WireRatio(const Projection& projection) {
  return projection.wire_bytes / projection.dense_bytes;
}

Json ToJson(const Options& options, const Row& row) {
  const Projection& sparse = row.sparse.projection;
  Json line = Head(options);
  line.update(Json{{"op", bench::NameOf(row.work.op)},
                   {"bytes", static_cast<uint64_t>(row.work.bytes)},
                   {"gpus", row.work.gpus},
                   {"sparsity", 1 - row.work.density},
                   {"dtype", spccl::NameOf(options.dtype)},
                   {"codec", policy::NameOf(options.sending.codec)},
                   {"thresholds", ThresholdsText(options)},
                   {"algo", NameOfAsked(row.asked)},
                   {"dense_algo", policy::NameOf(row.dense.algorithm)},
                   {"sparse_algo", policy::NameOf(row.sparse.algorithm)},
                   {"dense_us", row.dense.projection.seconds * 1e6},
                   {"sparse_us", sparse.seconds * 1e6},
                   {"speedup", row.speed_up()},
                   {"link_us", sparse.link_seconds * 1e6},
                   {"kernel_us", sparse.kernel_seconds * 1e6},
                   {"round_us", sparse.round_seconds * 1e6},
                   {"dominant", sparse.dominant()},
                   {"wire_ratio", WireRatio(sparse)},
                   {"rounds", sparse.rounds},
                   {"sends", sparse.sends},
                   {"sparse_sends", sparse.sparse_sends}});
  return line;
}

std::string RowText(const Row& row) {
  const Projection& sparse = row.sparse.projection;
  std::string algorithm = NameOfAsked(row.asked);
  if (row.asked == Algorithm::kAuto) {
    algorithm = absl::StrCat("best: ", Text(policy::NameOf(row.dense.algorithm)));
    if (row.sparse.algorithm != row.dense.algorithm) {
      absl::StrAppend(&algorithm, " / ", Text(policy::NameOf(row.sparse.algorithm)));
    }
  }
  return absl::StrFormat(
      "%-14s %6s %6d %8.4g%% %10.3f %10.3f %8.2f %7.3f %5d/%-5d %9.3f %9.3f %9.3f  %-7s  %s\n",
      Text(bench::NameOf(row.work.op)), SizeText(row.work.bytes), row.work.gpus,
      100 * (1 - row.work.density), row.dense.projection.seconds * 1e3, sparse.seconds * 1e3,
      row.speed_up(), WireRatio(sparse), sparse.sparse_sends, sparse.sends,
      sparse.link_seconds * 1e3, sparse.kernel_seconds * 1e3, sparse.round_seconds * 1e3,
      sparse.dominant(), algorithm);
}

std::string RangeText(const Claim& claim) {
  if (claim.low == claim.high) return absl::StrFormat("%.2f", claim.low);
  if (std::isinf(claim.high)) return absl::StrFormat("> %g", claim.low);
  if (claim.low == 0) return absl::StrFormat("< %g", claim.high);
  return absl::StrFormat("%g to %g", claim.low, claim.high);
}

}  // namespace

std::vector<Row> MakeRows(const Options& options) {
  std::vector<Row> rows;
  const double width = static_cast<double>(SizeOf(options.dtype));
  const auto add = [&](const Work& work, Algorithm algorithm) {
    Row row{.work = work, .asked = algorithm};
    if (algorithm == Algorithm::kAuto) {
      row.dense = ProjectBest(options.system, work, kDenseSending);
      row.sparse = ProjectBest(options.system, work, options.sending);
    } else if (CanProject(algorithm, work, options.system)) {
      row.dense = {algorithm, Project(algorithm, options.system, work, kDenseSending)};
      row.sparse = {algorithm, Project(algorithm, options.system, work, options.sending)};
    } else {
      return;
    }
    rows.push_back(row);
  };
  for (const Collective op : options.ops) {
    for (const uint64_t bytes : options.sizes) {
      for (const double sparsity : options.sparsities) {
        for (const Algorithm algorithm : options.algorithms) {
          for (const uint32_t gpus : options.gpus) {
            add({.op = op,
                 .bytes = static_cast<double>(bytes),
                 .gpus = gpus,
                 .density = 1 - sparsity,
                 .width = width},
                algorithm);
          }
        }
      }
    }
  }
  return rows;
}

std::string TableText(const Options& options, const std::vector<Row>& rows) {
  std::string text;
  if (options.json) {
    for (const Row& row : rows) absl::StrAppend(&text, ToJson(options, row).dump(), "\n");
    return text;
  }
  text = absl::StrCat(
      "# ", kTool, ": ", SystemText(options), "; ", Text(spccl::NameOf(options.dtype)), ", codec ",
      Text(policy::NameOf(options.sending.codec)), ", thresholds ", ThresholdsText(options),
      "\n# projected, not measured; link, kernels and rounds: of the sparse run, each as if "
      "alone\n",
      absl::StrFormat("%-14s %6s %6s %9s %10s %10s %8s %7s %11s %9s %9s %9s  %-7s  %s\n", "# op",
                      "bytes", "GPUs", "sparsity", "dense ms", "sparse ms", "speed-up", "wire",
                      "sparse/all", "link ms", "kernel ms", "rounds ms", "most", "algorithm"));
  for (const Row& row : rows) text += RowText(row);
  return text;
}

std::string PaperText(const Options& options) {
  std::string text;
  if (!options.json) {
    text = absl::StrCat("# ", kTool, ": what papers report, and the model for ",
                        SystemText(options), "\n",
                        absl::StrFormat("%-58s %8s %8s  %-6s %-20s %s\n", "# claim", "reported",
                                        "model", "agrees", "at", "where"));
  }
  for (const Claim& claim : Claims()) {
    const Verdict verdict = Judge(claim, options.system, options.margin);
    const Outcome& outcome = verdict.outcome;
    if (options.json) {
      Json line = Head(options);
      line.update(Json{{"claim", claim.what},
                       {"where", claim.where},
                       {"reported_low", claim.low},
                       {"reported_high", std::isinf(claim.high) ? Json(nullptr) : Json(claim.high)},
                       {"model", outcome.value},
                       {"at", outcome.at},
                       {"dominant", outcome.dominant},
                       {"agrees", NameOf(verdict.agrees)},
                       {"why", verdict.why}});
      absl::StrAppend(&text, line.dump(), "\n");
      continue;
    }
    absl::StrAppend(
        &text, absl::StrFormat("%-58s %8s %8.2f  %-6s %-20s %s\n", claim.what, RangeText(claim),
                               outcome.value, NameOf(verdict.agrees), outcome.at, claim.where));
    if (!verdict.why.empty()) absl::StrAppend(&text, "    ", verdict.why, "\n");
  }
  return text;
}

std::string SourcesText(const Options& options) {
  std::string text;
  for (const Source& source : FindPreset(options.preset)->sources) {
    if (options.json) {
      const Json line = {{"tool", kTool},       {"preset", options.preset},
                         {"name", source.name}, {"value", source.value},
                         {"kind", source.kind}, {"where", source.where}};
      absl::StrAppend(&text, line.dump(), "\n");
      continue;
    }
    absl::StrAppend(&text, absl::StrFormat("%-50s %-22s %-8s  %s\n", source.name, source.value,
                                           source.kind, source.where));
  }
  return text;
}

std::string FitText(const Options& options, const Fit& fit) {
  if (options.json) {
    Json line = Head(options);
    line.update(Json{{"encode_share", fit.encode},
                     {"decode_share", fit.decode},
                     {"overlap", fit.overlap},
                     {"error", fit.error}});
    return line.dump() + "\n";
  }
  return absl::StrFormat(
      "encode-share, combine-share %.2f, decode-share %.2f, overlap %.2f: off by %.1f%% "
      "(root mean square of %s's claims)\n",
      fit.encode, fit.decode, fit.overlap, 100 * fit.error, "SpCCL");
}

}  // namespace spccl::bench::model
