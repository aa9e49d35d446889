// trace, explain.
#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/read_file.h"
#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/flight_explain.h"
#include "ctl/flight_summary.h"
#include "ctl/flight_trace.h"
#include "ctl/render.h"
#include "proto/spccl/v1/flight_file.h"

namespace spccl::ctl {
namespace {

struct RecordSource {
  std::optional<uint64_t> comm;  // empty: the only one that there is
  std::vector<std::string> files;
};

void AddSource(CLI::App* app, const std::shared_ptr<RecordSource>& source) {
  AddNumberOption(
      app, "COMM", [source](uint64_t comm) { source->comm = comm; },
      "Its number, as `comms` shows it; not needed where there is only one, or with --file.");
  app->add_option(
         "--file", source->files,
         "A record that a daemon has kept, in place of asking one. May be repeated, for the "
         "records of several nodes.")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

// NotFound: it is another communicator's than `comm`.
absl::StatusOr<v1::FlightRecord> ReadRecord(const std::string& path, std::optional<uint64_t> comm) {
  SPCCL_ASSIGN_OR_RETURN(const std::string content, ReadRegularFile(path, flight::kMostReadBytes));
  absl::StatusOr<v1::FlightRecord> record = flight::ParseFile(content);
  if (!record.ok()) {  // whoever named the file is wrong, not the daemon
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", record.status().message()));
  }
  if (comm.has_value() && *comm != record->comm_id()) {
    return absl::NotFoundError(absl::StrCat(path, ": a record of communicator ", record->comm_id(),
                                            ", expected one of ", *comm));
  }
  return record;
}

absl::StatusOr<uint64_t> OnlyComm(Client& client) {
  SPCCL_ASSIGN_OR_RETURN(const v1::ListCommsResponse response,
                         client.Call(&v1::Control::Stub::ListComms, v1::ListCommsRequest()));
  if (response.comms_size() == 1) return response.comms(0).id();
  if (response.comms_size() == 0) return absl::NotFoundError("there is no communicator");
  return absl::InvalidArgumentError(absl::StrCat("there are ", response.comms_size(),
                                                 " communicators: name one, as `comms` shows it"));
}

absl::StatusOr<v1::FlightRecord> Ask(Client& client, uint64_t comm, bool spans) {
  v1::GetFlightRequest request;
  request.set_comm_id(comm);
  request.set_spans(spans);
  SPCCL_ASSIGN_OR_RETURN(v1::GetFlightResponse response,
                         client.Call(&v1::Control::Stub::GetFlight, request));
  return std::move(*response.mutable_record());
}

// The records that a trace is made of.
absl::StatusOr<std::vector<v1::FlightRecord>> Gather(const Context& context,
                                                     const RecordSource& source) {
  std::vector<v1::FlightRecord> records;
  for (const std::string& path : source.files) {
    SPCCL_ASSIGN_OR_RETURN(v1::FlightRecord record, ReadRecord(path, source.comm));
    records.push_back(std::move(record));
  }
  if (!records.empty()) return records;
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  uint64_t comm = source.comm.value_or(0);
  if (!source.comm) {
    SPCCL_ASSIGN_OR_RETURN(comm, OnlyComm(*client));
  }
  SPCCL_ASSIGN_OR_RETURN(v1::FlightRecord record, Ask(*client, comm, /*spans=*/true));
  records.push_back(std::move(record));
  return records;
}

struct TraceOptions {
  std::string out;
  bool summary = false;
};

absl::Status Summarize(Context& context, const std::vector<v1::FlightRecord>& records) {
  if (!context.json()) {
    for (const v1::FlightRecord& record : records) context.out() << SummaryOf(record);
    return absl::OkStatus();
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (v1::FlightRecord record : records) {
    record.clear_spans();
    all.push_back(ToJson(record));
  }
  context.PrintJson({{"records", std::move(all)}});
  return absl::OkStatus();
}

absl::Status WriteTo(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  if (errno == EISDIR) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a file"));
  }
  return ErrnoStatus(errno, absl::StrCat("write ", path));
}

absl::Status RunTrace(Context& context, const RecordSource& source, const TraceOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const std::vector<v1::FlightRecord> records, Gather(context, source));
  if (options.summary) return Summarize(context, records);
  nlohmann::ordered_json trace = TraceOf(records);
  if (options.out.empty()) {
    if (context.json()) {
      context.PrintJson(std::move(trace));  // a trace still: viewers pass over the schema
    } else {
      context.out() << trace.dump() << "\n";
    }
    return absl::OkStatus();
  }
  const size_t events = trace["traceEvents"].size();
  SPCCL_RETURN_IF_ERROR(WriteTo(options.out, trace.dump()));
  if (context.json()) {
    context.PrintJson({{"file", options.out}, {"events", events}});
  } else {
    context.out() << Counted(events, "event") << " in " << options.out
                  << ": open it in https://ui.perfetto.dev\n";
  }
  return absl::OkStatus();
}

struct ExplainOptions {
  int64_t wait_ns = 500'000'000;
};

absl::Status RunExplain(Context& context, const RecordSource& source,
                        const ExplainOptions& options) {
  std::vector<Explanation> explanations;
  for (const std::string& path : source.files) {
    SPCCL_ASSIGN_OR_RETURN(const v1::FlightRecord record, ReadRecord(path, source.comm));
    explanations.push_back(Explain(record, record));
  }
  if (source.files.empty()) {
    SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                           Client::Connect(context.options()));
    uint64_t comm = source.comm.value_or(0);
    if (!source.comm) {
      SPCCL_ASSIGN_OR_RETURN(comm, OnlyComm(*client));
    }
    SPCCL_ASSIGN_OR_RETURN(const v1::FlightRecord first, Ask(*client, comm, /*spans=*/false));
    if (first.reason().empty())
      std::this_thread::sleep_for(std::chrono::nanoseconds(options.wait_ns));
    SPCCL_ASSIGN_OR_RETURN(const v1::FlightRecord second, Ask(*client, comm, /*spans=*/false));
    explanations.push_back(Explain(first, second));
  }
  for (const Explanation& explanation : explanations) {
    if (context.json()) {
      context.PrintJson(explanation.Json());
    } else {
      context.out() << explanation.Text();
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddFlightCommands(Tree* tree) {
  const auto source = std::make_shared<RecordSource>();
  const auto trace_options = std::make_shared<TraceOptions>();
  CLI::App* trace = tree->Add(
      &tree->app, "trace",
      "A communicator's last operations, rank by rank and thread by thread, for Perfetto.",
      [source, trace_options](Context& context) {
        return RunTrace(context, *source, *trace_options);
      });
  AddSource(trace, source);
  CLI::Option* out =
      trace->add_option("--out", trace_options->out, "Write the trace there, not to the output.")
          ->type_name("FILE");
  trace->add_flag("--summary", trace_options->summary, "A page of text in place of a trace.")
      ->excludes(out);

  const auto explain_source = std::make_shared<RecordSource>();
  const auto explain_options = std::make_shared<ExplainOptions>();
  CLI::App* explain = tree->Add(&tree->app, "explain",
                                "Why a communicator does not go on, or how it does: in words.",
                                [explain_source, explain_options](Context& context) {
                                  return RunExplain(context, *explain_source, *explain_options);
                                });
  AddSource(explain, explain_source);
  AddDurationOption(explain, "--wait", &explain_options->wait_ns,
                    "Time until the second look; 500ms without.");
}

}  // namespace spccl::ctl
