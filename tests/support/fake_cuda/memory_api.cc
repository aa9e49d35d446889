// Allocation, host memory and pointers' attributes.
#include <sys/mman.h>

#include <cstring>

#include "tests/support/fake_cuda/capture.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/process.h"
#include "tests/support/fake_cuda/stream.h"

namespace spccl::cuda {

using fake_cuda::Block;
using fake_cuda::blocks;
using fake_cuda::Call;
using fake_cuda::Current;
using fake_cuda::FindBlock;
using fake_cuda::Lock;
using fake_cuda::Misuse;
using fake_cuda::Needs;
using fake_cuda::process;

namespace {

constexpr size_t kNoiseBytes = size_t{1} << 20;

Block NewBlock(Block::Kind kind, size_t bytes) {
  Block block = {.kind = kind, .bytes = bytes, .id = fake_cuda::NextId()};
  block.context = Current();
  block.device = block.context->device;
  return block;
}

Block* BlockAt(uintptr_t base, Block::Kind kind) {
  const auto found = blocks().find(base);
  return found != blocks().end() && found->second.kind == kind ? &found->second : nullptr;
}

}  // namespace

SPCCL_FAKE_EXPORT Result cuMemAlloc_v2(DevicePtr* pointer, size_t bytes) {
  return Call("cuMemAlloc_v2", Needs::kContext, [&](Lock&) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    if (pointer == nullptr || bytes == 0) return kErrorInvalidValue;
    Block block = NewBlock(Block::Kind::kAllocated, bytes);
    const int gpu = process().settings.visible[block.device];
    block.physical = fake_cuda::Physical::Create(gpu, bytes, 0, 'a');
    if (block.physical == nullptr || !fake_cuda::MapBlock(block)) return kErrorOutOfMemory;
    // What a GPU's memory holds that nobody has written.
    std::memset(fake_cuda::arena().Here(block.base), 0xcb, std::min(bytes, kNoiseBytes));
    *pointer = block.base;
    blocks().emplace(block.base, std::move(block));
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemFree_v2(DevicePtr pointer) {
  return Call("cuMemFree_v2", Needs::kContext, [&](Lock& lock) -> Result {
    if (pointer == 0) return kSuccess;
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    Block* const block = BlockAt(pointer, Block::Kind::kAllocated);
    if (block == nullptr) {
      return Misuse(kErrorInvalidValue, "cuMemFree of what cuMemAlloc has not returned");
    }
    // As the driver does, if without promising it: nothing of the device uses it after.
    fake_cuda::AwaitIdle(*block->context, lock);
    fake_cuda::DropBlock(pointer);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return Call("cuMemGetInfo_v2", Needs::kContext, [&](Lock&) -> Result {
    const int gpu = process().settings.visible[Current()->device];
    *total_bytes = process().settings.bytes;
    *free_bytes = *total_bytes - fake_cuda::Physical::Used(gpu);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemGetAddressRange_v2(DevicePtr* base, size_t* bytes,
                                                 DevicePtr pointer) {
  return Call("cuMemGetAddressRange_v2", Needs::kContext, [&](Lock&) -> Result {
    const Block* const block = FindBlock(pointer);
    if (block == nullptr || block->is_host()) return kErrorNotFound;
    if (base != nullptr) *base = block->base;
    if (bytes != nullptr) *bytes = block->bytes;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return Call("cuMemHostAlloc", Needs::kContext, [&](Lock&) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    if (memory == nullptr || bytes == 0) return kErrorInvalidValue;
    void* const mapped = ::mmap(nullptr, fake_cuda::PageRoundUp(bytes), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return kErrorOutOfMemory;
    Block block = NewBlock(Block::Kind::kHostAllocated, bytes);
    block.base = reinterpret_cast<uintptr_t>(mapped);
    block.for_all = (flags & kMemHostAllocPortable) != 0;
    blocks().emplace(block.base, std::move(block));
    *memory = mapped;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemFreeHost(void* memory) {
  return Call("cuMemFreeHost", Needs::kContext, [&](Lock& lock) -> Result {
    if (memory == nullptr) return kSuccess;
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    Block* const block = BlockAt(reinterpret_cast<uintptr_t>(memory), Block::Kind::kHostAllocated);
    if (block == nullptr) {
      return Misuse(kErrorInvalidValue, "cuMemFreeHost of what cuMemHostAlloc has not returned");
    }
    fake_cuda::AwaitIdle(*block->context, lock);
    ::munmap(memory, fake_cuda::PageRoundUp(block->bytes));
    fake_cuda::DropBlock(block->base);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  return Call("cuMemHostRegister_v2", Needs::kContext, [&](Lock&) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    if (memory == nullptr || bytes == 0) return kErrorInvalidValue;
    const auto base = reinterpret_cast<uintptr_t>(memory);
    const auto after = blocks().lower_bound(base);
    const bool overlaps =
        FindBlock(base) != nullptr || (after != blocks().end() && after->first - base < bytes);
    if (overlaps) return kErrorHostMemoryAlreadyRegistered;
    Block block = NewBlock(Block::Kind::kHostRegistered, bytes);
    block.base = base;
    block.for_all = (flags & kMemHostRegisterPortable) != 0;
    blocks().emplace(base, std::move(block));
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemHostUnregister(void* memory) {
  return Call("cuMemHostUnregister", Needs::kContext, [&](Lock&) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    Block* const block = BlockAt(reinterpret_cast<uintptr_t>(memory), Block::Kind::kHostRegistered);
    if (block == nullptr) {
      return Misuse(kErrorHostMemoryNotRegistered, "cuMemHostUnregister of unregistered memory");
    }
    fake_cuda::DropBlock(block->base);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuMemHostGetDevicePointer_v2(DevicePtr* pointer, void* memory,
                                                      unsigned flags) {
  return Call("cuMemHostGetDevicePointer_v2", Needs::kContext, [&](Lock&) -> Result {
    const Block* const block = FindBlock(reinterpret_cast<uintptr_t>(memory));
    if (flags != 0 || block == nullptr || !block->is_host()) return kErrorInvalidValue;
    *pointer = reinterpret_cast<uintptr_t>(memory);
    return kSuccess;
  });
}

namespace {

Result GetAttribute(const Block& block, int attribute, void* value) {
  const bool legacy = block.kind == Block::Kind::kAllocated;
  switch (attribute) {
    case kPointerAttributeContext:
      // Mapped memory belongs to none.
      *static_cast<Context*>(value) = block.kind == Block::Kind::kMapped ? nullptr : block.context;
      return kSuccess;
    case kPointerAttributeMemoryType:
      *static_cast<unsigned*>(value) = block.is_host() ? kMemoryTypeHost : kMemoryTypeDevice;
      return kSuccess;
    case kPointerAttributeBufferId:
      *static_cast<uint64_t*>(value) = block.id;
      return kSuccess;
    case kPointerAttributeIsManaged:
      *static_cast<unsigned*>(value) = 0;
      return kSuccess;
    case kPointerAttributeDeviceOrdinal:
      *static_cast<int*>(value) = block.device;
      return kSuccess;
    case kPointerAttributeIsLegacyCudaIpcCapable:
      *static_cast<int*>(value) = legacy ? 1 : 0;
      return kSuccess;
    case kPointerAttributeAllowedHandleTypes:
      *static_cast<uint64_t*>(value) =
          block.physical == nullptr ? 0 : static_cast<uint64_t>(block.physical->handle_types);
      return kSuccess;
    default:
      return kErrorInvalidValue;
  }
}

}  // namespace

SPCCL_FAKE_EXPORT Result cuPointerGetAttribute(void* value, int attribute, DevicePtr pointer) {
  return Call("cuPointerGetAttribute", Needs::kDriver, [&](Lock&) -> Result {
    const Block* const block = FindBlock(pointer);
    return block == nullptr || value == nullptr ? kErrorInvalidValue
                                                : GetAttribute(*block, attribute, value);
  });
}

}  // namespace spccl::cuda
