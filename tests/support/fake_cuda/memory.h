// The memory that the fake's GPUs reach: blocks of device memory, of this process or another, each
// a memfd mapped in one range of addresses that nothing else of the process uses; and host memory
// that is registered. All functions: with the lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "tests/support/fake_cuda/process.h"

namespace spccl::fake_cuda {

// Device memory itself, which may be mapped several times, by several processes. The memfd's name
// says to everybody what it is.
struct Physical {
  UniqueFd fd;
  int gpu = 0;  // the node's number
  size_t bytes = 0;
  int handle_types = 0;

  // nullptr: out of memory.
  static std::shared_ptr<Physical> Create(int gpu, size_t bytes, int handle_types, char kind);
  // From a descriptor of such memory, which is taken; nullptr: it is something else.
  static std::shared_ptr<Physical> Adopt(UniqueFd fd, char kind);
  ~Physical();
  // Bytes of the GPU that this process has made memory of.
  static size_t Used(int gpu);

 private:
  bool is_mine_ = false;  // counted as this process's
};

struct Block {
  enum class Kind { kAllocated, kImported, kMapped, kHostAllocated, kHostRegistered };
  Kind kind;
  uintptr_t base = 0;
  size_t bytes = 0;
  uint64_t id = 0;  // never that of another block of the process
  ContextHandle* context = nullptr;
  int device = 0;
  std::shared_ptr<Physical> physical = {};  // of device memory
  uintptr_t area = 0;                       // of the arena, in which it is mapped
  size_t area_bytes = 0;
  // kMapped: devices that cuMemSetAccess has opened it to, a bit each. kImported: whether peers may
  // reach it. kHost...: whether it is portable.
  uint64_t access = 0;
  bool for_all = false;
  uint64_t opens = 0;       // kImported: handles of it that are open
  std::string handle = {};  // kImported: its handle
  uint64_t allocation = 0;  // kMapped: the handle's key of what is mapped
  size_t offset = 0;        // kMapped: where in `physical`

  bool is_host() const { return kind == Kind::kHostAllocated || kind == Kind::kHostRegistered; }
  bool Contains(uintptr_t address) const { return address - base < bytes; }
};

// The range of addresses that device memory lies in, first fit: what is freed is soon used again.
//
// Where the host has no access to it (Settings::host_access), nothing is ever mapped at the
// addresses that are device pointers, and the fake finds the memory at another place, a fixed
// distance away.
class Arena {
 public:
  // Addresses of whole pages that nothing is mapped at, with an empty page behind; 0: none are
  // left.
  uintptr_t Take(size_t bytes, size_t alignment);
  void Give(uintptr_t area, size_t bytes);
  bool Contains(uintptr_t address) const { return begin_ != 0 && address - begin_ < kBytes; }
  // Where the CPU finds what `address` names, which may also be host memory.
  void* Here(uintptr_t address) const {
    return reinterpret_cast<void*>(Contains(address) ? address + distance_ : address);
  }
  // Maps memory at addresses that have been taken, and takes it away again. `open`: may be touched.
  bool Map(uintptr_t address, size_t bytes, int fd, bool open) const;
  void Open(uintptr_t address, size_t bytes, bool open) const;
  void Unmap(uintptr_t address, size_t bytes) const;

 private:
  static constexpr size_t kBytes = size_t{16} << 30;
  bool Begin();

  uintptr_t begin_ = 0;
  uintptr_t distance_ = 0;
  std::map<uintptr_t, size_t> taken_;
};
Arena& arena();

using Blocks = std::map<uintptr_t, Block>;  // by base
Blocks& blocks();
// The block that `address` lies in, or nullptr.
Block* FindBlock(uintptr_t address);
uint64_t NextId();
// The device that is the node's `gpu` in this process, or -1.
int DeviceOf(int gpu);
size_t PageRoundUp(size_t bytes);

// Maps `physical` for a block of `bytes` bytes that ends with its area; fills area and base.
bool MapBlock(Block& block);
// Removes it from blocks() and from the addresses.
void DropBlock(uintptr_t base);
// Frees what a destroyed context owned.
void FreeAll(const ContextHandle& context);

enum class Access { kKernel, kCopy };
// Whether `device` reaches the range, in one or more blocks that follow each other: else says why
// not. kCopy: copies also reach pageable host memory, and device memory of whatever device.
bool Reaches(const ContextHandle& context, uintptr_t address, size_t bytes, Access access,
             std::string* why);
// Whether it is host memory that no GPU has been told of.
bool IsPageable(uintptr_t address);

}  // namespace spccl::fake_cuda
