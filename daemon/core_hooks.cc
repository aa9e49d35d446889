#include "daemon/core_hooks.h"

#include <utility>

#include "collective/runtime/cuda/make_gpu_task.h"
#include "collective/runtime/make_task.h"
#include "daemon/job_table.h"
#include "daemon/settings_store.h"

namespace spccl::daemon {

CoreHooks HooksOf(SettingsStore* store, JobTable* jobs, runtime::Gpus* gpus,
                  std::optional<double> multipath) {
  CoreHooks hooks;
  hooks.settings = [store](const std::string& job_id, uint64_t comm_id,
                           const policy::Overrides& wishes) {
    const policy::Settings around = store->Resolve(job_id, comm_id);
    return policy::Apply(policy::Apply(around, wishes), store->Get(CommScope{comm_id}));
  };
  hooks.settings_version = [store] { return store->version(); };
  hooks.plan_model = [store] { return store->models().Current(); };
  hooks.change_settings = [store](uint64_t comm_id, const policy::Overrides& overrides) {
    return store->Set(CommScope{comm_id}, overrides);
  };
  hooks.registered_job = [jobs](const Peer& peer) {
    const std::optional<RegisteredJob> job = jobs->Find(peer);
    return job ? job->id() : std::string();
  };
  hooks.is_registered = [jobs](const std::string& job_id) { return jobs->Has(job_id); };
  hooks.share = [store](const std::string& job_id) { return store->ShareOf(job_id); };
  hooks.forget = [store](uint64_t comm_id) { store->Forget(comm_id); };
  hooks.make_task = [](const OpDesc& op, std::span<const runtime::RankBuffers> ranks,
                       const policy::Settings& settings, runtime::DoneFn done) {
    return runtime::MakeTask(op, ranks, settings, runtime::TaskOptions{}, std::move(done));
  };
  hooks.gpus = gpus;
  if (gpus == nullptr) return hooks;
  runtime::GpuTaskOptions options;
  if (multipath != 0) {
    options.paths =
        std::make_shared<runtime::PathRates>(runtime::PathRates::Options{.share = multipath});
  }
  hooks.make_gpu_task = [gpus, options](uint64_t comm_id, const OpDesc& op,
                                        std::span<const runtime::RankBuffers> ranks,
                                        const policy::Settings& settings, runtime::DoneFn done) {
    runtime::GpuTaskOptions its = options;
    its.communicator = comm_id;
    return runtime::MakeGpuTask(*gpus, op, ranks, settings, its, std::move(done));
  };
  return hooks;
}

}  // namespace spccl::daemon
