// Memory and order between processes. Each process loads a driver of its own; the test's has none.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/fake_cuda/process_pair.h"
#include "tests/support/multi_process.h"

namespace spccl::testing {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): nearly every word is of it

constexpr size_t kBlockBytes = 3 << 20;
constexpr size_t kWhole = size_t{2} << 20;  // granularity

// A process's GPU 0.
struct Gpu {
  explicit Gpu(int device = 0) {
    EXPECT_IN_PROCESS(driver->DevicePrimaryCtxRetain(&context, device) == kSuccess);
    EXPECT_IN_PROCESS(driver->CtxPushCurrent(context) == kSuccess);
    EXPECT_IN_PROCESS(driver->StreamCreateWithPriority(&stream, 1, 0) == kSuccess);
  }
  std::string Read(DevicePtr pointer, size_t bytes) const {
    std::string text(bytes, '\0');
    EXPECT_IN_PROCESS(driver->MemcpyAsync(reinterpret_cast<DevicePtr>(text.data()), pointer, bytes,
                                          stream) == kSuccess);
    return text;
  }
  void Set(DevicePtr pointer, char value, size_t bytes) const {
    EXPECT_IN_PROCESS(driver->MemsetD8Async(pointer, static_cast<unsigned char>(value), bytes,
                                            stream) == kSuccess);
    EXPECT_IN_PROCESS(driver->StreamSynchronize(stream) == kSuccess);
  }
  template <class T>
  T Attribute(int attribute, DevicePtr pointer) const {
    T value = {};
    EXPECT_IN_PROCESS(driver->PointerGetAttribute(&value, attribute, pointer) == kSuccess);
    return value;
  }

  std::shared_ptr<const Driver> driver = LoadFakeDriver();
  Context context = nullptr;
  Stream stream = nullptr;
};

TEST(SharingTest, LegacyHandlesGoBothWaysAndInteriorPointersNeedOffsets) {
  RunPair([](int rank, Ends& ends) {
    Gpu gpu;
    DevicePtr mine = 0, theirs = 0;
    EXPECT_IN_PROCESS(gpu.driver->MemAlloc(&mine, kBlockBytes) == kSuccess);
    gpu.Set(mine, static_cast<char>('a' + rank), kBlockBytes);
    EXPECT_IN_PROCESS(gpu.Attribute<int>(kPointerAttributeIsLegacyCudaIpcCapable, mine) == 1);
    IpcMemHandle handle;
    // Of a pointer inside: names the block all the same.
    EXPECT_IN_PROCESS(gpu.driver->IpcGetMemHandle(&handle, mine + 1000) == kSuccess);
    DevicePtr own = 0;
    EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&own, handle, 1) == kErrorInvalidContext);
    ends.Send(rank, handle);
    const auto received = ends.Receive<IpcMemHandle>(rank);
    EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&theirs, received, 1) == kSuccess);
    DevicePtr base = 0;
    size_t bytes = 0;
    EXPECT_IN_PROCESS(gpu.driver->MemGetAddressRange(&base, &bytes, theirs + 5) == kSuccess);
    EXPECT_IN_PROCESS(base == theirs && bytes == kBlockBytes);
    EXPECT_IN_PROCESS(gpu.Read(theirs + kBlockBytes - 2, 2) == std::string(2, 'b' - rank));
    EXPECT_IN_PROCESS(gpu.Attribute<int>(kPointerAttributeIsLegacyCudaIpcCapable, theirs) == 0);
    ends.Meet(rank);
    gpu.Set(theirs + 1000, 'x', 3);
    ends.Meet(rank);
    EXPECT_IN_PROCESS(gpu.Read(mine + 999, 5) ==
                      std::string(1, 'a' + rank) + "xxx" + std::string(1, 'a' + rank));
    EXPECT_IN_PROCESS(gpu.driver->IpcCloseMemHandle(theirs) == kSuccess);
    EXPECT_IN_PROCESS(gpu.driver->MemFree(mine) == kSuccess);
  });
}

TEST(SharingTest, OpeningAgainCountsAndAHandleOfFreedMemoryOpensNothing) {
  RunPair([](int rank, Ends& ends) {
    Gpu gpu;
    if (rank == 0) {
      DevicePtr mine = 0;
      EXPECT_IN_PROCESS(gpu.driver->MemAlloc(&mine, 100) == kSuccess);
      gpu.Set(mine, 'a', 100);
      IpcMemHandle handle;
      EXPECT_IN_PROCESS(gpu.driver->IpcGetMemHandle(&handle, mine) == kSuccess);
      ends.Send(rank, handle);
      ends.Meet(rank);
      EXPECT_IN_PROCESS(gpu.driver->MemFree(mine) == kSuccess);
      ends.Meet(rank);
      return;
    }
    const auto handle = ends.Receive<IpcMemHandle>(rank);
    DevicePtr first = 0, second = 0;
    EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&first, handle, 1) == kSuccess);
    EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&second, handle, 1) == kSuccess);
    EXPECT_IN_PROCESS(first == second);
    EXPECT_IN_PROCESS(gpu.driver->IpcCloseMemHandle(first) == kSuccess);
    EXPECT_IN_PROCESS(gpu.Read(second, 1) == "a");
    ends.Meet(rank);
    ends.Meet(rank);
    EXPECT_IN_PROCESS(gpu.Read(second + 99, 1) == "a");  // what is open outlives its maker
    EXPECT_IN_PROCESS(gpu.driver->IpcCloseMemHandle(second) == kSuccess);
    EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&first, handle, 1) == kErrorInvalidValue);
    spcclFakeHoldings left;
    Fake().Count(&left);
    EXPECT_IN_PROCESS(left.imports == 0);
  });
}

TEST(SharingTest, DevicesAreKnownByTheirUuids) {
  RunPair([](int rank, Ends& ends) {
    if (rank == 1) ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    Gpu gpu;
    Uuid uuid;
    if (rank == 0) {
      DevicePtr pointers[2];
      for (int device = 0; device < 2; ++device) {
        const Gpu one(device);
        IpcMemHandle handle;
        EXPECT_IN_PROCESS(gpu.driver->DeviceGetUuid(&uuid, device) == kSuccess);
        EXPECT_IN_PROCESS(gpu.driver->MemAlloc(&pointers[device], 100) == kSuccess);
        EXPECT_IN_PROCESS(gpu.driver->IpcGetMemHandle(&handle, pointers[device]) == kSuccess);
        ends.Send(rank, uuid);
        ends.Send(rank, handle);
      }
      ends.Meet(rank);
      return;
    }
    int count = 0;
    EXPECT_IN_PROCESS(gpu.driver->DeviceGetCount(&count) == kSuccess && count == 1);
    EXPECT_IN_PROCESS(gpu.driver->DeviceGetUuid(&uuid, 0) == kSuccess);
    for (int device = 0; device < 2; ++device) {
      const auto of = ends.Receive<Uuid>(rank);
      const auto handle = ends.Receive<IpcMemHandle>(rank);
      EXPECT_IN_PROCESS((std::memcmp(&of, &uuid, sizeof(of)) == 0) == (device == 1));
      DevicePtr pointer = 0;
      EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&pointer, handle, 1) ==
                        (device == 1 ? kSuccess : kErrorInvalidDevice));
      if (device == 0) continue;
      EXPECT_IN_PROCESS(gpu.Attribute<int>(kPointerAttributeDeviceOrdinal, pointer) == 0);
    }
    ends.Meet(rank);
  });
}

// One end of an expandable segment: several pieces of memory, one behind the other.
struct Segment {
  static constexpr int kPieces = 3;
  static constexpr size_t kBytes = kPieces * kWhole;

  explicit Segment(const Gpu& gpu) : gpu(gpu) {
    EXPECT_IN_PROCESS(gpu.driver->MemAddressReserve(&begin, kBytes, 0, 0, 0) == kSuccess);
  }
  ~Segment() {
    EXPECT_IN_PROCESS(gpu.driver->MemUnmap(begin, kBytes) == kSuccess);
    EXPECT_IN_PROCESS(gpu.driver->MemAddressFree(begin, kBytes) == kSuccess);
    spcclFakeHoldings left;
    Fake().Count(&left);
    EXPECT_IN_PROCESS(left.mappings + left.handles + left.reservations == 0);
  }
  // Takes the handle.
  void Add(AllocationHandle handle) {
    const DevicePtr at = begin + pieces++ * kWhole;
    const MemAccessDesc access = {{kMemLocationTypeDevice, 0}, kMemAccessFlagsProtReadWrite};
    EXPECT_IN_PROCESS(gpu.driver->MemMap(at, kWhole, 0, handle, 0) == kSuccess);
    EXPECT_IN_PROCESS(gpu.driver->MemSetAccess(at, kWhole, &access, 1) == kSuccess);
    EXPECT_IN_PROCESS(gpu.driver->MemRelease(handle) == kSuccess);
  }
  const Gpu& gpu;
  DevicePtr begin = 0;
  size_t pieces = 0;
};

TEST(SharingTest, MappedMemoryIsSharedByDescriptors) {
  RunPair([](int rank, Ends& ends) {
    const Gpu gpu;
    MemAllocationProp prop = {};
    prop.type = kMemAllocationTypePinned;
    prop.requested_handle_types = kMemHandleTypePosixFileDescriptor;
    prop.location = {kMemLocationTypeDevice, 0};
    Segment segment(gpu);
    for (int piece = 0; piece < Segment::kPieces; ++piece) {
      AllocationHandle handle;
      if (rank == 0) {
        EXPECT_IN_PROCESS(gpu.driver->MemCreate(&handle, kWhole, &prop, 0) == kSuccess);
        segment.Add(handle);
      } else {
        UniqueFd fd;
        ends.Receive<char>(rank, &fd);
        EXPECT_IN_PROCESS(gpu.driver->MemImportFromShareableHandle(
                              &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd.get())),
                              kMemHandleTypePosixFileDescriptor) == kSuccess);
        MemAllocationProp found;
        EXPECT_IN_PROCESS(gpu.driver->MemGetAllocationPropertiesFromHandle(&found, handle) ==
                          kSuccess);
        EXPECT_IN_PROCESS(found.location.id == 0 && found.type == kMemAllocationTypePinned);
        segment.Add(handle);
      }
    }
    const DevicePtr begin = segment.begin;
    if (rank == 0) {
      IpcMemHandle none;
      EXPECT_IN_PROCESS(gpu.Attribute<int>(kPointerAttributeIsLegacyCudaIpcCapable, begin) == 0);
      EXPECT_IN_PROCESS(gpu.driver->IpcGetMemHandle(&none, begin) == kErrorInvalidValue);
      EXPECT_IN_PROCESS(gpu.Attribute<uint64_t>(kPointerAttributeAllowedHandleTypes, begin) == 1);
      for (size_t at = 0; at < Segment::kBytes; at += kWhole) {
        // As whoever is given a pointer into somebody's segment exports it.
        DevicePtr base = 0;
        size_t bytes = 0;
        AllocationHandle handle;
        int fd = -1;
        EXPECT_IN_PROCESS(gpu.driver->MemGetAddressRange(&base, &bytes, begin + at + 77) ==
                          kSuccess);
        EXPECT_IN_PROCESS(base == begin + at && bytes == kWhole);
        EXPECT_IN_PROCESS(gpu.driver->MemRetainAllocationHandle(
                              &handle, reinterpret_cast<void*>(begin + at + 77)) == kSuccess);
        EXPECT_IN_PROCESS(gpu.driver->MemExportToShareableHandle(
                              &fd, handle, kMemHandleTypePosixFileDescriptor, 0) == kSuccess);
        EXPECT_IN_PROCESS(gpu.driver->MemRelease(handle) == kSuccess);
        ends.Send(rank, 'd', fd);
        ::close(fd);
      }
      // Over the seam between two of them.
      gpu.Set(begin + kWhole - 2, 'z', 4);
    }
    ends.Meet(rank);
    EXPECT_IN_PROCESS(gpu.Read(begin + kWhole - 2, 4) == "zzzz");
    ends.Meet(rank);
  });
}

TEST(SharingTest, AStreamWaitsForWhatAnotherProcessesStreamWrites) {
  // Two words for each direction. Mapped before the fork: both have them at the same place.
  void* const memory =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  RunPair([memory](int rank, Ends& ends) {
    const Gpu gpu;
    auto* const words = static_cast<std::atomic<uint32_t>*>(memory);
    EXPECT_IN_PROCESS(gpu.driver->MemHostRegister(
                          memory, 4096, kMemHostRegisterPortable | kMemHostRegisterDeviceMap) ==
                      kSuccess);
    DevicePtr begin = 0, block = 0;
    EXPECT_IN_PROCESS(gpu.driver->MemHostGetDevicePointer(&begin, memory, 0) == kSuccess);
    const auto write = [&](int word, uint32_t value) {
      EXPECT_IN_PROCESS(gpu.driver->StreamWriteValue32(gpu.stream, begin + word * 4, value, 0) ==
                        kSuccess);
    };
    const auto wait = [&](int word, uint32_t value) {
      EXPECT_IN_PROCESS(gpu.driver->StreamWaitValue32(gpu.stream, begin + word * 4, value,
                                                      kStreamWaitValueGeq) == kSuccess);
    };
    if (rank == 0) {
      IpcMemHandle handle;
      EXPECT_IN_PROCESS(gpu.driver->MemAlloc(&block, 1000) == kSuccess);
      EXPECT_IN_PROCESS(gpu.driver->IpcGetMemHandle(&handle, block) == kSuccess);
      ends.Send(rank, handle);
      ends.Meet(rank);  // the other waits already
      EXPECT_IN_PROCESS(words[2].load() == 0);
      for (uint32_t turn = 1; turn <= 50; ++turn) {
        EXPECT_IN_PROCESS(gpu.driver->MemsetD8Async(block, static_cast<unsigned char>(turn), 1000,
                                                    gpu.stream) == kSuccess);
        write(0, turn);
        wait(1, turn);
      }
      EXPECT_IN_PROCESS(gpu.Read(block, 1000) == std::string(1000, 51));
      ends.Meet(rank);
    } else {
      const auto handle = ends.Receive<IpcMemHandle>(rank);
      EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&block, handle, 1) == kSuccess);
      for (uint32_t turn = 1; turn <= 50; ++turn) {
        wait(0, turn);
        EXPECT_IN_PROCESS(gpu.driver->MemsetD8Async(block, static_cast<unsigned char>(turn + 1),
                                                    1000, gpu.stream) == kSuccess);
        write(2, turn);
        write(1, turn);
      }
      EXPECT_IN_PROCESS(gpu.driver->StreamQuery(gpu.stream) == kErrorNotReady);
      ends.Meet(rank);
      EXPECT_IN_PROCESS(gpu.driver->StreamSynchronize(gpu.stream) == kSuccess);
      ends.Meet(rank);
    }
  });
  ::munmap(memory, 4096);
}

TEST(SharingTest, MemoryOfADeadProcessStaysWhereItIsOpenAndLeavesNothing) {
  Ends ends;
  MultiProcess processes(2, [&](int rank, const MultiProcess::Report& report) {
    ends.Take(rank);
    const Gpu gpu;
    if (rank == 0) {
      DevicePtr mine = 0;
      IpcMemHandle handle;
      EXPECT_IN_PROCESS(gpu.driver->MemAlloc(&mine, 100) == kSuccess);
      gpu.Set(mine, 'a', 100);
      EXPECT_IN_PROCESS(gpu.driver->IpcGetMemHandle(&handle, mine) == kSuccess);
      ends.Send(rank, handle);
      ends.Receive<char>(rank);  // never comes
      return 1;
    }
    const auto handle = ends.Receive<IpcMemHandle>(rank);
    DevicePtr theirs = 0;
    EXPECT_IN_PROCESS(gpu.driver->IpcOpenMemHandle(&theirs, handle, 1) == kSuccess);
    report("open");
    ends.AwaitEnd(rank);
    EXPECT_IN_PROCESS(gpu.Read(theirs, 2) == "aa");
    EXPECT_IN_PROCESS(gpu.driver->IpcCloseMemHandle(theirs) == kSuccess);
    // The kernel closes a dead process's descriptors one by one.
    while (gpu.driver->IpcOpenMemHandle(&theirs, handle, 1) == kSuccess) {
      EXPECT_IN_PROCESS(gpu.driver->IpcCloseMemHandle(theirs) == kSuccess);
    }
    return 0;
  });
  ends = Ends();
  ASSERT_TRUE(processes.AwaitReport(1, "open", kTimeoutMs));
  processes.Kill(0, SIGKILL);
  const auto result = processes.Wait(kTimeoutMs);
  EXPECT_EQ(result[1].exit_code, 0);
}

}  // namespace
}  // namespace spccl::testing
