#include "bench/perf/spccl_backend.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace spccl::bench {
namespace {

constexpr uint64_t kPage = 4096;

// The C API's codes are the project's own (NCCL's); stated so that they cannot drift apart.
static_assert(spcclBfloat16 == static_cast<int>(DType::kBfloat16));
static_assert(spcclFloat32 == static_cast<int>(DType::kFloat32));
static_assert(spcclAvg == static_cast<int>(RedOp::kAvg));

// `comm`: what the call was of; null: of none.
absl::Status StatusOf(spcclResult_t result, const char* what, spcclComm_t comm) {
  if (result == spcclSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": ", spcclGetErrorString(result), ": ", spcclGetLastError(comm)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpcclBackend>> SpcclBackend::Create(RankTeam& team,
                                                                   const Options& options,
                                                                   const Daemons& daemons) {
  std::unique_ptr<SpcclBackend> backend(new SpcclBackend(team.rank(), options));
  SPCCL_ASSIGN_OR_RETURN(const DeviceWish device, DeviceWish::Parse(options.device));
  if (device.cuda) {  // before the communicator, which looks whether CUDA is in use
    SPCCL_ASSIGN_OR_RETURN(backend->gpu_, Gpu::Open(device, team.rank(), options.cuda_library));
  }
  spcclUniqueId id = {};
  if (team.rank() == 0) {
    SPCCL_RETURN_IF_ERROR(backend->ToStatus(spcclGetUniqueId(&id), "spcclGetUniqueId"));
  }
  SPCCL_RETURN_IF_ERROR(team.FromRankZero(&id, sizeof(id)));
  SPCCL_RETURN_IF_ERROR(backend->ToStatus(
      spcclCommInitRank(&backend->comm_, team.ranks(), id, team.rank()), "spcclCommInitRank"));
  if (team.rank() == 0) {
    for (const std::string& dir : daemons.runtime_dirs) backend->daemons_.emplace_back(dir);
  }
  return backend;
}

SpcclBackend::~SpcclBackend() {
  graph_.reset();
  for (Buffer& buffer : buffers_) Release(buffer);
  if (comm_ != nullptr) spcclCommDestroy(comm_);
}

absl::Status SpcclBackend::ToStatus(spcclResult_t result, const char* what) const {
  return StatusOf(result, what, comm_);
}

absl::StatusOr<SpcclBackend::Buffer> SpcclBackend::AllocateOnGpu(uint64_t bytes) {
  Buffer buffer;
  SPCCL_ASSIGN_OR_RETURN(buffer.on_gpu, GpuBuffer::Create(gpu_.get(), bytes));
  buffer.data = buffer.on_gpu->device();
  if (options_.buffers == "register") {
    SPCCL_RETURN_IF_ERROR(ToStatus(spcclCommRegister(comm_, buffer.data, bytes, &buffer.handle),
                                   "spcclCommRegister"));
  }
  return buffer;
}

absl::StatusOr<SpcclBackend::Buffer> SpcclBackend::Allocate(uint64_t bytes) {
  if (gpu_ != nullptr) return AllocateOnGpu(bytes);
  Buffer buffer;
  if (options_.buffers == "alloc") {
    SPCCL_RETURN_IF_ERROR(
        StatusOf(spcclMemAlloc(&buffer.data, bytes), "spcclMemAlloc", /*comm=*/nullptr));
    return buffer;
  }
  if (options_.buffers == "malloc") {
    buffer.data = std::malloc(bytes);
  } else {
    bytes = (bytes + kPage - 1) / kPage * kPage;
    buffer.data = std::aligned_alloc(kPage, bytes);
  }
  if (buffer.data == nullptr) return absl::ResourceExhaustedError("no memory for the buffers");
  if (options_.buffers == "register") {
    SPCCL_RETURN_IF_ERROR(ToStatus(spcclCommRegister(comm_, buffer.data, bytes, &buffer.handle),
                                   "spcclCommRegister"));
  }
  return buffer;
}

void SpcclBackend::Release(Buffer& buffer) {
  if (buffer.data == nullptr) return;
  if (buffer.handle != nullptr) spcclCommDeregister(comm_, buffer.handle);
  if (buffer.on_gpu != nullptr) {
    buffer.on_gpu.reset();
  } else if (options_.buffers == "alloc") {
    spcclMemFree(buffer.data);
  } else {
    std::free(buffer.data);
  }
  buffer = {};
}

absl::Status SpcclBackend::Open(const Problem& problem) {
  graph_.reset();
  for (Buffer& buffer : buffers_) Release(buffer);
  problem_ = problem;
  SPCCL_RETURN_IF_ERROR(Place());
  if (!options_.captured) return absl::OkStatus();
  SPCCL_ASSIGN_OR_RETURN(graph_, GpuGraph::Capture(gpu_.get(), [this] { return Call(); }));
  return absl::OkStatus();
}

absl::Status SpcclBackend::Place() {
  const Problem& problem = problem_;
  if (options_.in_place) {
    SPCCL_ASSIGN_OR_RETURN(buffers_[0],
                           Allocate(std::max(problem.send_bytes(), problem.recv_bytes())));
    const InPlaceOffsets offsets = InPlace(problem, rank_);
    send_ = static_cast<std::byte*>(buffers_[0].data) + offsets.send;
    recv_ = static_cast<std::byte*>(buffers_[0].data) + offsets.recv;
    return absl::OkStatus();
  }
  SPCCL_ASSIGN_OR_RETURN(buffers_[0], Allocate(problem.send_bytes()));
  SPCCL_ASSIGN_OR_RETURN(buffers_[1], Allocate(problem.recv_bytes()));
  send_ = buffers_[0].data;
  recv_ = buffers_[1].data;
  return absl::OkStatus();
}

void* SpcclBackend::InHost(void* address) const {
  if (gpu_ == nullptr) return address;
  auto* const at = static_cast<std::byte*>(address);
  for (const Buffer& buffer : buffers_) {
    if (buffer.on_gpu == nullptr) continue;
    std::byte* const begin = buffer.on_gpu->device();
    if (at >= begin && at < begin + buffer.on_gpu->bytes()) {
      return buffer.on_gpu->host() + (at - begin);
    }
  }
  return nullptr;
}

absl::Status SpcclBackend::ToDevice() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.on_gpu != nullptr) SPCCL_RETURN_IF_ERROR(buffer.on_gpu->Upload());
  }
  return absl::OkStatus();
}

absl::Status SpcclBackend::FromDevice() {
  // In place there is but one, which also has the result.
  const Buffer& buffer = buffers_[1].on_gpu != nullptr ? buffers_[1] : buffers_[0];
  return buffer.on_gpu != nullptr ? buffer.on_gpu->Download() : absl::OkStatus();
}

bool SpcclBackend::overwrites_input() const {
  return options_.in_place && Reduces(problem_.op.kind);
}

absl::Status SpcclBackend::Run() {
  SPCCL_RETURN_IF_ERROR(graph_ != nullptr ? graph_->Launch() : Call());
  if (gpu_ == nullptr) return absl::OkStatus();
  SPCCL_RETURN_IF_ERROR(gpu_->Synchronize());
  // The stream goes on after an error, which is told apart from it.
  spcclResult_t result = spcclSuccess;
  SPCCL_RETURN_IF_ERROR(ToStatus(spcclCommGetAsyncError(comm_, &result), "spcclCommGetAsyncError"));
  return ToStatus(result, "on the GPU");
}

absl::Status SpcclBackend::Call() {
  const Operation& op = problem_.op;
  const auto dtype = static_cast<spcclDataType_t>(op.dtype);
  const auto redop = static_cast<spcclRedOp_t>(op.redop);
  auto* const stream = gpu_ == nullptr ? nullptr : reinterpret_cast<spcclStream_t>(gpu_->stream());
  switch (op.kind) {
    case Collective::kAllGather:
      return ToStatus(spcclAllGather(send_, recv_, op.count, dtype, comm_, stream),
                      "spcclAllGather");
    case Collective::kReduceScatter:
      return ToStatus(spcclReduceScatter(send_, recv_, op.count, dtype, redop, comm_, stream),
                      "spcclReduceScatter");
    case Collective::kAllReduce:
      return ToStatus(spcclAllReduce(send_, recv_, op.count, dtype, redop, comm_, stream),
                      "spcclAllReduce");
    case Collective::kBroadcast:
      return ToStatus(spcclBroadcast(send_, recv_, op.count, dtype, op.root, comm_, stream),
                      "spcclBroadcast");
    case Collective::kScatter:
      return ToStatus(spcclScatter(send_, recv_, op.count, dtype, op.root, comm_, stream),
                      "spcclScatter");
  }
  return absl::InvalidArgumentError("no such operation");
}

absl::Status SpcclBackend::Apply(const Setting& setting) {
  for (ControlClient& daemon : daemons_) SPCCL_RETURN_IF_ERROR(daemon.Apply(setting));
  return absl::OkStatus();
}

absl::StatusOr<Traffic> SpcclBackend::ReadTraffic() {
  Traffic sum;
  for (ControlClient& daemon : daemons_) {
    SPCCL_ASSIGN_OR_RETURN(const Traffic traffic, daemon.Read());
    if (&daemon == &daemons_.front()) {
      sum.last_sends = traffic.last_sends;
      sum.ran = traffic.ran;
    }
    sum.wire_bytes += traffic.wire_bytes;
    sum.dense_bytes += traffic.dense_bytes;
    for (int i = 0; i < kFormatCount; ++i) sum.sends_by_format[i] += traffic.sends_by_format[i];
    for (const auto& [key, count] : traffic.decisions) sum.decisions[key] += count;
    for (const auto& [key, ns] : traffic.spent_ns) sum.spent_ns[key] += ns;
  }
  return sum;
}

absl::StatusOr<DeviceMemoryUse> SpcclBackend::ReadMemoryUse() {
  if (gpu_ == nullptr) return DeviceMemoryUse{};
  std::set<std::string> kinds;
  for (ControlClient& daemon : daemons_) {
    SPCCL_ASSIGN_OR_RETURN(const GpuBuffers buffers, daemon.ReadGpuBuffers());
    if (!buffers.not_handed_over.empty()) {
      return DeviceMemoryUse{.handed_over = false, .text = buffers.not_handed_over};
    }
    kinds.insert(buffers.kinds.begin(), buffers.kinds.end());
  }
  return DeviceMemoryUse{.handed_over = true,
                         .text = absl::StrCat("handed over (", absl::StrJoin(kinds, ", "), ")")};
}

}  // namespace spccl::bench
