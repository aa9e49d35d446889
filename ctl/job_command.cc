// job register, job end: for the batch system's prolog and epilog.
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

struct JobOptions {
  uint64_t number = 0, uid = 0;
  std::string cgroup;
};

absl::Status CheckUid(uint64_t uid) {
  if (uid < UINT32_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError("--uid: not a user's number");
}

absl::Status RunRegister(Context& context, const JobOptions& options) {
  SPCCL_RETURN_IF_ERROR(CheckUid(options.uid));
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::RegisterJobRequest request;
  request.set_number(options.number);
  request.set_uid(static_cast<uint32_t>(options.uid));
  request.set_cgroup(options.cgroup);
  SPCCL_ASSIGN_OR_RETURN(const v1::RegisterJobResponse response,
                         client->Call(&v1::Control::Stub::RegisterJob, request));
  if (context.json()) {
    context.PrintJson(ToJson(response));
  } else {
    context.out() << "registered " << Printable(response.job_id()) << "\n";
  }
  return absl::OkStatus();
}

absl::Status RunEnd(Context& context, const JobOptions& options) {
  SPCCL_RETURN_IF_ERROR(CheckUid(options.uid));
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::EndJobRequest request;
  request.set_number(options.number);
  request.set_uid(static_cast<uint32_t>(options.uid));
  SPCCL_ASSIGN_OR_RETURN(const v1::EndJobResponse response,
                         client->Call(&v1::Control::Stub::EndJob, request));
  if (context.json()) {
    context.PrintJson(ToJson(response));
    return absl::OkStatus();
  }
  context.out() << "ended " << Printable(response.job_id())
                << (response.was_registered() ? "" : " (it was not registered)") << ": closed "
                << response.sessions() << " sessions and " << response.communicators()
                << " communicators with "
                << HumanBytes(static_cast<double>(response.buffer_bytes())) << " of buffers; "
                << response.registered_left() << " jobs and " << response.sessions_left()
                << " sessions are left\n";
  return absl::OkStatus();
}

void AddIdentity(CLI::App* app, const std::shared_ptr<JobOptions>& options) {
  AddNumberOption(
      app, "--id", [options](uint64_t number) { options->number = number; },
      "The batch system's number of the job.")
      ->required();
  AddNumberOption(
      app, "--uid", [options](uint64_t uid) { options->uid = uid; }, "The job's user, by number.")
      ->required();
}

}  // namespace

void AddJobCommands(Tree* tree) {
  CLI::App* job = tree->app.add_subcommand("job", "Jobs of the batch system; administrators only.");
  job->require_subcommand(1);
  const auto options = std::make_shared<JobOptions>();
  CLI::App* add =
      tree->Add(job, "register", "What the kernel says belongs to the job is its own from now on.",
                [options](Context& context) { return RunRegister(context, *options); });
  AddIdentity(add, options);
  add->add_option("--cgroup", options->cgroup, "Path of the job's control group, if known.")
      ->type_name("PATH");
  CLI::App* end = tree->Add(job, "end", "Take that back, and close what the job has left.",
                            [options](Context& context) { return RunEnd(context, *options); });
  AddIdentity(end, options);
}

}  // namespace spccl::ctl
