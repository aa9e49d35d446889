// The command line of spccl-model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/model/projection.h"
#include "kernels/dtype.h"

namespace spccl::bench::model {

struct Options {
  enum class Print { kTable, kPaper, kSources, kFit };
  Print print = Print::kTable;
  bool json = false;
  double margin = 0.15;  // of --paper: more off than that is a disagreement

  std::string preset = "perlmutter";
  System system;
  std::vector<std::string> changed;  // flags that set something else than the preset has

  std::vector<Collective> ops;
  std::vector<uint64_t> sizes;
  std::vector<uint32_t> gpus;
  std::vector<double> sparsities;
  std::vector<policy::Algorithm> algorithms;  // kAuto: the fastest, dense and sparse each
  DType dtype = DType::kFloat32;
  Sending sending;
};

// What the caller shall do: go on with `options`, or print `text` and leave with `exit_code` (0
// after --help, 1 after a mistake).
struct ParsedOptions {
  bool go_on = false;
  Options options;
  int exit_code = 0;
  std::string text;
};
ParsedOptions ParseOptions(int argc, const char* const* argv);

}  // namespace spccl::bench::model
