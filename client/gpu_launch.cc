#include "client/gpu_launch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/error.h"
#include "client/gpu_call.h"

namespace spccl::client {
namespace {

constexpr size_t kGpuStagingAlign = 256;

absl::StatusOr<shm::BufferRef> HandOver(CudaBuffers* buffers,
                                        const std::shared_ptr<Session>& session,
                                        const DeviceMemory& memory, const void* data, size_t bytes,
                                        GpuPlaces* places) {
  const uint64_t address = AddressOf(data);
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<CudaBuffer> buffer,
                         buffers->Get(session, memory, address, bytes));
  const shm::BufferRef ref{.buffer_id = buffer->id(), .offset = buffer->OffsetOf(address)};
  places->buffers.push_back(std::move(buffer));
  return ref;
}

// A GPU cannot read an element across its boundary. Refused here, where it is one rank's mistake:
// the daemon would have to fail the communicator. Likewise where the memory will be copied, which
// the program does not choose.
absl::Status CheckAligned(const char* name, const void* data, uint32_t dtype) {
  const size_t element = ElementBytes(dtype);
  if (AddressOf(data) % element == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is 0x", absl::Hex(AddressOf(data)), ", which is no multiple of the ",
                   element, " bytes of an element: memory of a GPU must be aligned"));
}

// Bytes of the staging buffer; sets the offsets in it. In place stays in place: one image of the
// bytes that the two buffers cover.
size_t Arrange(const CollectiveCall& call, const Footprint& bytes, GpuPlaces* places) {
  const uint64_t send = AddressOf(call.send), recv = AddressOf(call.recv);
  if (bytes.send_bytes > 0 && bytes.recv_bytes > 0 && send < recv + bytes.recv_bytes &&
      recv < send + bytes.send_bytes) {
    const uint64_t first = std::min(send, recv);
    places->send_offset = send - first;
    places->recv_offset = recv - first;
    return std::max(send + bytes.send_bytes, recv + bytes.recv_bytes) - first;
  }
  places->recv_offset =
      (bytes.send_bytes + kGpuStagingAlign - 1) / kGpuStagingAlign * kGpuStagingAlign;
  return places->recv_offset + bytes.recv_bytes;
}

// Makes calls that a capture forbids possible in this thread for the scope: they belong to no
// stream.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const cuda::Driver& driver) : driver_(driver) {
    (void)driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { (void)driver_.ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const cuda::Driver& driver_;
  int mode_ = cuda::kStreamCaptureModeRelaxed;
};

bool IsDefault(cuda::Stream stream) {
  return stream == nullptr || stream == cuda::kStreamLegacy || stream == cuda::kStreamPerThread;
}

// The stream's context, for a call on the memory of a GPU, whose primary context is `primary`.
// Streams that have none of their own, the default ones, are that GPU's, whichever the thread has
// chosen meanwhile (a group's calls are enqueued at its end).
class CallContext {
 public:
  CallContext(const cuda::Driver& driver, int gpu, cuda::Context primary, cuda::Stream stream)
      : driver_(driver) {
    cuda::Context current = nullptr, wanted = primary;
    if (driver.CtxGetCurrent(&current) != cuda::kSuccess) current = nullptr;
    if (IsDefault(stream)) {
      if (current != nullptr && IsOn(gpu)) return;
    } else if (driver.StreamGetCtx(stream, &wanted) != cuda::kSuccess) {
      wanted = primary;
    }
    if (wanted != current) pushed_.emplace(driver, wanted);
  }

 private:
  // A program may have contexts of its own there.
  bool IsOn(int gpu) const {
    cuda::Device wanted, is;
    return driver_.DeviceGet(&wanted, gpu) == cuda::kSuccess &&
           driver_.CtxGetDevice(&is) == cuda::kSuccess && is == wanted;
  }

  const cuda::Driver& driver_;
  std::optional<cuda::ScopedContext> pushed_;
};

absl::StatusOr<StreamOrder::Use> TakeCapturedSlot(StreamOrder& order) {
  if (const auto use = order.TakeForCapture()) return *use;
  return absl::ResourceExhaustedError(
      absl::StrCat("this process's graphs hold ", shm::kCapturedSlots,
                   " captured operations, all that a session has room for: destroy graphs"));
}

}  // namespace

absl::StatusOr<std::optional<GpuCall>> GpuClient::Find(const CollectiveCall& call,
                                                       const Footprint& bytes, void* stream) {
  if (memory_.driver() == nullptr) return std::nullopt;
  GpuCall gpu;
  if (bytes.send_bytes > 0) {
    SPCCL_ASSIGN_OR_RETURN(gpu.send, memory_.Find(call.send));
  }
  if (bytes.recv_bytes > 0) {
    SPCCL_ASSIGN_OR_RETURN(gpu.recv, memory_.Find(call.recv));
  }
  if (gpu.send == nullptr && gpu.recv == nullptr) return std::nullopt;
  const bool has_host_send = bytes.send_bytes > 0 && gpu.send == nullptr;
  const bool has_host_recv = bytes.recv_bytes > 0 && gpu.recv == nullptr;
  if (has_host_send || has_host_recv) {
    return absl::FailedPreconditionError(absl::StrCat(
        has_host_send ? "sendbuff" : "recvbuff", " is host memory and ",
        has_host_send ? "recvbuff" : "sendbuff", " is memory of GPU ", gpu.any().device,
        ": an operation's buffers must all be on GPUs or all on the host"));
  }
  if (gpu.send != nullptr) {
    SPCCL_RETURN_IF_ERROR(CheckAligned("sendbuff", call.send, call.dtype));
    SPCCL_RETURN_IF_ERROR(memory_.CheckRange(gpu.send, AddressOf(call.send), bytes.send_bytes));
  }
  if (gpu.recv != nullptr) {
    SPCCL_RETURN_IF_ERROR(CheckAligned("recvbuff", call.recv, call.dtype));
    SPCCL_RETURN_IF_ERROR(memory_.CheckRange(gpu.recv, AddressOf(call.recv), bytes.recv_bytes));
  }
  gpu.stream = static_cast<cuda::Stream>(stream);
  return gpu;
}

absl::StatusOr<std::shared_ptr<StreamOrder>> GpuClient::OrderOf(
    const std::shared_ptr<Session>& session, cuda::Context context) {
  const std::lock_guard lock(mutex_);
  if (order_ != nullptr && order_serial_ == session->serial()) return order_;
  // Another thread's capture would end with an error at what is called here.
  const RelaxedCapture relaxed(*memory_.driver());
  SPCCL_ASSIGN_OR_RETURN(order_, StreamOrder::Open(*session, *memory_.driver(), context));
  order_serial_ = session->serial();
  return order_;
}

void GpuClient::Prepare(const std::shared_ptr<Session>& session) {
  const cuda::Driver* const driver = memory_.driver();
  if (driver == nullptr) return;
  cuda::Context current = nullptr;
  if (driver->CtxGetCurrent(&current) != cuda::kSuccess || current == nullptr) return;
  (void)CatchAll([&] { return OrderOf(session, current); });
}

absl::StatusOr<std::shared_ptr<CudaBuffer>> GpuClient::Register(
    const std::shared_ptr<Session>& session, const DeviceMemory& memory, const void* data,
    size_t bytes) {
  SPCCL_RETURN_IF_ERROR(CheckTakesGpuMemory(*session));
  Prepare(session);
  const auto first = std::make_shared<const DeviceMemory>(memory);
  SPCCL_RETURN_IF_ERROR(memory_.CheckRange(first, AddressOf(data), bytes));
  if (session->forces_staging()) return std::shared_ptr<CudaBuffer>();
  const RelaxedCapture relaxed(*memory_.driver());
  auto buffer = buffers_.Get(session, memory, AddressOf(data), bytes);
  if (absl::IsUnimplemented(buffer.status())) return std::shared_ptr<CudaBuffer>();
  if (buffer.ok()) (*buffer)->AddHandle();
  return buffer;
}

void GpuClient::Deregister(const std::shared_ptr<CudaBuffer>& buffer) {
  if (buffer->RemoveHandle() == 0) buffers_.Forget(buffer);
}

absl::Status GpuClient::Place(const std::shared_ptr<Session>& session, const GpuCall& gpu,
                              cuda::Context context, GpuWork* work) {
  const cuda::Driver& driver = *memory_.driver();
  const RelaxedCapture relaxed(driver);
  GpuPlaces& places = work->places;
  absl::Status direct = session->forces_staging() ? absl::UnimplementedError("") : absl::OkStatus();
  const auto hand_over = [&](const std::shared_ptr<const DeviceMemory>& memory, const void* data,
                             size_t bytes, shm::BufferRef* ref) {
    if (!direct.ok() || memory == nullptr) return;
    auto found = HandOver(&buffers_, session, *memory, data, bytes, &places);
    if (found.ok()) *ref = *found;
    direct = found.status();
  };
  hand_over(gpu.send, work->call.send, work->bytes.send_bytes, &places.send);
  hand_over(gpu.recv, work->call.recv, work->bytes.recv_bytes, &places.recv);
  if (!absl::IsUnimplemented(direct)) return direct;
  places.buffers.clear();
  const size_t total = Arrange(work->call, work->bytes, &places);
  const cuda::Uuid& uuid = gpu.any().gpu;
  // Else nobody has looked which buffers are free again.
  session->rings().Drain();
  SPCCL_ASSIGN_OR_RETURN(places.staging, pinned_.Take(driver, context, uuid, total));
  auto id = CatchAll([&] { return places.staging->region().BufferId(session); });
  if (!id.ok()) {
    places.staging->NoteEnd(/*daemon_let_go=*/true);
    return id.status();
  }
  places.send = {.buffer_id = *id, .offset = places.send_offset};
  places.recv = {.buffer_id = *id, .offset = places.recv_offset};
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OrderSlot>> GpuClient::TakeSlot(const std::shared_ptr<Comm>& comm,
                                                               const GpuCall& gpu,
                                                               StreamOrder::Room room) {
  const cuda::Driver& driver = *memory_.driver();
  const int device = gpu.any().device;
  SPCCL_ASSIGN_OR_RETURN(const cuda::Context context, memory_.ContextOf(device));
  const CallContext current(driver, device, context, gpu.stream);
  const std::shared_ptr<Session>& session = comm->session();
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<StreamOrder> order, OrderOf(session, context));
  auto slot = std::make_unique<OrderSlot>(order);
  int capture = cuda::kStreamCaptureStatusNone;
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(driver.StreamIsCapturing(gpu.stream, &capture),
                                        "asking whether the stream is being captured"));
  if (capture == cuda::kStreamCaptureStatusActive) {
    SPCCL_ASSIGN_OR_RETURN(const StreamOrder::Use use, TakeCapturedSlot(*order));
    slot->Hold(use);
    return slot;
  }
  session->rings().Drain();
  if (const auto use = order->Take(comm->id(), session->ShareOf(shm::kEagerSlots), room)) {
    slot->Hold(*use);
    return slot;
  }
  SPCCL_RETURN_IF_ERROR(comm->Health());
  return std::unique_ptr<OrderSlot>();
}

absl::StatusOr<std::shared_ptr<GpuWork>> GpuClient::NewWork(
    const std::shared_ptr<Comm>& comm, const CollectiveCall& call, const Footprint& bytes,
    const GpuCall& gpu, cuda::Context context, OrderSlot* slot) {
  const cuda::Driver& driver = *memory_.driver();
  // Of a program that makes contexts of its own, the stream's is another.
  cuda::Context of_stream = nullptr;
  if (driver.StreamGetCtx(gpu.stream, &of_stream) == cuda::kSuccess) context = of_stream;
  auto work = std::make_shared<GpuWork>(GpuWork{
      .comm = comm, .call = call, .bytes = bytes, .places = {}, .order = slot->order(), .use = {}});
  SPCCL_RETURN_IF_ERROR(Place(comm->session(), gpu, context, work.get()));
  work->use = slot->Release();
  return work;
}

absl::StatusOr<std::unique_ptr<GpuEnqueue>> GpuClient::Begin(const std::shared_ptr<Comm>& comm,
                                                             const CollectiveCall& call,
                                                             const Footprint& bytes,
                                                             const GpuCall& gpu,
                                                             std::unique_ptr<OrderSlot> slot) {
  const cuda::Driver& driver = *memory_.driver();
  const int device = gpu.any().device;
  SPCCL_ASSIGN_OR_RETURN(const cuda::Context context, memory_.ContextOf(device));
  const CallContext current(driver, device, context, gpu.stream);
  SPCCL_ASSIGN_OR_RETURN(const std::shared_ptr<GpuWork> work,
                         NewWork(comm, call, bytes, gpu, context, slot.get()));
  auto enqueue = CatchAll([&]() -> absl::StatusOr<std::unique_ptr<GpuEnqueue>> {
    return NewEnqueue(driver, comm, work, gpu.stream);
  });
  if (!enqueue.ok()) {
    work->GiveUp();
    return enqueue;
  }
  SPCCL_RETURN_IF_ERROR((*enqueue)->Begin());
  return enqueue;
}

absl::Status GpuClient::End(const GpuCall& gpu, GpuEnqueue* enqueue) {
  const int device = gpu.any().device;
  SPCCL_ASSIGN_OR_RETURN(const cuda::Context context, memory_.ContextOf(device));
  const CallContext current(*memory_.driver(), device, context, gpu.stream);
  return enqueue->End();
}

}  // namespace spccl::client
