// What the papers report, and what the model makes of it on their systems. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/model/projection.h"

namespace spccl::bench::model {

// What the model has for a claim.
struct Outcome {
  double value = 0;
  std::string at;        // where in the claim's range, if it has one: "64 GPUs, 2048 MiB"
  std::string dominant;  // of the sparse run there
};

struct Claim {
  std::string what;
  std::string where;         // the paper's section
  double low = 0, high = 0;  // reported: a number (both the same), or a range
  bool fitted = false;       // FitToPaper() of fit.h looks at it
  std::function<Outcome(const System&)> model;
};

// Of SpCCL and PCCL, on Perlmutter. The text of the SpCCL paper does not say at which cell of its
// heatmaps the largest speed-ups are; they are compared with the largest of the model over
// PaperGpus() and PaperMiB().
const std::vector<Claim>& Claims();
const std::vector<uint32_t>& PaperGpus();
const std::vector<uint32_t>& PaperMiB();
// How the paper's own collectives send: its thresholds for the codec (sections IV-C, IV-D).
Sending PaperSending(policy::Codec codec);

// Dense over sparse, both with `algorithm`.
double SpeedUp(policy::Algorithm algorithm, const System& system, const Work& work,
               const Sending& sending);

struct Verdict {
  Outcome outcome;
  // kYes: within a range, or beside a number by a factor of at most 1 + margin; kNear: beside a
  // range by no more.
  enum class Agrees { kYes, kNear, kNo } agrees = Agrees::kNo;
  std::string why = {};  // where it is not kYes
};
Verdict Judge(const Claim& claim, const System& system, double margin);

}  // namespace spccl::bench::model
