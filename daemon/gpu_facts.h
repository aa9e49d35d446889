// What the daemon found of GPUs, for people: spcclctl status and doctor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace spccl::runtime {
class Gpus;
}  // namespace spccl::runtime

namespace spccl::transport::nccl {
class Library;
}  // namespace spccl::transport::nccl

namespace spccl::daemon {

struct GpuFact {
  std::string id;  // "GPU-" and the UUID
  std::string name;
  uint64_t bytes = 0;
  bool mps = false;                // this process reaches it through an MPS server
  bool stream_operations = false;  // streams write and wait for words: all order goes by that
  bool legacy_ipc = false;         // memory is handed over by handle, or
  bool descriptors = false;        // by descriptor
  std::vector<uint32_t> reaches;   // the others whose memory its kernels reach
  std::string failure;             // why it is of no use any more; empty: it is
};

enum class GpusUsed : uint8_t {
  kUsed,      // all, or some
  kNone,      // this machine has none, or no driver for them
  kOff,       // by the configuration
  kUnusable,  // it has some, or should by gpu.driver, yet they cannot be used: to be seen to
};

struct GpuFacts {
  GpusUsed use = GpusUsed::kNone;
  std::string unused;  // why none is used; empty: those below are
  std::string advice;  // unusable: what to do about it
  std::string driver;  // its version: "13.0"
  std::string nccl;    // "NCCL 2.28.9 (libnccl.so.2)", or why there is none; empty: not looked for
  bool has_nccl = false;
  std::vector<GpuFact> gpus;
  std::vector<std::string> refused;  // as runtime::Gpus says it
};

// Tries each GPU, on its issuing thread; waits for that.
GpuFacts LookAtGpus(runtime::Gpus& gpus);
// What `refusal` of Gpus::Open comes to. `driver_named`: by the configuration, which expects GPUs
// then. `proc`: the system's /proc, where a driver lists GPUs that this process may not reach.
GpuFacts LookAtRefusal(const absl::Status& refusal, bool driver_named,
                       const std::string& proc = "/proc");
// Loads it, and says what it is. `path` empty: the system's. Null: there is none that can be used.
std::shared_ptr<const transport::nccl::Library> LoadNccl(const std::string& path, GpuFacts* facts);

}  // namespace spccl::daemon
