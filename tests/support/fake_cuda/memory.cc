#include "tests/support/fake_cuda/memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace spccl::fake_cuda {
namespace {

constexpr char kName[] = "spccl-fake-cuda";
constexpr size_t kAlignment = 256;  // of what cuMemAlloc returns

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Bytes of a GPU that this process has made memory of.
std::map<int, size_t>& Used() {
  static auto* const used = new std::map<int, size_t>;
  return *used;
}

// At `at`, instead of what is there, or anywhere.
void* ReserveAddresses(void* at, size_t bytes) {
  return ::mmap(at, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at == nullptr ? 0 : MAP_FIXED), -1,
                0);
}

std::string Hex(uintptr_t address) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%zx", static_cast<size_t>(address));
  return text;
}

// Whether a kernel of `context` reaches the block; else says why not.
bool KernelReaches(const ContextHandle& context, const Block& block, std::string* why) {
  const uint64_t bit = uint64_t{1} << block.device;
  switch (block.kind) {
    case Block::Kind::kHostAllocated:
      return true;
    case Block::Kind::kHostRegistered:
      if (block.for_all || block.context == &context) return true;
      *why = "host memory registered by another context and not portable";
      return false;
    case Block::Kind::kMapped:
      if ((block.access >> context.device & 1) != 0) return true;
      *why = "mapped memory that cuMemSetAccess has not opened to the device";
      return false;
    case Block::Kind::kImported:
      // `for_all`: opened for a context of another device, in that one.
      if (block.context == &context && (block.device == context.device || block.for_all)) {
        return true;
      }
      [[fallthrough]];
    case Block::Kind::kAllocated:
      if (block.device == context.device || (context.peers & bit) != 0) return true;
      *why = "memory of another device, without access to that peer";
      return false;
  }
  return false;
}

}  // namespace

std::shared_ptr<Physical> Physical::Create(int gpu, size_t bytes, int handle_types, char kind) {
  size_t& used = fake_cuda::Used()[gpu];
  if (bytes > process().settings.bytes - std::min(used, process().settings.bytes)) return nullptr;
  char name[128];
  std::snprintf(name, sizeof(name), "%s:%c:%d:%zu:%d", kName, kind, gpu, bytes, handle_types);
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(PageRoundUp(bytes))) != 0) {
    return nullptr;
  }
  used += bytes;
  auto physical = std::make_shared<Physical>();
  physical->fd = std::move(fd);
  physical->gpu = gpu;
  physical->bytes = bytes;
  physical->handle_types = handle_types;
  physical->is_mine_ = true;
  return physical;
}

size_t Physical::Used(int gpu) {
  return fake_cuda::Used()[gpu];
}

std::shared_ptr<Physical> Physical::Adopt(UniqueFd fd, char kind) {
  char link[256] = {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  if (::readlink(path.c_str(), link, sizeof(link) - 1) <= 0) return nullptr;
  auto physical = std::make_shared<Physical>();
  char found = 0;
  const std::string format = std::string("/memfd:") + kName + ":%c:%d:%zu:%d";
  if (std::sscanf(link, format.c_str(), &found, &physical->gpu, &physical->bytes,
                  &physical->handle_types) != 4 ||
      found != kind) {
    return nullptr;
  }
  physical->fd = std::move(fd);
  return physical;
}

Physical::~Physical() {
  if (is_mine_) fake_cuda::Used()[gpu] -= bytes;
}

bool Arena::Begin() {
  const bool apart = !process().settings.host_access;
  void* const memory = ReserveAddresses(nullptr, apart ? 2 * kBytes : kBytes);
  if (memory == MAP_FAILED) return false;
  begin_ = reinterpret_cast<uintptr_t>(memory);
  distance_ = apart ? kBytes : 0;
  return true;
}

uintptr_t Arena::Take(size_t bytes, size_t alignment) {
  if (begin_ == 0 && !Begin()) return 0;
  const auto aligned = [&](uintptr_t at) { return (at + alignment - 1) / alignment * alignment; };
  uintptr_t at = aligned(begin_);
  for (const auto& [area, taken] : taken_) {
    if (at + bytes + PageBytes() <= area) break;
    at = std::max(at, aligned(area + taken + PageBytes()));
  }
  if (at - begin_ > kBytes || bytes + PageBytes() > kBytes - (at - begin_)) return 0;
  taken_[at] = bytes;
  return at;
}

void Arena::Give(uintptr_t area, size_t bytes) {
  Unmap(area, bytes);
  taken_.erase(area);
}

bool Arena::Map(uintptr_t address, size_t bytes, int fd, bool open) const {
  return ::mmap(Here(address), bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE,
                MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
}

void Arena::Open(uintptr_t address, size_t bytes, bool open) const {
  ::mprotect(Here(address), bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void Arena::Unmap(uintptr_t address, size_t bytes) const {
  // Reserved again, so that whoever still uses the memory crashes.
  ReserveAddresses(Here(address), bytes);
}

Arena& arena() {
  static auto* const arena = new Arena;
  return *arena;
}

Blocks& blocks() {
  static auto* const blocks = new Blocks;
  return *blocks;
}

Block* FindBlock(uintptr_t address) {
  auto after = blocks().upper_bound(address);
  if (after == blocks().begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return block.Contains(address) ? &block : nullptr;
}

int DeviceOf(int gpu) {
  const auto& visible = process().settings.visible;
  const auto found = std::find(visible.begin(), visible.end(), gpu);
  return found == visible.end() ? -1 : static_cast<int>(found - visible.begin());
}

uint64_t NextId() {
  static uint64_t last = 0;
  return ++last;
}

size_t PageRoundUp(size_t bytes) {
  return (bytes + PageBytes() - 1) / PageBytes() * PageBytes();
}

bool MapBlock(Block& block) {
  block.area_bytes = PageRoundUp(block.bytes);
  block.area = arena().Take(block.area_bytes, PageBytes());
  if (block.area == 0) return false;
  if (!arena().Map(block.area, block.area_bytes, block.physical->fd.get(), true)) {
    arena().Give(block.area, block.area_bytes);
    return false;
  }
  // At the end of its pages, so that what is past its end is soon found.
  const size_t used = (block.bytes + kAlignment - 1) / kAlignment * kAlignment;
  block.base = block.area + block.area_bytes - used;
  return true;
}

void DropBlock(uintptr_t base) {
  const auto found = blocks().find(base);
  if (found->second.area != 0) arena().Give(found->second.area, found->second.area_bytes);
  blocks().erase(found);
}

void FreeAll(const ContextHandle& context) {
  for (auto at = blocks().begin(); at != blocks().end();) {
    const Block& block = (at++)->second;
    const bool owned =
        block.kind == Block::Kind::kAllocated || block.kind == Block::Kind::kImported ||
        block.kind == Block::Kind::kHostAllocated || block.kind == Block::Kind::kHostRegistered;
    if (!owned || block.context != &context) continue;
    if (block.kind == Block::Kind::kHostAllocated) {
      ::munmap(reinterpret_cast<void*>(block.base), PageRoundUp(block.bytes));
    }
    DropBlock(block.base);
  }
}

bool Reaches(const ContextHandle& context, uintptr_t address, size_t bytes, Access access,
             std::string* why) {
  const uintptr_t begin = address, end = address + bytes;
  while (address < end) {
    const Block* const block = FindBlock(address);
    if (block == nullptr) {
      if (access == Access::kCopy && address == begin && !arena().Contains(address)) return true;
      *why =
          Hex(begin) + " + " + std::to_string(bytes) + ": no memory of a GPU's at " + Hex(address);
      return false;
    }
    const bool any = access == Access::kCopy && block->kind != Block::Kind::kMapped;
    std::string reason;
    if (!any && !KernelReaches(context, *block, &reason)) {
      *why = Hex(begin) + " + " + std::to_string(bytes) + ": " + reason;
      return false;
    }
    address = block->base + block->bytes;
  }
  return true;
}

bool IsPageable(uintptr_t address) {
  return FindBlock(address) == nullptr && !arena().Contains(address);
}

}  // namespace spccl::fake_cuda
