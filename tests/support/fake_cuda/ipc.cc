// Legacy IPC: handles of what cuMemAlloc has returned. A handle names the process, and the memory's
// descriptor in it, which whoever opens it finds in /proc: nothing is left over by a process that
// dies, and a handle of freed memory opens nothing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/support/fake_cuda/capture.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/process.h"
#include "tests/support/fake_cuda/stream.h"

namespace spccl::cuda {

using fake_cuda::Block;
using fake_cuda::blocks;
using fake_cuda::Call;
using fake_cuda::FindBlock;
using fake_cuda::Lock;
using fake_cuda::Misuse;
using fake_cuda::Needs;
using fake_cuda::Physical;
using fake_cuda::process;

namespace {

struct HandleBody {
  char magic[8];
  int32_t pid;
  int32_t fd;
  uint64_t inode;
  uint64_t id;
};
static_assert(sizeof(HandleBody) <= sizeof(IpcMemHandle));
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'I', 'P', 'C', '1'};

uint64_t InodeOf(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

// The memory of a handle, while its owner lives and has not freed it.
std::shared_ptr<Physical> Reopen(const HandleBody& body) {
  const std::string path = "/proc/" + std::to_string(body.pid) + "/fd/" + std::to_string(body.fd);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid() || InodeOf(fd.get()) != body.inode) return nullptr;
  return Physical::Adopt(std::move(fd), 'a');
}

Block* FindOpen(const std::string& handle) {
  for (auto& [base, block] : blocks()) {
    if (block.kind == Block::Kind::kImported && block.handle == handle &&
        block.context == fake_cuda::Current()) {
      return &block;
    }
  }
  return nullptr;
}

Result OpenNew(const HandleBody& body, const std::string& handle, bool for_peers, Block* block) {
  block->physical = Reopen(body);
  if (block->physical == nullptr) return kErrorInvalidValue;
  block->device = fake_cuda::DeviceOf(block->physical->gpu);
  if (block->device < 0) return kErrorInvalidDevice;
  block->context = fake_cuda::Current();
  const int here = block->context->device;
  if (block->device != here && (!for_peers || !fake_cuda::CanReachPeer(here, block->device))) {
    return kErrorPeerAccessUnsupported;
  }
  // Also the context's device, if it is not the memory's own.
  block->for_all = for_peers;
  block->bytes = block->physical->bytes;
  block->handle = handle;
  block->opens = 1;
  block->id = fake_cuda::NextId();
  return fake_cuda::MapBlock(*block) ? kSuccess : kErrorOutOfMemory;
}

}  // namespace

SPCCL_FAKE_EXPORT Result cuIpcGetMemHandle(IpcMemHandle* handle, DevicePtr pointer) {
  return Call("cuIpcGetMemHandle", Needs::kContext, [&](Lock&) -> Result {
    const Block* const block = FindBlock(pointer);
    if (block == nullptr || block->kind != Block::Kind::kAllocated) return kErrorInvalidValue;
    HandleBody body = {};
    std::memcpy(body.magic, kMagic, sizeof(kMagic));
    body.pid = ::getpid();
    body.fd = block->physical->fd.get();
    body.inode = InodeOf(body.fd);
    body.id = block->id;
    std::memset(handle, 0, sizeof(*handle));
    std::memcpy(handle, &body, sizeof(body));
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuIpcOpenMemHandle_v2(DevicePtr* pointer, IpcMemHandle handle,
                                               unsigned flags) {
  return Call("cuIpcOpenMemHandle_v2", Needs::kContext, [&](Lock&) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    HandleBody body;
    std::memcpy(&body, &handle, sizeof(body));
    const bool is_one = std::memcmp(body.magic, kMagic, sizeof(kMagic)) == 0;
    if (pointer == nullptr || !is_one || (flags & ~kIpcMemLazyEnablePeerAccess) != 0) {
      return kErrorInvalidValue;
    }
    if (body.pid == ::getpid()) return kErrorInvalidContext;  // not in the process that made it
    const std::string key(handle.reserved, sizeof(handle.reserved));
    if (Block* const open = FindOpen(key); open != nullptr) {
      ++open->opens;
      *pointer = open->base;
      return kSuccess;
    }
    Block block = {.kind = Block::Kind::kImported};
    const Result result = OpenNew(body, key, flags != 0, &block);
    if (result != kSuccess) return result;
    *pointer = block.base;
    blocks().emplace(block.base, std::move(block));
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuIpcCloseMemHandle(DevicePtr pointer) {
  return Call("cuIpcCloseMemHandle", Needs::kContext, [&](Lock& lock) -> Result {
    if (const Result unsafe = fake_cuda::CheckUnsafe(); unsafe != kSuccess) return unsafe;
    const auto found = blocks().find(pointer);
    if (found == blocks().end() || found->second.kind != Block::Kind::kImported) {
      return Misuse(kErrorInvalidValue,
                    "cuIpcCloseMemHandle of what cuIpcOpenMemHandle has not returned");
    }
    Block& block = found->second;
    if (block.opens == 1) fake_cuda::AwaitIdle(*block.context, lock);
    if (--block.opens == 0) fake_cuda::DropBlock(pointer);
    return kSuccess;
  });
}

}  // namespace spccl::cuda
