// What the daemon found of GPUs, for people: spcclctl status and doctor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

struct GpuFacts {
  std::string unused;  // why none is used; empty: those below are
  std::string driver;  // its version: "13.0"
  std::string nccl;    // "NCCL 2.28.9 (libnccl.so.2)", or why there is none; empty: not looked for
  bool has_nccl = false;
  std::vector<GpuFact> gpus;
};

// Tries each GPU, on its issuing thread; waits for that.
GpuFacts LookAtGpus(runtime::Gpus& gpus);
// Loads it, and says what it is. `path` empty: the system's. Null: there is none that can be used.
std::shared_ptr<const transport::nccl::Library> LoadNccl(const std::string& path, GpuFacts* facts);

}  // namespace spccl::daemon
