#include "ctl/flight_summary.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/counted.h"
#include "ctl/flight_view.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

double SecondsOfNanos(uint64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Operations alike: same call, same algorithm.
struct Kind {
  uint64_t count = 0, failed = 0, wire_bytes = 0, dense_bytes = 0;
  uint64_t input_nnz = 0, input_elements = 0;
  std::vector<double> waited, queued, ran;  // seconds: for the last rank, then for a thread, and on
  std::map<std::string, uint64_t> formats;
};

void AddTo(const v1::FlightOp& op, Kind* kind) {
  ++kind->count;
  if (!op.error().empty()) ++kind->failed;
  kind->wire_bytes += op.wire_bytes();
  kind->dense_bytes += op.dense_bytes();
  kind->input_nnz += op.input_nnz();
  kind->input_elements += op.input_elements();
  for (const v1::FlightCount& sends : op.sends_by_format()) {
    kind->formats[sends.name()] += sends.count();
  }
  if (op.posts().empty()) return;
  int64_t first = op.posts(0).posted_ns(), last = first;
  for (const v1::FlightPost& post : op.posts()) {
    first = std::min(first, post.posted_ns());
    last = std::max(last, post.posted_ns());
  }
  kind->waited.push_back(static_cast<double>(last - first) * 1e-9);
  kind->queued.push_back(static_cast<double>(std::max<int64_t>(0, op.began_ns() - last)) * 1e-9);
  kind->ran.push_back(static_cast<double>(op.ended_ns() - op.began_ns()) * 1e-9);
}

void PrintOperations(const v1::FlightRecord& record, std::ostream* out) {
  std::map<std::pair<std::string, std::string>, Kind> kinds;
  for (const v1::FlightOp& op : record.ended()) AddTo(op, &kinds[{op.what(), op.algorithm()}]);
  if (kinds.empty()) return;
  Table table({"OPERATION", "BY", "#ENDED", "#FAILED", "#LAST RANK", "#QUEUED", "#RAN", "#SENT",
               "#DENSE", "INPUT", "FORMATS"});
  for (const auto& [name, kind] : kinds) {
    std::string formats;
    for (const auto& [format, sends] : kind.formats) {
      absl::StrAppend(&formats, formats.empty() ? "" : ", ", sends, " ", Printable(format));
    }
    table.Add({Printable(name.first), Printable(name.second), absl::StrCat(kind.count),
               absl::StrCat(kind.failed), HumanSeconds(Median(kind.waited)),
               HumanSeconds(Median(kind.queued)), HumanSeconds(Median(kind.ran)),
               HumanBytes(static_cast<double>(kind.wire_bytes)),
               HumanBytes(static_cast<double>(kind.dense_bytes)),
               Sparsity(kind.input_nnz, kind.input_elements), formats.empty() ? "-" : formats});
  }
  *out << "\n";
  table.Print(out);
}

void PrintRanks(const v1::FlightRecord& record, std::ostream* out) {
  const FlightView view(record);
  const std::vector<Lateness> all = LatenessOf(record);
  if (all.empty()) return;
  Table table({"RANK", "#LAST OF ALL", "#BEHIND THE FIRST", "#AT MOST"});
  for (const Lateness& lateness : all) {
    table.Add({view.NameOf(lateness.rank),
               absl::StrCat(lateness.times_last, " of ", lateness.operations),
               HumanSeconds(lateness.median_seconds), HumanSeconds(lateness.most_seconds)});
  }
  *out << "\n";
  table.Print(out);
}

void PrintTime(const v1::FlightRecord& record, std::ostream* out) {
  uint64_t encode = 0, send = 0, reduce = 0, frames = 0, room = 0;
  for (const v1::FlightOp& op : record.ended()) {
    encode += op.encode_ns();
    send += op.send_ns();
    reduce += op.reduce_ns();
    frames += op.receive_wait_ns();
    room += op.room_wait_ns();
  }
  if (encode + send + reduce + frames + room == 0) return;
  *out << "\nthreads encoded " << HumanSeconds(SecondsOfNanos(encode)) << ", sent "
       << HumanSeconds(SecondsOfNanos(send)) << ", reduced and stored "
       << HumanSeconds(SecondsOfNanos(reduce)) << "; slices waited "
       << HumanSeconds(SecondsOfNanos(frames)) << " for frames, "
       << HumanSeconds(SecondsOfNanos(room)) << " for room\n";
}

// By whom was waited for whom.
void PrintWaits(const v1::FlightRecord& record, std::ostream* out) {
  struct Waits {
    uint64_t count = 0, ns = 0;
  };
  std::map<std::pair<uint32_t, uint32_t>, Waits> waits;
  for (const v1::FlightSpan& span : record.spans()) {
    if (span.kind() != v1::FlightSpan::KIND_WAIT_FRAME) continue;
    Waits& one = waits[{span.rank(), span.peer()}];
    ++one.count;
    one.ns += span.duration_ns();
  }
  if (waits.empty()) return;
  const FlightView view(record);
  Table table({"WAITED", "FOR FRAMES OF", "NODE", "#WAITS", "#ALTOGETHER"});
  for (const auto& [pair, one] : waits) {
    const v1::FlightNode* const node = view.NodeOf(pair.second);
    table.Add({absl::StrCat("rank ", pair.first), absl::StrCat("rank ", pair.second),
               node == nullptr ? "-" : Printable(node->name()), absl::StrCat(one.count),
               HumanSeconds(SecondsOfNanos(one.ns))});
  }
  *out << "\n";
  table.Print(out);
}

}  // namespace

std::string SummaryOf(const v1::FlightRecord& record) {
  std::ostringstream out;
  out << "communicator " << record.comm_id() << " of job " << Printable(record.job_id()) << " (uid "
      << record.uid() << "): " << Counted(record.ranks(), "rank");
  if (record.nodes_size() > 1) out << " on " << record.nodes_size() << " nodes";
  out << ", " << Printable(record.state()) << "\n";
  if (!record.node().empty()) out << "as seen by " << Printable(record.node()) << "\n";
  if (!record.reason().empty()) out << "kept because: " << Printable(record.reason()) << "\n";
  if (!record.error().empty()) out << "it failed: " << Printable(record.error()) << "\n";
  if (record.ended_size() > 0) {
    out << Counted(record.ended_size(), "operation") << " kept, #" << record.ended(0).sequence()
        << " to #" << record.ended(record.ended_size() - 1).sequence() << "; "
        << Counted(record.spans_size(), "span") << " of work and waits\n";
  }
  if (record.has_running()) {
    out << "runs: #" << record.running().sequence() << ", " << Printable(record.running().what())
        << ", " << record.taken() << " of " << record.total() << " slices\n";
  }
  if (record.waiting_size() > 0) {
    out << Counted(record.waiting_size(), "operation")
        << (record.waiting_size() == 1 ? " waits" : " wait") << ", from #"
        << record.waiting(0).sequence() << " on\n";
  }
  PrintOperations(record, &out);
  PrintRanks(record, &out);
  PrintTime(record, &out);
  PrintWaits(record, &out);
  return out.str();
}

}  // namespace spccl::ctl
