// spccl under test: one rank's communicator and buffers, through the public C API only.
#pragma once

#include <spccl/spccl.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/perf/control_client.h"
#include "bench/perf/gpu.h"
#include "bench/perf/measure.h"
#include "bench/support/private_daemon.h"
#include "bench/support/rank_team.h"

namespace spccl::bench {

class SpcclBackend : public Backend {
 public:
  // Joins the team's communicator, on the daemon that SPCCL_RUNTIME_DIR names. Collective.
  static absl::StatusOr<std::unique_ptr<SpcclBackend>> Create(RankTeam& team,
                                                              const Options& options,
                                                              const Daemons& daemons);
  ~SpcclBackend() override;
  SpcclBackend(const SpcclBackend&) = delete;
  SpcclBackend& operator=(const SpcclBackend&) = delete;

  absl::Status Open(const Problem& problem) override;
  void* send() override { return InHost(send_); }
  void* recv() override { return InHost(recv_); }
  absl::Status ToDevice() override;
  absl::Status FromDevice() override;
  std::string device_name() const override { return gpu_ == nullptr ? "" : gpu_->name(); }
  int device_choices() const override { return gpu_ == nullptr ? 1 : gpu_->choices(); }
  bool overwrites_input() const override;
  absl::Status Run() override;
  absl::Status Apply(const Setting& setting) override;
  absl::StatusOr<Traffic> ReadTraffic() override;
  absl::StatusOr<DeviceMemoryUse> ReadMemoryUse() override;

 private:
  // A buffer of one of the kinds that --buffers names. Owned; freed by Release().
  struct Buffer {
    void* data = nullptr;
    void* handle = nullptr;             // of a registered one
    std::unique_ptr<GpuBuffer> on_gpu;  // whose device memory `data` is
  };

  SpcclBackend(int rank, const Options& options) : rank_(rank), options_(options) {}
  absl::StatusOr<Buffer> Allocate(uint64_t bytes);
  absl::StatusOr<Buffer> AllocateOnGpu(uint64_t bytes);
  // Of an address within the buffers: the one in the host's copy; itself, where there is none.
  void* InHost(void* address) const;
  absl::Status Place();
  absl::Status Call();
  void Release(Buffer& buffer);
  absl::Status ToStatus(spcclResult_t result, const char* what) const;

  const int rank_;
  const Options& options_;
  std::unique_ptr<Gpu> gpu_;  // null: buffers are in the host's memory
  spcclComm_t comm_ = nullptr;
  Problem problem_;
  Buffer buffers_[2];  // in place only the first is used
  void* send_ = nullptr;
  void* recv_ = nullptr;
  std::unique_ptr<GpuGraph> graph_;     // of the problem's call; null: each is called anew
  std::vector<ControlClient> daemons_;  // on rank 0: one a daemon
};

}  // namespace spccl::bench
