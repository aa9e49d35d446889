// What tests of GPU memory have: another process that exports some, and a daemon in this one.
#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "daemon/gpu_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "proto/shm/socket.h"
#include "tests/daemon/expect_reply.h"
#include "tests/daemon/gate_hooks.h"
#include "tests/support/daemon_env.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {

using ::spccl::testing::DaemonEnv;
using ::spccl::testing::Fake;
using ::spccl::testing::GpuProgram;
using ::spccl::testing::IsOk;
using ::spccl::testing::LoadFakeDriver;
using ::spccl::testing::RawClient;

inline constexpr size_t kBlockBytes = 1 << 20;

// What the other process has.
struct Exported {
  cuda::Uuid gpu;
  cuda::IpcMemHandle handle;
  uint64_t base;
  uint64_t piece_bytes;
};
inline constexpr int kPieces = 2;

inline int ExportUntilClosed(int socket) {
  const GpuProgram gpu(LoadFakeDriver());
  const cuda::Driver& driver = gpu.driver();
  Exported exported{};
  gpu.Must(driver.DeviceGetUuid(&exported.gpu, 0));
  exported.base = reinterpret_cast<uint64_t>(gpu.Allocate(kBlockBytes));
  gpu.Must(driver.IpcGetMemHandle(&exported.handle, exported.base));
  cuda::MemAllocationProp prop{};
  prop.type = cuda::kMemAllocationTypePinned;
  prop.requested_handle_types = cuda::kMemHandleTypePosixFileDescriptor;
  prop.location = {.type = cuda::kMemLocationTypeDevice, .id = 0};
  size_t granularity = 0;
  gpu.Must(
      driver.MemGetAllocationGranularity(&granularity, &prop, cuda::kMemAllocGranularityMinimum));
  exported.piece_bytes = granularity;
  std::vector<int> fds;
  for (int piece = 0; piece < kPieces; ++piece) {
    cuda::AllocationHandle handle;
    gpu.Must(driver.MemCreate(&handle, granularity, &prop, 0));
    gpu.Must(driver.MemExportToShareableHandle(&fds.emplace_back(), handle,
                                               cuda::kMemHandleTypePosixFileDescriptor, 0));
  }
  SPCCL_CHECK(shm::SendPacket(socket, &exported, sizeof exported, fds).ok());
  char nothing;
  return ::read(socket, &nothing, 1) == 0 ? 0 : 1;
}

class GpuMemoryTest : public ::testing::Test {
 protected:
  // While this process has no threads and no driver.
  static void SetUpTestSuite() {
    int ends[2];
    SPCCL_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    // What clients may send is no misuse of ours.
    ::setenv("SPCCL_FAKE_CUDA_MISUSE", "error", 1);
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      std::_Exit(ExportUntilClosed(ends[1]));
    }
    ::close(ends[1]);
    socket_ = new UniqueFd(ends[0]);
    auto packet = shm::ReceivePacket(ends[0], &exported_, sizeof exported_);
    SPCCL_CHECK(packet.ok() && packet->fds.size() == kPieces);
    descriptors_ = new std::vector<UniqueFd>(std::move(packet->fds));
  }
  static void TearDownTestSuite() {
    delete std::exchange(descriptors_, nullptr);
    delete std::exchange(socket_, nullptr);
    ::waitpid(child_, nullptr, 0);
  }

  GpuMemoryTest() {
    auto gpus = runtime::Gpus::Open(
        {.driver_library = SPCCL_FAKE_CUDA_LIBRARY, .codec_library = SPCCL_FAKE_DEVICE_LIBRARY});
    SPCCL_CHECK(gpus.ok());
    gpus_ = *std::move(gpus);
    CoreHooks hooks = GateHooks(std::make_shared<Gate>());
    hooks.gpus = gpus_.get();
    env_ = std::make_unique<DaemonEnv>(CoreOptions{}, &hooks);
    Fake().Count(&before_);
  }
  // Nothing that was opened stays so.
  ~GpuMemoryTest() override {
    env_.reset();
    spcclFakeHoldings after;
    Fake().Count(&after);
    EXPECT_EQ(after.imports, before_.imports);
    EXPECT_EQ(after.mappings, before_.mappings);
    EXPECT_EQ(after.host, before_.host);
    EXPECT_EQ(after.reservations, before_.reservations);
    gpus_.reset();
  }

  static shm::Request IpcRequest(RawClient& client) {
    shm::Request request = client.Make(shm::RequestType::kRegisterCuda);
    auto& body = request.register_cuda;
    std::memcpy(body.gpu, exported_.gpu.bytes, sizeof body.gpu);
    body.address = exported_.base;
    body.size_bytes = kBlockBytes;
    body.driver_buffer_id = 5;
    body.kind = shm::CudaHandleKind::kIpc;
    body.pieces = 1;
    std::memcpy(body.ipc_handle, exported_.handle.reserved, sizeof body.ipc_handle);
    return request;
  }
  static shm::Request DescriptorRequest(RawClient& client) {
    shm::Request request = IpcRequest(client);
    auto& body = request.register_cuda;
    body.size_bytes = kPieces * exported_.piece_bytes;
    body.driver_buffer_id = 6;
    body.kind = shm::CudaHandleKind::kDescriptors;
    body.pieces = kPieces;
    for (int piece = 0; piece < kPieces; ++piece) {
      body.piece_units[piece] =
          static_cast<uint32_t>(exported_.piece_bytes / shm::kCudaPieceUnitBytes);
    }
    return request;
  }
  static std::vector<int> Descriptors() {
    std::vector<int> fds;
    for (const UniqueFd& fd : *descriptors_) fds.push_back(fd.get());
    return fds;
  }
  std::vector<BufferInfo> Buffers() {
    auto snapshot = env_->core().GetSnapshot();
    EXPECT_THAT(snapshot, IsOk());
    return snapshot->buffers;
  }

  static inline pid_t child_ = -1;
  static inline UniqueFd* socket_ = nullptr;
  static inline std::vector<UniqueFd>* descriptors_ = nullptr;
  static inline Exported exported_;

  std::unique_ptr<runtime::Gpus> gpus_;
  std::unique_ptr<DaemonEnv> env_;
  spcclFakeHoldings before_;
};

}  // namespace spccl::daemon
