// The kernels for the fake's GPUs: libspccl_fake_device.so, whose table
// (kernels/device/codec_table.h) enqueues on the fake's streams runs of the very kernels that GPUs
// run, on the fibre lane. What a kernel may not touch, what is not aligned, and lanes that diverge
// end the process with a diagnosis.
//
// Fibres are slow, by thousands. Environment, read at the first launch:
//   SPCCL_FAKE_DEVICE_FIBRE_BYTES=N   launches on more than so many bytes of dense elements are
//                                     computed by the host's codecs instead, to the same bytes
//                                     (32 KiB; 0: all)
//   SPCCL_FAKE_DEVICE_SEED=N          of the lanes' schedules (0)
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/device/codec_table.h"
#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/redop.h"
#include "kernels/simt/fibre_machine.h"
#include "kernels/sparse/device_codec.h"

namespace spccl::fake_cuda {

// Launches on a fibre machine, as kernels/simt/fibre_launcher.h, with as many blocks as the caller
// was told that the device runs. A launch that fails ends the process.
class KernelLauncher {
 public:
  KernelLauncher(simt::FibreMachine& machine, uint32_t resident)
      : machine_(machine), resident_(resident) {}
  template <class K>
  void Launch(uint32_t blocks, const typename K::Params& params) {
    Check(machine_.Launch<K>(blocks, params));
  }
  uint32_t Resident() const { return resident_; }

 private:
  static void Check(const absl::Status& status);

  simt::FibreMachine& machine_;
  uint32_t resident_;
};

inline constexpr uint32_t kResidentBlocks = 3;

// Calls `kernels` with a launcher, on a machine that nobody else uses meanwhile; returns when it
// has returned. On a thread of a stream's.
void OnMachine(uint32_t resident, const std::function<void(KernelLauncher&)>& kernels);
// Whether a launch on so many bytes runs on the lane.
bool IsForFibres(uint64_t bytes);

// One of the table's functions, as it is on a GPU and as the host computes it.
struct Launch {
  // What it touches, for which it is checked.
  struct Range {
    const void* begin;
    uint64_t bytes;
    uint64_t alignment;
  };
  std::vector<Range> ranges = {};
  uint64_t dense_bytes = 0;
  std::function<void(KernelLauncher&)> kernels = {};
  std::function<void()> host = {};
};
int Enqueue(const device::Queue& queue, Launch launch);

// The host's computation where its codecs have no such function, or another contract.
namespace host {

void Encode(Format format, DType dtype, const void* dense, uint64_t elements, void* frame);
void ValidateBody(const sparse::FrameInfo& info, const void* frame, uint32_t* faults);
void AddAndEncode(const sparse::FrameInfo& info, const void* frame, DType local_dtype,
                  const void* local, void* to);
void Finish(DType dtype, RedOp op, const void* accumulator, std::span<void* const> outputs,
            uint64_t elements, uint32_t ranks);

}  // namespace host
}  // namespace spccl::fake_cuda
