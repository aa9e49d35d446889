// Virtual memory management: memory and addresses apart, and memory shared by descriptors.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/process.h"

namespace spccl::fake_cuda {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): a driver is made of its names
using U64 = unsigned long long;  // NOLINT(google-runtime-int): as the driver has it

struct Allocation {
  std::shared_ptr<Physical> physical;
  uint64_t references = 0;
};
std::map<AllocationHandle, Allocation>& Allocations() {
  static auto* const allocations = new std::map<AllocationHandle, Allocation>;
  return *allocations;
}

// Bytes of each range of addresses, by its begin.
std::map<uintptr_t, size_t>& Reservations() {
  static auto* const reservations = new std::map<uintptr_t, size_t>;
  return *reservations;
}

size_t Granularity() {
  return process().settings.granularity;
}
bool IsWhole(size_t bytes) {
  return bytes > 0 && bytes % Granularity() == 0;
}

AllocationHandle NewHandle(std::shared_ptr<Physical> physical) {
  const AllocationHandle handle = 0xfa4e'0000'0000 + NextId();
  Allocations()[handle] = {std::move(physical), 1};
  return handle;
}

bool IsReserved(uintptr_t begin, size_t bytes) {
  const auto after = Reservations().upper_bound(begin);
  if (after == Reservations().begin()) return false;
  const auto& [base, reserved] = *std::prev(after);
  return begin - base <= reserved && bytes <= reserved - (begin - base);
}

// The mappings that make up exactly [begin, begin + bytes); empty: none do.
std::vector<Block*> MappingsOf(uintptr_t begin, size_t bytes) {
  std::vector<Block*> found;
  uintptr_t at = begin;
  while (at < begin + bytes) {
    const auto block = blocks().find(at);
    if (block == blocks().end() || block->second.kind != Block::Kind::kMapped) return {};
    found.push_back(&block->second);
    at += block->second.bytes;
  }
  if (at != begin + bytes) found.clear();
  return found;
}

Result Map(uintptr_t begin, size_t bytes, size_t offset, AllocationHandle handle) {
  const auto found = Allocations().find(handle);
  if (found == Allocations().end()) {
    return Misuse(kErrorInvalidValue, "cuMemMap of a handle that does not exist");
  }
  const auto& physical = found->second.physical;
  if (offset != 0 || !IsWhole(bytes) || begin % Granularity() != 0 || bytes > physical->bytes) {
    return kErrorInvalidValue;
  }
  const auto next = blocks().lower_bound(begin);
  const bool is_taken =
      FindBlock(begin) != nullptr || (next != blocks().end() && next->first - begin < bytes);
  if (!IsReserved(begin, bytes) || is_taken) {
    return Misuse(kErrorInvalidValue, "cuMemMap at addresses that are not reserved, or mapped");
  }
  if (!arena().Map(begin, bytes, physical->fd.get(), false)) return kErrorOutOfMemory;
  Block block = {.kind = Block::Kind::kMapped, .base = begin, .bytes = bytes, .id = NextId()};
  block.device = DeviceOf(physical->gpu);
  block.physical = physical;
  block.allocation = handle;
  blocks().emplace(begin, std::move(block));
  return kSuccess;
}

Result Unmap(uintptr_t begin, size_t bytes) {
  const auto mappings = MappingsOf(begin, bytes);
  if (mappings.empty()) {
    return Misuse(kErrorInvalidValue, "cuMemUnmap of other than whole mappings");
  }
  for (const Block* block : mappings) {
    arena().Unmap(block->base, block->bytes);
    DropBlock(block->base);
  }
  return kSuccess;
}

Result SetAccess(uintptr_t begin, size_t bytes, const MemAccessDesc& access) {
  const int device = access.location.id;
  const auto& contexts = process().contexts;
  if (access.location.type != kMemLocationTypeDevice || device < 0 ||
      static_cast<size_t>(device) >= contexts.size()) {
    return kErrorInvalidDevice;
  }
  const auto mappings = MappingsOf(begin, bytes);
  if (mappings.empty()) {
    return Misuse(kErrorInvalidValue, "cuMemSetAccess of other than whole mappings");
  }
  for (Block* block : mappings) {
    if (device != block->device && !CanReachPeer(device, block->device)) {
      return kErrorInvalidDevice;
    }
  }
  const uint64_t bit = uint64_t{1} << device;
  for (Block* block : mappings) {
    block->access =
        access.flags == kMemAccessFlagsProtReadWrite ? block->access | bit : block->access & ~bit;
    arena().Open(block->base, block->bytes, block->access != 0);
  }
  return kSuccess;
}

bool IsSupported(const MemAllocationProp* prop) {
  return prop != nullptr && prop->type == kMemAllocationTypePinned &&
         prop->location.type == kMemLocationTypeDevice &&
         (prop->requested_handle_types & ~kMemHandleTypePosixFileDescriptor) == 0;
}

}  // namespace

void CountVmm(spcclFakeHoldings* holdings) {
  for (const auto& [handle, allocation] : Allocations()) {
    if (allocation.references > 0) ++holdings->handles;
  }
  holdings->reservations = Reservations().size();
}

}  // namespace spccl::fake_cuda

namespace spccl::cuda {

using fake_cuda::Allocations;
using fake_cuda::Call;
using fake_cuda::Lock;
using fake_cuda::Misuse;
using fake_cuda::Needs;
using fake_cuda::U64;

SPCCL_FAKE_EXPORT Result cuMemGetAllocationGranularity(size_t* granularity,
                                                       const MemAllocationProp* prop, int option) {
  return Call("cuMemGetAllocationGranularity", Needs::kDriver, [&](Lock&) -> Result {
    if (!fake_cuda::IsSupported(prop)) return kErrorInvalidValue;
    *granularity = fake_cuda::Granularity();
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemCreate(AllocationHandle* handle, size_t bytes,
                                     const MemAllocationProp* prop, U64 flags) {
  return Call("cuMemCreate", Needs::kDriver, [&](Lock&) -> Result {
    if (!fake_cuda::IsSupported(prop) || !fake_cuda::IsWhole(bytes) || flags != 0) {
      return kErrorInvalidValue;
    }
    const auto& visible = fake_cuda::process().settings.visible;
    const int device = prop->location.id;
    if (device < 0 || static_cast<size_t>(device) >= visible.size()) return kErrorInvalidDevice;
    auto physical =
        fake_cuda::Physical::Create(visible[device], bytes, prop->requested_handle_types, 'v');
    if (physical == nullptr) return kErrorOutOfMemory;
    *handle = fake_cuda::NewHandle(std::move(physical));
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemRelease(AllocationHandle handle) {
  return Call("cuMemRelease", Needs::kDriver, [&](Lock&) -> Result {
    const auto found = Allocations().find(handle);
    if (found == Allocations().end()) {
      return Misuse(kErrorInvalidValue, "cuMemRelease of a handle that does not exist");
    }
    // What is mapped lives on.
    if (--found->second.references == 0) Allocations().erase(found);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemAddressReserve(DevicePtr* pointer, size_t bytes, size_t alignment,
                                             DevicePtr wish, U64 flags) {
  return Call("cuMemAddressReserve", Needs::kDriver, [&](Lock&) -> Result {
    if (!fake_cuda::IsWhole(bytes) || flags != 0) return kErrorInvalidValue;
    const uintptr_t area =
        fake_cuda::arena().Take(bytes, std::max(alignment, fake_cuda::Granularity()));
    if (area == 0) return kErrorOutOfMemory;
    fake_cuda::Reservations()[area] = bytes;
    *pointer = area;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemAddressFree(DevicePtr pointer, size_t bytes) {
  return Call("cuMemAddressFree", Needs::kDriver, [&](Lock&) -> Result {
    const auto found = fake_cuda::Reservations().find(pointer);
    if (found == fake_cuda::Reservations().end() || found->second != bytes) {
      return Misuse(kErrorInvalidValue, "cuMemAddressFree of what has not been reserved");
    }
    const auto mapped = fake_cuda::blocks().lower_bound(pointer);
    if (mapped != fake_cuda::blocks().end() && mapped->first - pointer < bytes) {
      return Misuse(kErrorInvalidValue, "cuMemAddressFree of addresses that are still mapped");
    }
    fake_cuda::Reservations().erase(found);
    fake_cuda::arena().Give(pointer, bytes);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemMap(DevicePtr pointer, size_t bytes, size_t offset,
                                  AllocationHandle handle, U64 flags) {
  return Call("cuMemMap", Needs::kDriver, [&](Lock&) -> Result {
    return flags != 0 ? kErrorInvalidValue : fake_cuda::Map(pointer, bytes, offset, handle);
  });
}

SPCCL_FAKE_EXPORT Result cuMemUnmap(DevicePtr pointer, size_t bytes) {
  return Call("cuMemUnmap", Needs::kDriver,
              [&](Lock&) -> Result { return fake_cuda::Unmap(pointer, bytes); });
}

SPCCL_FAKE_EXPORT Result cuMemSetAccess(DevicePtr pointer, size_t bytes,
                                        const MemAccessDesc* accesses, size_t count) {
  return Call("cuMemSetAccess", Needs::kDriver, [&](Lock&) -> Result {
    Result result = count == 0 ? kErrorInvalidValue : kSuccess;
    for (size_t i = 0; i < count && result == kSuccess; ++i) {
      result = fake_cuda::SetAccess(pointer, bytes, accesses[i]);
    }
    return result;
  });
}

SPCCL_FAKE_EXPORT Result cuMemRetainAllocationHandle(AllocationHandle* handle, void* pointer) {
  return Call("cuMemRetainAllocationHandle", Needs::kDriver, [&](Lock&) -> Result {
    const auto* const block = fake_cuda::FindBlock(reinterpret_cast<uintptr_t>(pointer));
    if (block == nullptr || block->kind != fake_cuda::Block::Kind::kMapped) {
      return kErrorInvalidValue;
    }
    fake_cuda::Allocation& allocation = Allocations()[block->allocation];
    allocation.physical = block->physical;
    ++allocation.references;
    *handle = block->allocation;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemGetAllocationPropertiesFromHandle(MemAllocationProp* prop,
                                                                AllocationHandle handle) {
  return Call("cuMemGetAllocationPropertiesFromHandle", Needs::kDriver, [&](Lock&) -> Result {
    const auto found = Allocations().find(handle);
    if (found == Allocations().end()) return kErrorInvalidValue;
    *prop = {};
    prop->type = kMemAllocationTypePinned;
    prop->requested_handle_types = found->second.physical->handle_types;
    prop->location = {kMemLocationTypeDevice, fake_cuda::DeviceOf(found->second.physical->gpu)};
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemExportToShareableHandle(void* shareable, AllocationHandle handle,
                                                      int type, U64 flags) {
  return Call("cuMemExportToShareableHandle", Needs::kDriver, [&](Lock&) -> Result {
    const auto found = Allocations().find(handle);
    if (found == Allocations().end() || type != kMemHandleTypePosixFileDescriptor || flags != 0 ||
        (found->second.physical->handle_types & type) == 0) {
      return kErrorInvalidValue;
    }
    const int fd = ::fcntl(found->second.physical->fd.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return kErrorUnknown;
    *static_cast<int*>(shareable) = fd;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemImportFromShareableHandle(AllocationHandle* handle, void* shareable,
                                                        int type) {
  return Call("cuMemImportFromShareableHandle", Needs::kDriver, [&](Lock&) -> Result {
    if (type != kMemHandleTypePosixFileDescriptor) return kErrorInvalidValue;
    // The caller's descriptor stays the caller's.
    const auto theirs = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
    UniqueFd fd(::fcntl(theirs, F_DUPFD_CLOEXEC, 0));
    auto physical = fd.valid() ? fake_cuda::Physical::Adopt(std::move(fd), 'v') : nullptr;
    if (physical == nullptr) return kErrorInvalidValue;
    if (fake_cuda::DeviceOf(physical->gpu) < 0) return kErrorInvalidDevice;
    *handle = fake_cuda::NewHandle(std::move(physical));
    return kSuccess;
  });
}

}  // namespace spccl::cuda
