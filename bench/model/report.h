// How projections are written: a table for people, one JSON object a line for programs.
#pragma once

#include <string>

#include "bench/model/fit.h"
#include "bench/model/options.h"

namespace spccl::bench::model {

// A line of the table: one work, with one algorithm, dense and sparse.
struct Row {
  Work work;
  policy::Algorithm asked = policy::Algorithm::kAuto;  // kAuto: the fastest of each
  Best dense = {}, sparse = {};
  double speed_up() const { return dense.projection.seconds / sparse.projection.seconds; }
};
// In the order of ops, sizes, sparsities, algorithms, numbers of GPUs; without those for which the
// model does not have the algorithm.
std::vector<Row> MakeRows(const Options& options);

// Keys of a row: tool, preset, changed, op, bytes, gpus, sparsity, dtype, codec, thresholds, algo,
// dense_algo, sparse_algo, dense_us, sparse_us, speedup; of the sparse run: link_us, kernel_us,
// round_us (each as if alone), dominant, wire_ratio (bytes of frames over dense ones), rounds,
// sends, sparse_sends.
std::string TableText(const Options& options, const std::vector<Row>& rows);
// Keys of a claim: tool, preset, changed, claim, where, reported_low, reported_high (null: no
// limit), model, at, dominant, agrees (yes, near, no), why.
std::string PaperText(const Options& options);
// Keys of a source: tool, preset, name, value, kind, where.
std::string SourcesText(const Options& options);
std::string FitText(const Options& options, const Fit& fit);

}  // namespace spccl::bench::model
