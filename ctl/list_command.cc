// jobs, comms, buffers.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/jobs.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

std::string Size(uint64_t bytes) {
  return HumanBytes(static_cast<double>(bytes));
}

std::string Sent(const v1::Counters& counters) {
  return Percent(static_cast<double>(counters.wire_bytes()),
                 static_cast<double>(counters.dense_bytes()));
}

// NotFound where a list is asked of a job that is not there; empty: of all.
absl::Status CheckJob(Client& client, const std::string& id) {
  if (id.empty()) return absl::OkStatus();
  SPCCL_ASSIGN_OR_RETURN(const bool known, HasJob(client, id));
  if (known) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no job ", Printable(id), " now"));
}

// Connects, calls, and prints the response as JSON or, by `print`, as a table.
template <typename Request, typename Response, typename Print>
absl::Status List(Context& context,
                  grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                  const Request& request, const Print& print) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  SPCCL_ASSIGN_OR_RETURN(const Response response, client->Call(method, request));
  if constexpr (requires { request.job_id(); }) {
    SPCCL_RETURN_IF_ERROR(CheckJob(*client, request.job_id()));
  }
  if (context.json()) {
    context.PrintJson(ToJson(response));
  } else {
    print(response);
  }
  return absl::OkStatus();
}

// "3", or "3/8" where there is a quota of 8.
std::string Of(const std::string& used, uint64_t quota, const std::string& quota_text) {
  return quota == 0 ? used : absl::StrCat(used, "/", quota_text);
}

std::string Of(uint64_t used, uint64_t quota) {
  return Of(absl::StrCat(used), quota, absl::StrCat(quota));
}

absl::Status RunJobs(Context& context) {
  return List(
      context, &v1::Control::Stub::ListJobs, v1::ListJobsRequest(),
      [&](const v1::ListJobsResponse& response) {
        Table table({"JOB", "#UID", "#WEIGHT", "#SESSIONS", "#COMMS", "#CALLED", "#CHANNELS",
                     "#BUFFERS", "#BYTES", "#OPS", "#FAILED", "#PAYLOAD", "#SENT/DENSE"});
        for (const v1::Job& job : response.jobs()) {
          const v1::Counters& sums = job.counters();
          const v1::JobShare& share = job.share();
          table.Add({job.id(), absl::StrCat(job.uid()), absl::StrCat(share.weight()),
                     absl::StrCat(job.sessions()),
                     Of(job.communicators(), share.max_communicators()),
                     Of(job.operations(), share.max_operations()),
                     share.max_channels() == 0 ? "all" : absl::StrCat(share.max_channels()),
                     absl::StrCat(job.buffers()),
                     Of(Size(job.buffer_bytes()), share.max_buffer_bytes(),
                        Size(share.max_buffer_bytes())),
                     absl::StrCat(sums.ops()), absl::StrCat(sums.failed_ops()),
                     Size(sums.payload_bytes()), Sent(sums)});
        }
        table.Print(&context.out());
      });
}

void PrintComms(const v1::ListCommsResponse& response, bool ranks, Context* context) {
  Table table({"#COMM", "JOB", "#UID", "#RANKS", "STATE", "ALGO", "RUNS", "CHOSEN BY", "CODEC",
               "#OPS", "#FAILED", "#QUEUED", "#SENT/DENSE", "#INPUT", "#RESULT"});
  for (const v1::Comm& comm : response.comms()) {
    const v1::Counters& sums = comm.counters();
    table.Add({absl::StrCat(comm.id()), comm.job_id(), absl::StrCat(comm.uid()),
               absl::StrCat(comm.ranks()), comm.state(), NameOf(comm.settings().algorithm()),
               comm.running_algorithm().empty() ? "-" : comm.running_algorithm(),
               comm.running_chooser().empty() ? "-" : comm.running_chooser(),
               CodecOf(comm.settings()), absl::StrCat(sums.ops()), absl::StrCat(sums.failed_ops()),
               absl::StrCat(comm.queued_ops()), Sent(sums),
               Sparsity(sums.last_input_nnz(), sums.last_input_elements()),
               Sparsity(sums.last_result_nnz(), sums.last_result_elements())});
  }
  table.Print(&context->out());
  for (const v1::Comm& comm : response.comms()) {
    if (comm.error().empty()) continue;
    context->out() << "communicator " << comm.id() << ": " << Printable(comm.error()) << "\n";
  }
  if (!ranks) return;
  Table members({"#COMM", "#RANK", "#PID", "#SESSION", "PHASE"});
  for (const v1::Comm& comm : response.comms()) {
    for (const v1::Rank& rank : comm.members()) {
      members.Add({absl::StrCat(comm.id()), absl::StrCat(rank.rank()), absl::StrCat(rank.pid()),
                   absl::StrCat(rank.session_id()), rank.phase()});
    }
  }
  context->out() << "\n";
  members.Print(&context->out());
}

void PrintNodes(const v1::ListCommsResponse& response, Context* context) {
  Table table({"#COMM", "NODE", "DAEMON", "ROUTE", "#ROUND TRIP", "#RATE", "RANKS"});
  bool any = false;
  for (const v1::Comm& comm : response.comms()) {
    for (const v1::CommNode& node : comm.nodes()) {
      table.Add({absl::StrCat(comm.id()), node.name(),
                 node.address().empty() ? "this one" : node.address(),
                 node.route().empty() ? "-" : node.route(),
                 node.round_trip_seconds() == 0 ? "-" : HumanSeconds(node.round_trip_seconds()),
                 HumanBitRate(node.link_bytes_per_second()), absl::StrJoin(node.ranks(), ",")});
      any = true;
    }
  }
  context->out() << "\n";
  if (any) {
    table.Print(&context->out());
  } else {
    context->out() << "no communicator is over several nodes\n";
  }
}

std::string Number(bool known, double value) {
  return known ? absl::StrFormat("%.4g", value) : "-";
}

std::string Seconds(uint64_t nanos) {
  return HumanSeconds(static_cast<double>(nanos) / 1e9);
}

std::string Counts(const google::protobuf::RepeatedPtrField<v1::NamedCount>& counts) {
  std::string text;
  for (const v1::NamedCount& count : counts) {
    absl::StrAppend(&text, text.empty() ? "" : " ", count.key(), ":", count.value());
  }
  return text.empty() ? "-" : text;
}

// "2.1ms/2.4ms": forecast, and taken.
std::string Both(bool known, uint64_t forecast_ns, uint64_t taken_ns) {
  return absl::StrCat(known ? Seconds(forecast_ns) : "-", "/", Seconds(taken_ns));
}

// The model's forecasts beside what it took.
void PrintForecasts(const v1::ListCommsResponse& response, Context* context) {
  Table table({"#COMM", "#SEND", "FORMATS", "RUNNERS-UP", "#FORECAST", "#RUNNER-UP'S",
               "#ENCODE FORECAST/TAKEN", "#WIRE FORECAST/TAKEN"});
  for (const v1::Comm& comm : response.comms()) {
    for (const v1::SendStep& step : comm.last_sends().steps()) {
      const bool known = step.has_forecast();
      const v1::Forecast& forecast = step.forecast();
      table.Add({absl::StrCat(comm.id()), absl::StrCat(step.step()), Counts(step.formats()),
                 Counts(step.runners_up()), known ? Seconds(forecast.chosen_ns()) : "-",
                 forecast.runner_up_ns() != 0 ? Seconds(forecast.runner_up_ns()) : "-",
                 Both(known, forecast.encode_ns(), step.encode_ns()),
                 Both(known, forecast.wire_ns(), step.wire_ns())});
    }
  }
  context->out() << "\n";
  table.Print(&context->out());
}

void PrintSends(const v1::ListCommsResponse& response, Context* context) {
  Table steps({"#COMM", "OPERATION", "ALGO", "WAY", "#SEND", "PHASE", "LINK", "DECIDED",
               "#SPARSITY", "#THRESHOLD", "#SENT/DENSE"});
  Table times({"#COMM", "#ENCODING", "#SENDING", "#REDUCING", "#AWAITED FRAMES", "#AWAITED ROOM"});
  for (const v1::Comm& comm : response.comms()) {
    const std::string id = absl::StrCat(comm.id());
    const v1::Sends& sends = comm.last_sends();
    for (const v1::SendStep& step : sends.steps()) {
      steps.Add({id, sends.operation(), sends.algorithm(), sends.way().empty() ? "-" : sends.way(),
                 absl::StrCat(step.step()), step.phase(), step.link(), Counts(step.decisions()),
                 Number(step.has_sparsity(), step.sparsity()),
                 Number(step.has_threshold(), step.threshold()),
                 Percent(static_cast<double>(step.wire_bytes()),
                         static_cast<double>(step.dense_bytes()))});
    }
    const v1::Counters& sums = comm.counters();
    times.Add({id, Seconds(sums.encode_ns()), Seconds(sums.send_ns()), Seconds(sums.reduce_ns()),
               Seconds(sums.receive_wait_ns()), Seconds(sums.room_wait_ns())});
  }
  context->out() << "\n";
  steps.Print(&context->out());
  PrintForecasts(response, context);
  context->out() << "\n";
  times.Print(&context->out());
}

void AddComms(Tree* tree) {
  struct Options {
    std::string job;
    bool ranks = false;
    bool nodes = false;
    bool sends = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* comms =
      tree->Add(&tree->app, "comms", "Communicators, how they run and what they sent.",
                [options](Context& context) {
                  v1::ListCommsRequest request;
                  request.set_job_id(options->job);
                  return List(context, &v1::Control::Stub::ListComms, request,
                              [&](const v1::ListCommsResponse& response) {
                                PrintComms(response, options->ranks, &context);
                                if (options->nodes) PrintNodes(response, &context);
                                if (options->sends) PrintSends(response, &context);
                              });
                });
  comms->add_option("--job", options->job, "Of this job only.")->type_name("JOB");
  comms->add_flag("--ranks", options->ranks, "Each rank's process and phase, too.");
  comms->add_flag("--nodes", options->nodes, "The nodes, how frames reach them and how fast, too.");
  comms->add_flag(
      "--sends", options->sends,
      "What the last operation's sends decided and why, what that was forecast to take and "
      "took, and where time went, too.");
}

void AddBuffers(Tree* tree) {
  const auto job = std::make_shared<std::string>();
  CLI::App* buffers =
      tree->Add(&tree->app, "buffers", "Registered buffers, and how the daemon reaches them.",
                [job](Context& context) {
                  v1::ListBuffersRequest request;
                  request.set_job_id(*job);
                  return List(context, &v1::Control::Stub::ListBuffers, request,
                              [&](const v1::ListBuffersResponse& response) {
                                Table table({"#BUFFER", "JOB", "#UID", "#PID", "#SESSION", "KIND",
                                             "#BYTES", "#USES", "GPU"});
                                for (const v1::Buffer& buffer : response.buffers()) {
                                  table.Add({absl::StrCat(buffer.id()), buffer.job_id(),
                                             absl::StrCat(buffer.uid()), absl::StrCat(buffer.pid()),
                                             absl::StrCat(buffer.session_id()), buffer.kind(),
                                             Size(buffer.size_bytes()), absl::StrCat(buffer.uses()),
                                             buffer.gpu().empty() ? "-" : buffer.gpu()});
                                }
                                table.Print(&context.out());
                              });
                });
  buffers->add_option("--job", *job, "Of this job only.")->type_name("JOB");
}

}  // namespace

void AddListCommands(Tree* tree) {
  tree->Add(&tree->app, "jobs", "Jobs, and what they hold and did.", RunJobs);
  AddComms(tree);
  AddBuffers(tree);
}

}  // namespace spccl::ctl
