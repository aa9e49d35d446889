// events, drain, abort.
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

void PrintEvent(const v1::StreamEventsResponse& response, Context* context) {
  if (context->json()) {
    context->PrintJsonOfStream(ToJson(response));
    return;
  }
  const v1::Event& event = response.event();
  if (response.lost() > 0) context->out() << "(" << Counted(response.lost(), "event") << " lost)\n";
  context->out() << TimeText(event.unix_nanos()) << " #" << event.sequence() << " "
                 << Printable(event.kind());
  if (!event.job_id().empty()) context->out() << " job=" << Printable(event.job_id());
  if (event.comm_id() != 0) context->out() << " comm=" << event.comm_id();
  context->out() << " uid=" << event.uid() << ": " << Printable(event.message()) << std::endl;
}

struct EventOptions {
  uint64_t since = 0;
  bool follow = false;
};

absl::Status RunEvents(Context& context, const EventOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::StreamEventsRequest request;
  request.set_follow(options.follow);
  // Without --follow and --since: all that is kept.
  request.set_from_sequence(options.since > 0 ? options.since : options.follow ? 0 : 1);
  grpc::ClientContext call;
  StreamGuard guard(&call, context.options().deadline_ns);
  const auto reader = client->stub()->StreamEvents(&call, request);
  reader->WaitForInitialMetadata();
  if (options.follow) guard.Disarm();  // nothing need happen
  v1::StreamEventsResponse response;
  while (reader->Read(&response)) {
    PrintEvent(response, &context);
    guard.Rearm();
    if (!context.out()) {  // nobody reads any more
      call.TryCancel();
      return absl::OkStatus();
    }
  }
  const grpc::Status status = reader->Finish();
  if (guard.expired()) {
    return client->Check(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""));
  }
  return client->Check(status);
}

void AddEvents(Tree* tree) {
  const auto options = std::make_shared<EventOptions>();
  CLI::App* events =
      tree->Add(&tree->app, "events", "What has happened, as far back as the daemon keeps it.",
                [options](Context& context) { return RunEvents(context, *options); });
  events->add_flag("--follow", options->follow,
                   "What happens from now on (or from --since), until interrupted.");
  AddNumberOption(
      events, "--since", [options](uint64_t since) { options->since = since; },
      "From this event's number on.");
}

void AddDrain(Tree* tree) {
  const auto undo = std::make_shared<bool>(false);
  CLI::App* drain =
      tree->Add(&tree->app, "drain", "Refuse new sessions and communicators; what runs goes on.",
                [undo](Context& context) -> absl::Status {
                  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                                         Client::Connect(context.options()));
                  v1::DrainRequest request;
                  request.set_undo(*undo);
                  SPCCL_ASSIGN_OR_RETURN(const v1::DrainResponse response,
                                         client->Call(&v1::Control::Stub::Drain, request));
                  if (context.json()) {
                    context.PrintJson(ToJson(response));
                  } else {
                    context.out() << (response.draining() ? "draining\n" : "accepting\n");
                  }
                  return absl::OkStatus();
                });
  drain->add_flag("--undo", *undo, "Accept them again.");
}

// As control.proto says; more than 64 KiB would not even get to the daemon.
constexpr size_t kMostReasonBytes = 200;

void AddAbort(Tree* tree) {
  struct Options {
    uint64_t comm = 0;
    std::string reason;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* abort =
      tree->Add(&tree->app, "abort", "Fail a communicator: its ranks get an error.",
                [options](Context& context) -> absl::Status {
                  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                                         Client::Connect(context.options()));
                  v1::AbortCommRequest request;
                  request.set_comm_id(options->comm);
                  request.set_reason(options->reason);
                  SPCCL_ASSIGN_OR_RETURN(const v1::AbortCommResponse response,
                                         client->Call(&v1::Control::Stub::AbortComm, request));
                  if (context.json()) {
                    context.PrintJson(ToJson(response));
                  } else {
                    context.out() << "communicator " << options->comm << " aborted\n";
                  }
                  return absl::OkStatus();
                });
  AddNumberOption(
      abort, "COMM", [options](uint64_t comm) { options->comm = comm; },
      "Its number, as `comms` shows it.")
      ->required();
  abort->add_option("--reason", options->reason, "Why, for the ranks' error message.")
      ->type_name("TEXT")
      ->check([](const std::string& text) {
        return text.size() <= kMostReasonBytes
                   ? ""
                   : absl::StrCat(text.size(), " bytes, at most ", kMostReasonBytes, " are taken");
      });
}

}  // namespace

void AddSteerCommands(Tree* tree) {
  AddEvents(tree);
  AddDrain(tree);
  AddAbort(tree);
}

}  // namespace spccl::ctl
