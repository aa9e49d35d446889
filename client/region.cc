#include "client/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace spccl::client {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

absl::Status MakePresent(std::byte* data, size_t size_bytes) {
  // Wishes: a system may have no huge pages for shared memory. Most are set up to give none of
  // themselves (shmem_enabled: never), but do collapse a range on demand, from one page of it on
  // (Linux 6.1). With small pages a pass over large buffers takes nearly twice as long.
  const size_t huge_bytes = size_bytes - size_bytes % kHugePageBytes;
  if (huge_bytes > 0) {
    (void)::madvise(data, size_bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < huge_bytes; at += kHugePageBytes) {
      if (::madvise(data + at, 1, MADV_POPULATE_WRITE) != 0) break;
    }
    (void)::madvise(data, huge_bytes, MADV_COLLAPSE);
  }
  if (::madvise(data, size_bytes, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  // Before Linux 5.14 there is no such advice, and the pages come at their first use.
  if (errno == EINVAL) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the system has no ", size_bytes, " bytes of shared memory"));
}

absl::StatusOr<std::shared_ptr<Region>> Region::Allocate(size_t size_bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  size_t rounded;
  if (__builtin_add_overflow(size_bytes, page - 1, &rounded) || rounded > PTRDIFF_MAX) {
    return absl::ResourceExhaustedError(absl::StrCat(size_bytes, " bytes are more than can be"));
  }
  // Its pages are made present at once: what cannot fit must not push out all else before it fails.
  const size_t physical = page * static_cast<size_t>(::sysconf(_SC_PHYS_PAGES));
  if (rounded > physical) {
    return absl::ResourceExhaustedError(
        absl::StrCat(size_bytes, " bytes are more than this machine's memory, ", physical));
  }
  rounded -= rounded % page;
  SPCCL_ASSIGN_OR_RETURN(UniqueFd memfd, CreateSealedMemfd("spccl-memory", rounded));
  SPCCL_ASSIGN_OR_RETURN(SharedMapping mapping, SharedMapping::Create(memfd.get(), rounded));
  SPCCL_RETURN_IF_ERROR(MakePresent(mapping.data(), rounded));
  std::shared_ptr<Region> region(new Region(mapping.data(), rounded));
  region->memfd_ = std::move(memfd);
  region->mapping_ = std::move(mapping);
  return region;
}

std::shared_ptr<Region> Region::Borrow(void* data, size_t size_bytes) {
  return std::shared_ptr<Region>(new Region(static_cast<std::byte*>(data), size_bytes));
}

Region::~Region() {
  const std::shared_ptr<Session> session = session_.lock();
  if (session == nullptr) return;
  shm::Request request{};
  request.type = shm::RequestType::kDeregister;
  request.deregister.buffer_id = buffer_id_;
  // The daemon holds a mapping of its own, so what it answers makes no difference to us.
  (void)CatchAll([&] { return session->Ask(request, "taking back a buffer"); });
}

bool Region::Contains(const void* start, size_t bytes) const {
  const auto first = reinterpret_cast<uintptr_t>(start);
  const auto base = reinterpret_cast<uintptr_t>(data_);
  return first >= base && first - base <= size_bytes_ && bytes <= size_bytes_ - (first - base);
}

absl::StatusOr<uint64_t> Region::BufferId(const std::shared_ptr<Session>& session) {
  const std::lock_guard lock(mutex_);
  if (session_.lock() == session) return buffer_id_;
  shm::Request request{};
  request.type =
      is_allocated() ? shm::RequestType::kRegisterMemfd : shm::RequestType::kRegisterAddress;
  request.buffer.address = reinterpret_cast<uintptr_t>(data_);
  request.buffer.size_bytes = size_bytes_;
  if (stages_gpu_ && session->minor() >= 1) {
    request.buffer.stages_gpu = 1;
    std::memcpy(request.buffer.gpu, gpu_, sizeof gpu_);
  }
  std::vector<int> fds;
  if (is_allocated()) fds.push_back(memfd_.get());
  SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply,
                         session->Ask(request, "registering a buffer", std::move(fds)));
  if (reply.value == shm::kRawAddress) {
    return absl::InternalError("the daemon gave a buffer the id of none");
  }
  session_ = session;
  buffer_id_ = reply.value;
  return buffer_id_;
}

}  // namespace spccl::client
