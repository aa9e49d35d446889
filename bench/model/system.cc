#include "bench/model/system.h"

namespace spccl::bench::model {
namespace {

double& ShareOf(System& system, Kernel kernel) {
  return system.kernels.shares[static_cast<size_t>(kernel)];
}

// The links and the memory of NERSC's Perlmutter, on which both papers measured NCCL.
Preset PerlmutterFloor() {
  Preset preset{.name = "perlmutter-floor"};
  System& system = preset.system;
  system.gpus_per_node = 4;
  system.intra_rate = 300e9;
  system.node_rate = 100e9;
  system.intra_alpha = system.inter_alpha = 3.2e-6;
  system.kernels.memory_rate = 1555e9;
  preset.sources = {
      {"gpus-per-node", "4", "stated", "SpCCL VI-A"},
      {"intra-rate", "300 GB/s", "stated", "SpCCL IV-C: 4 links of 25 GB/s to each of 3 others"},
      {"node-rate", "100 GB/s", "stated", "SpCCL IV-C: 4 adapters of 200 Gbit/s"},
      {"intra-alpha, inter-alpha", "3.2 us", "derived",
       "PCCL VI-A: at 2048 GPUs and 128 to 512 MB PCCL is 2 to 3 times as fast as NCCL's ring, "
       "whose "
       "rounds are 2047; no telling apart rounds within nodes and between them"},
      {"sparse-alpha", "0", "assumed", "SpCCL V-B: sizes travel in the message's header"},
      {"memory-rate", "1555 GB/s", "stated",
       "data sheet of the A100 40 GB, which SpCCL VI-A names"},
      {"shares, overlap", "1", "assumed", "kernels at their floors and everything hidden: a bound"},
      {"fused", "no", "stated", "SpCCL IV-B: adds into a dense buffer, then compresses it"},
  };
  return preset;
}

// The same with kernels for which the model says what the SpCCL paper reports: FitToPaper().
Preset Perlmutter() {
  Preset preset = PerlmutterFloor();
  preset.name = "perlmutter";
  System& system = preset.system;
  ShareOf(system, Kernel::kEncode) = 0.27;
  ShareOf(system, Kernel::kCombine) = 0.27;
  ShareOf(system, Kernel::kFused) = 0.27;
  ShareOf(system, Kernel::kDecode) = 0.39;
  system.overlap = 0.75;
  for (Source& source : preset.sources) {
    if (source.name != "shares, overlap") continue;
    source = {"encode-share, combine-share, decode-share, overlap", "0.27, 0.27, 0.39, 0.75",
              "fitted", "to SpCCL's figures 3, 5 to 8 and 11 as its text tells them: --fit"};
  }
  return preset;
}

// A node of today, with what this project's kernels are meant to reach.
Preset DgxH100() {
  Preset preset{.name = "dgx-h100"};
  System& system = preset.system;
  system.gpus_per_node = 8;
  system.intra_rate = 450e9;
  system.node_rate = 400e9;
  system.intra_alpha = system.inter_alpha = 3.2e-6;
  system.kernels.memory_rate = 3350e9;
  ShareOf(system, Kernel::kEncode) = 0.8;
  ShareOf(system, Kernel::kDecode) = 0.8;
  ShareOf(system, Kernel::kCombine) = 0.6;
  ShareOf(system, Kernel::kFused) = 0.75;
  system.overlap = 0.9;
  system.fused = true;
  preset.sources = {
      {"gpus-per-node", "8", "stated", "data sheet of the DGX H100"},
      {"intra-rate", "450 GB/s", "stated", "data sheet: NVLink, 900 GB/s both ways together"},
      {"node-rate", "400 GB/s", "stated", "data sheet: 8 adapters of 400 Gbit/s"},
      {"intra-alpha, inter-alpha", "3.2 us", "assumed", "as on Perlmutter"},
      {"sparse-alpha", "0", "assumed", "sizes are known a round ahead"},
      {"memory-rate", "3350 GB/s", "stated", "data sheet of the H100 SXM"},
      {"encode-share, decode-share", "0.80", "target",
       "docs/performance.md, \"GPUs\"; not measured"},
      {"combine-share", "0.60", "target", "docs/performance.md, \"GPUs\"; not measured"},
      {"fused-share", "0.75", "target", "docs/performance.md, \"GPUs\"; not measured"},
      {"overlap", "0.9", "assumed", "collective/policy/fastest_format.h, kNotOverlapped"},
      {"fused", "yes", "stated", "kernels/sparse/fused-inl.h"},
  };
  return preset;
}

}  // namespace

const std::vector<Preset>& Presets() {
  static const auto* const presets =
      new std::vector<Preset>{Perlmutter(), PerlmutterFloor(), DgxH100()};
  return *presets;
}

const Preset* FindPreset(std::string_view name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace spccl::bench::model
