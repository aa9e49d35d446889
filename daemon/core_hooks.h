// What the core asks of the rest of the daemon; tests may put their own in its place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/policy/plan_table.h"
#include "collective/policy/settings.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/task.h"
#include "daemon/job_share.h"

namespace spccl::daemon {

class JobTable;
class SettingsStore;
struct Peer;

struct CoreHooks {
  // What an operation of a communicator runs with, now; `wishes` are its callers'.
  std::function<policy::Settings(const std::string& job_id, uint64_t comm_id,
                                 const policy::Overrides& wishes)>
      settings;
  // Another one whenever settings() may return something else.
  std::function<uint64_t()> settings_version;
  // What has been learned of plans between nodes, now; null: nothing.
  std::function<std::shared_ptr<const policy::PlanModel>()> plan_model;
  // A caller's word on its communicator: in force from the next operation on.
  std::function<absl::Status(uint64_t comm_id, const policy::Overrides& overrides)> change_settings;
  // The job that the batch system has registered and the client belongs to; empty: none.
  std::function<std::string(const Peer& peer)> registered_job;
  // Whether that job is registered still.
  std::function<bool(const std::string& job_id)> is_registered;
  // What a job gets and may take, now.
  std::function<JobShare(const std::string& job_id)> share;
  // A communicator is gone.
  std::function<void(uint64_t comm_id)> forget;
  // As runtime::MakeTask.
  std::function<absl::StatusOr<std::unique_ptr<runtime::Task>>(
      const OpDesc& op, std::span<const runtime::RankBuffers> ranks,
      const policy::Settings& settings, runtime::DoneFn done)>
      make_task;
  // The node's GPUs, which outlive the core; null: there are none, or they are not used.
  runtime::Gpus* gpus = nullptr;
  // As runtime::MakeGpuTask, on them, for an operation of that communicator.
  std::function<absl::StatusOr<std::unique_ptr<runtime::Task>>(
      uint64_t comm_id, const OpDesc& op, std::span<const runtime::RankBuffers> ranks,
      const policy::Settings& settings, runtime::DoneFn done)>
      make_gpu_task;
};

// The daemon's own: settings from the store, jobs from the table (both borrowed), tasks of the
// runtime. Callers' wishes win over what the job and the whole say, and what was said last of the
// communicator itself, by an operator or by a caller, over them.
// `gpus` is borrowed too; null: none are used. `multipath`: the share of large all-reduces over
// several of them that goes over the host, 0: none, empty: by measurement (docs/adr/0022).
CoreHooks HooksOf(SettingsStore* store, JobTable* jobs, runtime::Gpus* gpus = nullptr,
                  std::optional<double> multipath = 0);

}  // namespace spccl::daemon
