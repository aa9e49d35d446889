// top: what the daemon does, live.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr char kClearScreen[] = "\x1b[H\x1b[2J";

// Of one communicator, between two snapshots.
struct Row {
  const v1::Comm* comm;
  double ops_per_s = 0;
  double payload_bytes_per_s = 0;
  double busy = 0;          // share of the time with an operation in progress
  uint64_t wire_bytes = 0;  // sent, and what it had been dense
  uint64_t dense_bytes = 0;
};

std::vector<Row> Compare(const v1::Telemetry& before, const v1::Telemetry& now) {
  const double seconds =
      static_cast<double>(now.monotonic_nanos() - before.monotonic_nanos()) / 1e9;
  std::map<uint64_t, const v1::Counters*> earlier;
  for (const v1::Comm& comm : before.comms()) earlier[comm.id()] = &comm.counters();
  static const v1::Counters kNone;
  std::vector<Row> rows;
  for (const v1::Comm& comm : now.comms()) {
    const auto found = earlier.find(comm.id());
    const v1::Counters& from = found == earlier.end() ? kNone : *found->second;
    const v1::Counters& to = comm.counters();
    rows.push_back({.comm = &comm,
                    .ops_per_s = static_cast<double>(to.ops() - from.ops()) / seconds,
                    .payload_bytes_per_s =
                        static_cast<double>(to.payload_bytes() - from.payload_bytes()) / seconds,
                    .busy = static_cast<double>(to.busy_ns() - from.busy_ns()) / 1e9 / seconds,
                    .wire_bytes = to.wire_bytes() - from.wire_bytes(),
                    .dense_bytes = to.dense_bytes() - from.dense_bytes()});
  }
  return rows;
}

// Of the last operation's sends, the most frequent first: "gap+dense".
std::string Formats(const v1::Comm& comm) {
  std::map<std::string, uint64_t> sums;
  for (const v1::SendStep& step : comm.last_sends().steps()) {
    for (const v1::NamedCount& count : step.formats()) sums[count.key()] += count.value();
  }
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [name, count] : sums) order.emplace_back(count, name);
  std::sort(order.rbegin(), order.rend());
  std::string text;
  for (const auto& [count, name] : order) absl::StrAppend(&text, text.empty() ? "" : "+", name);
  return text.empty() ? "-" : text;
}

void PrintText(const v1::Telemetry& now, const std::vector<Row>& rows, Context* context) {
  const v1::Status& status = now.status();
  context->out() << TimeText(now.unix_nanos()) << " "
                 << (status.healthy() ? (status.draining() ? "draining" : "ready") : "UNHEALTHY")
                 << ", up " << HumanSeconds(status.uptime_seconds()) << ", "
                 << Counted(status.channels(), "channel") << ", "
                 << Counted(status.sessions(), "session") << ", " << Counted(status.jobs(), "job")
                 << "\n\n";
  Table table({"#COMM", "JOB", "#RANKS", "STATE", "RUNS", "#OPS/S", "#PAYLOAD/S", "#BUSY",
               "#SENT/DENSE", "FORMATS", "#INPUT", "#RESULT", "#QUEUED"});
  for (const Row& row : rows) {
    const v1::Counters& sums = row.comm->counters();
    table.Add({absl::StrCat(row.comm->id()), row.comm->job_id(), absl::StrCat(row.comm->ranks()),
               row.comm->state(),
               row.comm->running_algorithm().empty() ? "-" : row.comm->running_algorithm(),
               absl::StrCat(std::llround(row.ops_per_s)), HumanBytes(row.payload_bytes_per_s),
               Percent(row.busy, 1),
               Percent(static_cast<double>(row.wire_bytes), static_cast<double>(row.dense_bytes)),
               Formats(*row.comm), Sparsity(sums.last_input_nnz(), sums.last_input_elements()),
               Sparsity(sums.last_result_nnz(), sums.last_result_elements()),
               absl::StrCat(row.comm->queued_ops())});
  }
  table.Print(&context->out());
  context->out().flush();
}

void PrintJson(const v1::Telemetry& now, const std::vector<Row>& rows, Context* context) {
  nlohmann::ordered_json object = ToJson(now);
  for (size_t i = 0; i < rows.size(); ++i) {
    object["comms"][i]["rates"] = {{"ops_per_s", rows[i].ops_per_s},
                                   {"payload_bytes_per_s", rows[i].payload_bytes_per_s},
                                   {"busy", rows[i].busy},
                                   {"wire_bytes", rows[i].wire_bytes},
                                   {"dense_bytes", rows[i].dense_bytes}};
  }
  context->PrintJsonOfStream(std::move(object));
}

struct TopOptions {
  bool once = false;
  int64_t interval_ns = 1'000'000'000;
};

absl::Status RunTop(Context& context, const TopOptions& options) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  v1::StreamTelemetryRequest request;
  request.set_interval_ms(static_cast<uint32_t>(options.interval_ns / 1'000'000));
  grpc::ClientContext call;
  StreamGuard guard(&call, context.options().deadline_ns + options.interval_ns);
  const auto reader = client->stub()->StreamTelemetry(&call, request);
  const bool clears = !options.once && ::isatty(STDOUT_FILENO) != 0;
  v1::Telemetry before, now;
  bool done = false, first = true;
  // Rates need two snapshots: nothing is printed for the first.
  while (!done && reader->Read(&now)) {
    guard.Rearm();
    if (!before.boot_id().empty()) {
      const std::vector<Row> rows = Compare(before, now);
      if (context.json()) {
        PrintJson(now, rows, &context);
      } else {
        context.out() << (clears ? kClearScreen : first ? "" : "\n");
        PrintText(now, rows, &context);
      }
      first = false;
      done = options.once || !context.out();  // or nobody reads any more
    }
    before.Swap(&now);
  }
  if (done) {
    call.TryCancel();
    return absl::OkStatus();
  }
  const grpc::Status status = reader->Finish();
  if (guard.expired()) {
    return client->Check(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""));
  }
  return client->Check(status);
}

}  // namespace

void AddTopCommand(Tree* tree) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* top = tree->Add(&tree->app, "top", "What each communicator does, live.",
                            [options](Context& context) { return RunTop(context, *options); });
  top->add_flag("--once", options->once, "Print one interval, and end.");
  AddDurationOption(top, "--interval", &options->interval_ns,
                    "Time between two lines. Default: 1s, at least 10ms.");
}

}  // namespace spccl::ctl
