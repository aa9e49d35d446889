// Launches kernels on a fibre machine: the launcher of kernels/sparse/device_codec.h for tests.
#pragma once

#include "absl/status/status.h"
#include "kernels/simt/fibre_machine.h"

namespace spccl::simt {

// Runs a kernel to its end when it is launched. Keeps the first error and launches nothing after
// it.
class FibreLauncher {
 public:
  // `machine` outlives the launcher.
  explicit FibreLauncher(FibreMachine& machine) : machine_(machine) {}

  template <class K>
  void Launch(uint32_t blocks, const typename K::Params& params) {
    if (status_.ok()) status_ = machine_.Launch<K>(blocks, params);
  }
  uint32_t Resident() const { return 3; }
  const absl::Status& status() const { return status_; }

 private:
  FibreMachine& machine_;
  absl::Status status_;
};

}  // namespace spccl::simt
