// What clients ask about GPU memory.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/engine.h"

namespace spccl::daemon {
namespace {

// Of one session at a time. Each holds its descriptors, and a library asks for one after the other.
constexpr uint32_t kMostOpening = 16;

}  // namespace

absl::StatusOr<runtime::Gpu*> Engine::FindGpu(const cuda::Uuid& uuid) {
  if (hooks_.gpus == nullptr) {
    return absl::FailedPreconditionError("spccld uses no GPU (spcclctl doctor says why)");
  }
  runtime::Gpu* const gpu = hooks_.gpus->Find(uuid);
  if (gpu == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("spccld does not see ", GpuName(uuid),
                     ": it must run where all GPUs are visible (CUDA_VISIBLE_DEVICES, cgroups)"));
  }
  SPCCL_RETURN_IF_ERROR(gpu->status());
  return gpu;
}

// The same memory, registered before: the driver's ids are not used twice in a process. For memory
// of one piece only: the id is that of the first.
const Buffer* Engine::FindSame(const Session& session, const Buffer& buffer, int gpu) {
  for (const auto& [id, known] : session.buffers) {
    if (known.gpu_memory != nullptr && known.driver_id == buffer.driver_id &&
        known.gpu_kind == buffer.gpu_kind && known.gpu_memory->gpu == gpu &&
        known.size_bytes == buffer.size_bytes) {
      return &known;
    }
  }
  return nullptr;
}

void Engine::RegisterCuda(Session& session, const shm::Request& request, PassedFds fds) {
  const uint64_t request_id = request.request_id;
  const auto& body = request.register_cuda;
  Buffer buffer;
  buffer.address = body.address;
  buffer.size_bytes = body.size_bytes;
  buffer.driver_id = body.driver_buffer_id;
  buffer.gpu_kind = body.kind == shm::CudaHandleKind::kIpc ? GpuKind::kIpc : GpuKind::kFd;
  std::memcpy(buffer.gpu_id.bytes, body.gpu, sizeof buffer.gpu_id.bytes);
  absl::StatusOr<GpuHandle> handle = CheckGpuHandle(request, std::move(fds));
  if (!handle.ok()) return Reply(session, request_id, handle.status());
  const absl::StatusOr<runtime::Gpu*> gpu = FindGpu(buffer.gpu_id);
  if (!gpu.ok()) return Reply(session, request_id, gpu.status());
  if (const absl::Status room = CheckBufferLimits(session, buffer.size_bytes); !room.ok()) {
    return Reply(session, request_id, room);
  }
  const Buffer* const same =
      body.pieces == 1 ? FindSame(session, buffer, (*gpu)->index()) : nullptr;
  if (same != nullptr) {
    buffer.gpu_memory = same->gpu_memory;
    buffer.memory_id = same->memory_id;
    return Reply(session, request_id, absl::OkStatus(), *AddBuffer(session, std::move(buffer)));
  }
  if (session.opening >= kMostOpening) {
    return Reply(session, request_id,
                 absl::ResourceExhaustedError(
                     absl::StrCat("the process hands over more GPU memory while ", kMostOpening,
                                  " requests of it are being answered, all that one may have")));
  }
  ++session.opening;
  buffer.memory_id = registry_.next_memory_id++;
  // Off the core thread: it takes about a millisecond.
  imports_->Open(**gpu, *std::move(handle),
                 [this, session_id = session.id, request_id,
                  buffer = std::move(buffer)](const absl::StatusOr<GpuMemoryRef>& memory) {
                   OnOpened(session_id, request_id, buffer, memory);
                 });
}

void Engine::OnOpened(uint64_t session_id, uint64_t request_id, Buffer buffer,
                      const absl::StatusOr<GpuMemoryRef>& memory) {
  Session* const session = registry_.FindSession(session_id);
  if (session == nullptr) return;
  --session->opening;
  absl::Status status = memory.status();
  // Others may have come meanwhile.
  if (status.ok()) status = CheckBufferLimits(*session, buffer.size_bytes);
  if (!status.ok()) return Reply(*session, request_id, status);
  buffer.gpu_memory = *memory;
  Reply(*session, request_id, status, *AddBuffer(*session, std::move(buffer)));
}

void Engine::HandOutOrder(Session& session, const shm::Request& request) {
  // A process that could not map or register it asks again.
  if (session.order != nullptr) return SendOrder(session, request.request_id);
  if (session.order_memory.valid()) {
    return Reply(
        session, request.request_id,
        absl::UnavailableError("the session's order memory is still being made: try again"));
  }
  const absl::Status status = MakeOrder(session, request.request_id);
  if (!status.ok()) Reply(session, request.request_id, status);
}

absl::Status Engine::MakeOrder(Session& session, uint64_t request_id) {
  constexpr size_t kBytes = sizeof(shm::OrderMemory);
  SPCCL_ASSIGN_OR_RETURN(session.order_memory, CreateSealedMemfd("spccl-order", kBytes));
  auto mapping = SharedMapping::Create(session.order_memory.get(), kBytes);
  if (!mapping.ok()) {
    session.order_memory.Reset();
    return mapping.status();
  }
  MappingRef owned = reaper_.Own(*std::move(mapping));
  if (imports_ == nullptr) {
    OnOrder(session.id, request_id, std::make_shared<const OrderMap>(std::move(owned), 0));
    return absl::OkStatus();
  }
  imports_->Register(std::move(owned), [this, session_id = session.id,
                                        request_id](const absl::StatusOr<OrderMapRef>& order) {
    OnOrder(session_id, request_id, order);
  });
  return absl::OkStatus();
}

void Engine::OnOrder(uint64_t session_id, uint64_t request_id,
                     const absl::StatusOr<OrderMapRef>& order) {
  Session* const session = registry_.FindSession(session_id);
  if (session == nullptr) return;
  if (!order.ok()) {
    session->order_memory.Reset();
    return Reply(*session, request_id, order.status());
  }
  session->order = *order;
  SendOrder(*session, request_id);
}

void Engine::SendOrder(Session& session, uint64_t request_id) {
  shm::Reply reply{};
  reply.magic = shm::kSessionMagic;
  reply.type = shm::ReplyType::kReply;
  reply.request_id = request_id;
  Send(session, reply, {session.order_memory.get()});
}

static_assert(shm::kReadyByCpu == runtime::kReadyByCpu);

std::shared_ptr<const runtime::GpuOrder> Engine::OrderOf(const Session& session,
                                                         const shm::Submission& slot) {
  if (slot.order_slot == 0 || slot.order_slot > shm::kOrderSlots || session.order == nullptr) {
    return nullptr;
  }
  struct Owned : runtime::GpuOrder {
    OrderMapRef memory;
  };
  auto order = std::make_shared<Owned>();
  order->memory = session.order;
  const uint32_t index = slot.order_slot - 1;
  shm::OrderSlot& words = session.order->slot(index);
  order->ready = &words.ready;
  order->done = &words.done;
  if (session.order->pointer() != 0) {
    order->ready_pointer = session.order->pointer() + index * sizeof(shm::OrderSlot);
    order->done_pointer = order->ready_pointer + offsetof(shm::OrderSlot, done);
  }
  order->value = slot.order_value;
  order->resets = index >= shm::kEagerSlots;
  return order;
}

absl::Status Engine::FindMixedMemory(const CommEntry& entry, const RunningOp& running) {
  const RankPart* host = nullptr;
  const RankPart* gpu = nullptr;
  uint32_t host_rank = 0, gpu_rank = 0;
  for (size_t i = 0; i < running.parts.size(); ++i) {
    const RankPart& part = running.parts[i];
    const bool on_gpu = part.buffers.recv.on_gpu();
    const RankPart*& side = on_gpu ? gpu : host;
    if (side != nullptr) continue;
    side = &part;
    (on_gpu ? gpu_rank : host_rank) = running.ranks[i];
  }
  if (host == nullptr || gpu == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks disagree on operation ", running.sequence, ": ", entry.comm.NameOfRank(gpu_rank),
      " called it on memory of GPU ", gpu->buffers.recv.gpu(), ", ",
      entry.comm.NameOfRank(host_rank),
      host->order != nullptr
          ? " on GPU memory that could not be handed over and is copied (set SPCCL_FORCE_STAGING=1 "
            "for all ranks, or see spcclctl doctor)"
          : " on host memory"));
}

void Engine::TellFailedGpus() {
  if (hooks_.gpus == nullptr) return;
  for (size_t i = 0; i < hooks_.gpus->count(); ++i) {
    const absl::Status status = hooks_.gpus->at(i).status();
    if (status.ok() || !failed_gpus_.insert(i).second) continue;
    Record("gpu-failed", "", 0, 0, std::string(status.message()));
  }
}

void Engine::NameUnready(const CommEntry& entry, CommFailure* failure) {
  if (entry.running == nullptr) return;
  std::string names;
  for (size_t i = 0; i < entry.running->parts.size(); ++i) {
    const runtime::GpuOrder* const order = entry.running->parts[i].buffers.order.get();
    // What resets is taken back once it has been seen.
    if (order == nullptr || order->resets) continue;
    const uint32_t ready = order->ready->load(std::memory_order_relaxed);
    if (static_cast<int32_t>(ready - order->value) >= 0) continue;
    const uint32_t rank = entry.running->ranks[i];
    if (names.empty()) failure->culprit_rank = static_cast<int>(rank);
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.comm.NameOfRank(rank));
  }
  if (names.empty()) return;
  failure->status =
      absl::Status(failure->status.code(),
                   absl::StrCat(failure->status.message(), ": waited for the CUDA stream of ",
                                names, ", which did not get there"));
}

}  // namespace spccl::daemon
