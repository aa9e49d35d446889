#include "daemon/gpu_facts.h"

#include <filesystem>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cuda/driver.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/transport/nccl/library.h"
#include "daemon/gpu_memory.h"

namespace spccl::daemon {
namespace {

bool Attribute(const cuda::Driver& driver, int attribute, cuda::Device device) {
  int value = 0;
  return driver.DeviceGetAttribute(&value, attribute, device) == cuda::kSuccess && value != 0;
}

// Whether a stream writes a word of the host's memory.
bool TryStreamOperation(const cuda::Driver& driver) {
  void* word = nullptr;
  constexpr unsigned kFlags = cuda::kMemHostAllocPortable | 2;  // and mapped for the device
  if (driver.MemHostAlloc(&word, sizeof(uint32_t), kFlags) != cuda::kSuccess) return false;
  cuda::DevicePtr pointer = 0;
  cuda::Stream stream = nullptr;
  const bool works =
      driver.MemHostGetDevicePointer(&pointer, word, 0) == cuda::kSuccess &&
      driver.StreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0) == cuda::kSuccess &&
      driver.StreamWriteValue32(stream, pointer, 1, cuda::kStreamWriteValueDefault) ==
          cuda::kSuccess &&
      driver.StreamWaitValue32(stream, pointer, 1, cuda::kStreamWaitValueGeq) == cuda::kSuccess &&
      driver.StreamSynchronize(stream) == cuda::kSuccess;
  if (stream != nullptr) (void)driver.StreamDestroy(stream);
  (void)driver.MemFreeHost(word);
  return works;
}

bool TryLegacyIpc(const cuda::Driver& driver) {
  cuda::DevicePtr memory = 0;
  if (driver.MemAlloc(&memory, 4096) != cuda::kSuccess) return false;
  cuda::IpcMemHandle handle;
  const bool works = driver.IpcGetMemHandle(&handle, memory) == cuda::kSuccess;
  (void)driver.MemFree(memory);
  return works;
}

GpuFact LookAt(const cuda::Driver& driver, runtime::Gpu& gpu) {
  GpuFact fact;
  fact.id = GpuName(gpu.uuid());
  fact.name = gpu.name();
  cuda::Device device = 0;
  if (driver.CtxGetDevice(&device) != cuda::kSuccess) return fact;
  size_t bytes = 0;
  if (driver.DeviceTotalMem(&bytes, device) == cuda::kSuccess) fact.bytes = bytes;
  fact.mps = Attribute(driver, cuda::kDeviceAttributeMpsEnabled, device);
  fact.descriptors =
      Attribute(driver, cuda::kDeviceAttributeHandleTypePosixFileDescriptorSupported, device);
  fact.legacy_ipc = TryLegacyIpc(driver);
  fact.stream_operations = TryStreamOperation(driver);
  return fact;
}

constexpr char kListOfGpus[] = "/driver/nvidia/gpus";

bool ListsGpus(const std::string& proc) {
  std::error_code error;
  const std::filesystem::directory_iterator all(proc + kListOfGpus, error);
  return !error && all != std::filesystem::directory_iterator();
}

// For GPUs that are there, by why they cannot be used.
std::string AdviceFor(absl::StatusCode refusal, bool driver_named) {
  switch (refusal) {
    case absl::StatusCode::kFailedPrecondition:
      return "install the package spccl-device of spccld's release, or name the kernels' library "
             "(of a build with SPCCL_WITH_CUDA) by gpu.kernels; then restart spccld";
    case absl::StatusCode::kUnimplemented:
      return "install driver 580 (CUDA 13.0) or later, then restart spccld";
    case absl::StatusCode::kNotFound:
      if (driver_named) return "name another driver by gpu.driver, or none for the system's";
      return "install the driver's library (libcuda1), and let spccld reach the devices (its "
             "unit's drop-in gpu.conf, then systemctl daemon-reload; a container: --gpus; no "
             "CUDA_VISIBLE_DEVICES); then restart it";
    default:
      return "see whether nvidia-smi works and shows driver 580 or later, look at dmesg for Xid "
             "errors (with NVSwitch also at nvidia-fabricmanager) and at the drop-in gpu.conf of "
             "spccld's unit, then restart it; for cards before compute capability 8.0 set "
             "gpu.enabled = \"off\"";
  }
}

}  // namespace

GpuFacts LookAtRefusal(const absl::Status& refusal, bool driver_named, const std::string& proc) {
  GpuFacts facts;
  facts.unused = std::string(refusal.message());
  if (absl::IsNotFound(refusal) && !driver_named) {
    if (!ListsGpus(proc)) return facts;
    absl::StrAppend(&facts.unused, "; but ", proc, kListOfGpus, " lists some");
  }
  facts.use = GpusUsed::kUnusable;
  facts.advice = AdviceFor(refusal.code(), driver_named);
  return facts;
}

GpuFacts LookAtGpus(runtime::Gpus& gpus) {
  GpuFacts facts;
  facts.use = GpusUsed::kUsed;
  facts.refused = gpus.refused();
  const cuda::Driver& driver = *gpus.driver();
  int version = 0;
  if (driver.DriverGetVersion(&version) == cuda::kSuccess) {
    facts.driver = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  }
  for (size_t i = 0; i < gpus.count(); ++i) {
    auto looked = std::make_shared<std::promise<GpuFact>>();
    std::future<GpuFact> fact = looked->get_future();
    runtime::Gpu& gpu = gpus.at(i);
    gpu.Post([looked, &driver, &gpu] { looked->set_value(LookAt(driver, gpu)); });
    facts.gpus.push_back(fact.get());
    for (size_t other = 0; other < gpus.count(); ++other) {
      if (other == i || !gpus.reach(i, other)) continue;
      facts.gpus.back().reaches.push_back(static_cast<uint32_t>(other));
    }
  }
  return facts;
}

std::shared_ptr<const transport::nccl::Library> LoadNccl(const std::string& path, GpuFacts* facts) {
  auto nccl = transport::nccl::Library::Load(path);
  facts->has_nccl = nccl.ok();
  facts->nccl = nccl.ok() ? (*nccl)->Describe() : std::string(nccl.status().message());
  return nccl.ok() ? *std::move(nccl) : nullptr;
}

}  // namespace spccl::daemon
