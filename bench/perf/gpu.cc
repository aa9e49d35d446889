#include "bench/perf/gpu.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::bench {
namespace {

// Of a driver that cannot be loaded: what to do where it is missing or too old. One that finds no
// GPU is as it should be.
absl::Status WithRemedy(const absl::Status& status) {
  const bool is_missing = absl::StartsWith(status.message(), "there is no CUDA driver");
  if (!is_missing && !absl::IsUnimplemented(status)) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "; install NVIDIA's driver, 580 or later, or name its "
                                   "libcuda.so.1 where it is elsewhere: --cuda-library"));
}

}  // namespace

absl::StatusOr<DeviceWish> DeviceWish::Parse(std::string_view text) {
  constexpr std::string_view kPrefix = "cuda:";
  if (text == "host") return DeviceWish{};
  if (text == "cuda") return DeviceWish{.cuda = true};
  DeviceWish wish{.cuda = true};
  if (text.starts_with(kPrefix)) {
    const std::string number(text.substr(kPrefix.size()));
    const bool digits =
        std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits && absl::SimpleAtoi(number, &wish.ordinal)) return wish;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found \"", std::string(text), "\", expected host, cuda or cuda:N"));
}

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(const DeviceWish& wish, int rank,
                                               const std::string& library) {
  SPCCL_CHECK(wish.cuda);
  auto driver = cuda::Driver::Load(library);
  if (!driver.ok()) return Annotate(WithRemedy(driver.status()), "--device cuda");
  std::unique_ptr<Gpu> gpu(new Gpu(*std::move(driver)));
  if (absl::Status status = gpu->Start(wish, rank); !status.ok()) {
    return Annotate(status, "--device cuda");
  }
  return gpu;
}

absl::Status Gpu::Start(const DeviceWish& wish, int rank) {
  int count = 0;
  SPCCL_RETURN_IF_ERROR(driver_->ToStatus(driver_->DeviceGetCount(&count), "cuDeviceGetCount"));
  if (wish.ordinal >= count) {
    return absl::NotFoundError(absl::StrCat("there is no GPU ", wish.ordinal, ", only ", count));
  }
  if (wish.ordinal < 0) choices_ = count;
  const int ordinal = wish.ordinal >= 0 ? wish.ordinal : rank % count;
  cuda::Device device = -1;
  SPCCL_RETURN_IF_ERROR(driver_->ToStatus(driver_->DeviceGet(&device, ordinal), "cuDeviceGet"));
  std::array<char, 256> name = {};
  SPCCL_RETURN_IF_ERROR(driver_->ToStatus(
      driver_->DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device),
      "cuDeviceGetName"));
  name_ = name.data();
  cuda::Context context = nullptr;
  SPCCL_RETURN_IF_ERROR(driver_->ToStatus(driver_->DevicePrimaryCtxRetain(&context, device),
                                          "cuDevicePrimaryCtxRetain"));
  device_ = device;
  SPCCL_RETURN_IF_ERROR(driver_->ToStatus(driver_->CtxSetCurrent(context), "cuCtxSetCurrent"));
  return driver_->ToStatus(driver_->StreamCreateWithPriority(&stream_, cuda::kStreamNonBlocking, 0),
                           "cuStreamCreateWithPriority");
}

Gpu::~Gpu() {
  // What fails here has failed before: the process is about to end.
  if (stream_ != nullptr) (void)driver_->StreamDestroy(stream_);
  if (device_ < 0) return;
  (void)driver_->CtxSetCurrent(nullptr);
  (void)driver_->DevicePrimaryCtxRelease(device_);
}

absl::Status Gpu::Synchronize() const {
  return driver_->ToStatus(driver_->StreamSynchronize(stream_), "cuStreamSynchronize");
}

absl::StatusOr<std::unique_ptr<GpuBuffer>> GpuBuffer::Create(const Gpu* gpu, uint64_t bytes) {
  std::unique_ptr<GpuBuffer> buffer(new GpuBuffer(gpu, bytes));
  buffer->host_.reset(new (std::nothrow) std::byte[bytes]());
  if (buffer->host_ == nullptr) {
    return absl::ResourceExhaustedError("no memory for the host's copies of the buffers");
  }
  SPCCL_RETURN_IF_ERROR(gpu->driver().ToStatus(gpu->driver().MemAlloc(&buffer->device_, bytes),
                                               absl::StrCat("cuMemAlloc of ", bytes, " bytes")));
  return buffer;
}

GpuBuffer::~GpuBuffer() {
  if (device_ != 0) (void)gpu_->driver().MemFree(device_);
}

std::byte* GpuBuffer::device() const {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as the C API takes it
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(device_));
}

absl::Status GpuBuffer::Copy(cuda::DevicePtr to, cuda::DevicePtr from,
                             std::string_view what) const {
  SPCCL_RETURN_IF_ERROR(
      gpu_->driver().ToStatus(gpu_->driver().MemcpyAsync(to, from, bytes_, gpu_->stream()), what));
  return gpu_->Synchronize();
}

absl::Status GpuBuffer::Upload() const {
  return Copy(device_, reinterpret_cast<uintptr_t>(host_.get()), "copying to the GPU");
}

absl::Status GpuBuffer::Download() const {
  return Copy(reinterpret_cast<uintptr_t>(host_.get()), device_, "copying from the GPU");
}

absl::StatusOr<std::unique_ptr<GpuGraph>> GpuGraph::Capture(
    const Gpu* gpu, const std::function<absl::Status()>& work) {
  const cuda::Driver& driver = gpu->driver();
  std::unique_ptr<GpuGraph> graph(new GpuGraph(gpu));
  SPCCL_RETURN_IF_ERROR(
      driver.ToStatus(driver.StreamBeginCapture(gpu->stream(), cuda::kStreamCaptureModeGlobal),
                      "cuStreamBeginCapture"));
  const absl::Status done = work();
  // Also after an error: else the stream would be captured for good.
  const absl::Status ended =
      driver.ToStatus(driver.StreamEndCapture(gpu->stream(), &graph->graph_), "cuStreamEndCapture");
  SPCCL_RETURN_IF_ERROR(done);
  SPCCL_RETURN_IF_ERROR(ended);
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(driver.GraphInstantiate(&graph->exec_, graph->graph_, 0),
                                        "cuGraphInstantiate"));
  return graph;
}

GpuGraph::~GpuGraph() {
  if (exec_ != nullptr) (void)gpu_->driver().GraphExecDestroy(exec_);
  if (graph_ != nullptr) (void)gpu_->driver().GraphDestroy(graph_);
}

absl::Status GpuGraph::Launch() const {
  return gpu_->driver().ToStatus(gpu_->driver().GraphLaunch(exec_, gpu_->stream()),
                                 "cuGraphLaunch");
}

}  // namespace spccl::bench
