// job register, job end: for the batch system's prolog and epilog. job set, job reset: what a job
// gets and may take.
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/jobs.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

struct JobOptions {
  uint64_t number = 0, uid = 0;
  std::string cgroup;
  v1::JobShare share;
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
  *request.mutable_share() = options.share;
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
                << Counted(response.sessions(), "session") << " and "
                << Counted(response.communicators(), "communicator") << " with "
                << HumanBytes(static_cast<double>(response.buffer_bytes())) << " of buffers; "
                << Counted(response.registered_left(), "job") << " and "
                << Counted(response.sessions_left(), "session") << " left\n";
  return absl::OkStatus();
}

std::string Quota(uint64_t quota) {
  return quota == 0 ? "-" : absl::StrCat(quota);
}

template <typename Response>
absl::Status Report(const Response& response, const std::string& job, Client& client,
                    Context* context) {
  if (context->json()) {
    context->PrintJson(ToJson(response));
    return absl::OkStatus();
  }
  SPCCL_ASSIGN_OR_RETURN(const bool known, HasJob(client, job));
  const v1::JobShare& share = response.resolved();
  context->out() << "job " << Printable(job) << ": in force for what comes next\n";
  Table table({"#WEIGHT", "#MAX BUFFER BYTES", "#MAX COMMS", "#MAX OPERATIONS", "#MAX CHANNELS"});
  table.Add({absl::StrCat(share.weight()),
             share.max_buffer_bytes() == 0
                 ? "-"
                 : HumanBytes(static_cast<double>(share.max_buffer_bytes())),
             Quota(share.max_communicators()), Quota(share.max_operations()),
             Quota(share.max_channels())});
  table.Print(&context->out());
  if (!known) context->out() << "(there is no such job now: this is for when it comes)\n";
  return absl::OkStatus();
}

absl::Status RunSet(Context& context, const std::string& job, const v1::JobShare& share) {
  if (share.ByteSizeLong() == 0) {
    return absl::InvalidArgumentError(
        "nothing to set: name --weight, --max-buffer-bytes, --max-communicators, "
        "--max-operations or --max-channels");
  }
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::SetJobShareRequest request;
  request.set_job_id(job);
  *request.mutable_share() = share;
  SPCCL_ASSIGN_OR_RETURN(const v1::SetJobShareResponse response,
                         client->Call(&v1::Control::Stub::SetJobShare, request));
  return Report(response, job, *client, &context);
}

absl::Status RunReset(Context& context, const std::string& job) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::ResetJobShareRequest request;
  request.set_job_id(job);
  SPCCL_ASSIGN_OR_RETURN(const v1::ResetJobShareResponse response,
                         client->Call(&v1::Control::Stub::ResetJobShare, request));
  return Report(response, job, *client, &context);
}

// An option of a field of 32 bits: a number that is too large for it must not seem small.
void AddNarrowOption(CLI::App* app, const std::string& name, v1::JobShare* share,
                     void (v1::JobShare::*set)(uint32_t), const std::string& help) {
  AddNumberOption(
      app, name, [=](uint64_t value) { (share->*set)(static_cast<uint32_t>(value)); }, help,
      UINT32_MAX);
}

void AddShare(CLI::App* app, v1::JobShare* share) {
  AddNarrowOption(app, "--weight", share, &v1::JobShare::set_weight,
                  "Share against the other jobs' weights, from 1 to 1000.");
  AddBytesOption(
      app, "--max-buffer-bytes", [share](uint64_t bytes) { share->set_max_buffer_bytes(bytes); },
      "Most registered bytes, as 64GiB; 0: no quota.");
  AddNarrowOption(app, "--max-communicators", share, &v1::JobShare::set_max_communicators,
                  "Most communicators; 0: no quota.");
  AddNarrowOption(app, "--max-operations", share, &v1::JobShare::set_max_operations,
                  "Most operations that are called and not ended; 0: no quota.");
  AddNarrowOption(app, "--max-channels", share, &v1::JobShare::set_max_channels,
                  "Most channel threads at once; 0: all.");
}

void AddShareCommands(Tree* tree, CLI::App* job) {
  struct Options {
    std::string job;
    v1::JobShare share;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* set = tree->Add(
      job, "set", "What the job gets and may take, from now on.",
      [options](Context& context) { return RunSet(context, options->job, options->share); });
  set->add_option("JOB", options->job, "As `jobs` shows it.")->type_name("JOB")->required();
  AddShare(set, &options->share);
  CLI::App* reset =
      tree->Add(job, "reset", "Forget that: the configuration's [jobs] holds.",
                [options](Context& context) { return RunReset(context, options->job); });
  reset->add_option("JOB", options->job, "As `jobs` shows it.")->type_name("JOB")->required();
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
  CLI::App* job = tree->app.add_subcommand("job", "Jobs, as administrators see to them.");
  job->require_subcommand(1);
  const auto options = std::make_shared<JobOptions>();
  CLI::App* add =
      tree->Add(job, "register", "What the kernel says belongs to the job is its own from now on.",
                [options](Context& context) { return RunRegister(context, *options); });
  AddIdentity(add, options);
  add->add_option("--cgroup", options->cgroup, "Path of the job's control group, if known.")
      ->type_name("PATH");
  AddShare(add, &options->share);
  CLI::App* end = tree->Add(job, "end", "Take that back, and close what the job has left.",
                            [options](Context& context) { return RunEnd(context, *options); });
  AddIdentity(end, options);
  AddShareCommands(tree, job);
}

}  // namespace spccl::ctl
