#include "client/cuda_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace spccl::client {
namespace {

constexpr uint32_t kLookForFreedEvery = 256;

shm::Request RequestOf(const CudaExport& exported) {
  shm::Request request{};
  request.type = shm::RequestType::kRegisterCuda;
  auto& body = request.register_cuda;
  static_assert(sizeof body.gpu == sizeof exported.pieces.front().gpu.bytes);
  std::memcpy(body.gpu, exported.pieces.front().gpu.bytes, sizeof body.gpu);
  body.address = exported.base;
  body.size_bytes = exported.size_bytes;
  body.driver_buffer_id = exported.pieces.front().buffer_id;
  body.kind = exported.kind;
  body.pieces = static_cast<uint32_t>(exported.pieces.size());
  if (exported.kind == shm::CudaHandleKind::kIpc) {
    static_assert(sizeof body.ipc_handle == sizeof exported.handle.reserved);
    std::memcpy(body.ipc_handle, exported.handle.reserved, sizeof body.ipc_handle);
    return request;
  }
  for (size_t i = 0; i < exported.pieces.size(); ++i) {
    body.piece_units[i] =
        static_cast<uint32_t>(exported.pieces[i].size_bytes / shm::kCudaPieceUnitBytes);
  }
  return request;
}

}  // namespace

CudaBuffer::CudaBuffer(const std::shared_ptr<Session>& session, uint64_t id,
                       const CudaExport& exported)
    : session_(session),
      id_(id),
      base_(exported.base),
      size_bytes_(exported.size_bytes),
      pieces_(exported.pieces) {}

absl::StatusOr<std::shared_ptr<CudaBuffer>> CudaBuffer::Register(
    const std::shared_ptr<Session>& session, CudaExport exported, int64_t timeout_ns) {
  std::vector<int> fds;
  for (const UniqueFd& fd : exported.descriptors) fds.push_back(fd.get());
  SPCCL_ASSIGN_OR_RETURN(const auto call, session->Start(RequestOf(exported), fds));
  const int64_t until_ns = MonotonicNanos() + timeout_ns;
  const auto reply = session->Await(call, "handing over GPU memory", timeout_ns);
  if (!reply.ok()) {
    SPCCL_RETURN_IF_ERROR(session->Health());
    // Unavailable is also what the daemon answers where its GPU has failed; that comes sooner.
    const bool is_late = absl::IsUnavailable(reply.status()) && MonotonicNanos() >= until_ns;
    return is_late ? reply.status() : absl::UnimplementedError(reply.status().message());
  }
  return std::shared_ptr<CudaBuffer>(new CudaBuffer(session, reply->value, exported));
}

CudaBuffer::~CudaBuffer() {
  const std::shared_ptr<Session> session = session_.lock();
  if (session == nullptr) return;
  shm::Request request{};
  request.type = shm::RequestType::kDeregister;
  request.deregister.buffer_id = id_;
  session->Tell(request);
}

void CudaBuffers::SetTimeout(int64_t timeout_ns) {
  const std::lock_guard lock(mutex_);
  timeout_ns_ = timeout_ns;
}

absl::StatusOr<std::shared_ptr<CudaBuffer>> CudaBuffers::Get(
    const std::shared_ptr<Session>& session, const DeviceMemory& first, uint64_t address,
    uint64_t bytes) {
  std::vector<std::shared_ptr<CudaBuffer>> dropped;  // end after the lock
  const std::lock_guard lock(mutex_);
  // A program that frees memory and hands over no other must not keep it from its GPU for ever.
  if (++gets_ % kLookForFreedEvery == 0) DropFreedLocked(&dropped);
  Entry entry{
      .buffer = nullptr, .session_serial = session->serial(), .first = first, .refusal = {}};
  const auto found = entries_.find(first.buffer_id);
  if (found != entries_.end() && found->second.session_serial == session->serial()) {
    entry = found->second;
  }
  if (entry.buffer != nullptr) {
    // Pieces behind the first may have been unmapped and others mapped in their place.
    const auto& pieces = entry.buffer->pieces();
    const bool is_whole =
        std::all_of(pieces.begin() + 1, pieces.end(),
                    [this](const DeviceMemory& piece) { return memory_->IsStill(piece); });
    if (is_whole && entry.buffer->Contains(address, bytes)) return entry.buffer;
    if (!is_whole) {
      dropped.push_back(std::exchange(found->second.buffer, nullptr));
      entry.buffer = nullptr;
    }
  }
  // What consists of too many pieces begins with fewer.
  if (address + bytes >= entry.refused_end) return entry.refusal;
  DropFreedLocked(&dropped);
  auto exported = memory_->Export(first, address, bytes);
  absl::Status status = exported.status();
  if (exported.ok()) {
    auto buffer = CudaBuffer::Register(session, *std::move(exported), timeout_ns_);
    status = buffer.status();
    if (buffer.ok()) entry.buffer = *std::move(buffer);
  }
  if (!status.ok() && !absl::IsUnimplemented(status)) return status;
  if (!status.ok()) {
    entry.refusal = status;
    entry.refused_end = address + bytes;
  }
  Entry& kept = entries_[first.buffer_id];
  dropped.push_back(std::exchange(kept, entry).buffer);
  if (!status.ok()) return status;
  return entry.buffer;
}

void CudaBuffers::DropFreedLocked(std::vector<std::shared_ptr<CudaBuffer>>* dropped) {
  std::erase_if(entries_, [&](auto& each) {
    if (memory_->IsStill(each.second.first)) return false;
    dropped->push_back(std::move(each.second.buffer));
    return true;
  });
}

void CudaBuffers::Forget(const std::shared_ptr<CudaBuffer>& buffer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& each) { return each.second.buffer == buffer; });
}

}  // namespace spccl::client
