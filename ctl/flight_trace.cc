#include "ctl/flight_trace.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ctl/flight_view.h"
#include "ctl/render.h"
#include "kernels/format.h"

namespace spccl::ctl {
namespace {

using Json = nlohmann::ordered_json;
using v1::FlightSpan;

constexpr int kRanks = 1, kChannels = 2, kWaits = 3, kProcesses = 3;  // of a node

std::string SpanName(FlightSpan::Kind kind) {
  switch (kind) {
    case FlightSpan::KIND_LOCAL:
      return "local";
    case FlightSpan::KIND_GATHER:
      return "gather";
    case FlightSpan::KIND_ENCODE:
      return "encode";
    case FlightSpan::KIND_SEND:
      return "send";
    case FlightSpan::KIND_REDUCE:
      return "reduce";
    case FlightSpan::KIND_STORE:
      return "store";
    case FlightSpan::KIND_WAIT_FRAME:
      return "wait for a frame";
    case FlightSpan::KIND_WAIT_ROOM:
      return "wait for room";
    default:
      return "span";
  }
}

bool IsWait(const FlightSpan& span) {
  return span.kind() == FlightSpan::KIND_WAIT_FRAME || span.kind() == FlightSpan::KIND_WAIT_ROOM;
}
bool HasFrame(const FlightSpan& span) {
  switch (span.kind()) {
    case FlightSpan::KIND_ENCODE:
    case FlightSpan::KIND_SEND:
      return true;
    case FlightSpan::KIND_REDUCE:
    case FlightSpan::KIND_STORE:
      return span.has_peer();
    default:
      return false;
  }
}

std::string FormatName(uint32_t format) {
  return format < kFormatCount ? std::string(spccl::NameOf(static_cast<Format>(format)))
                               : absl::StrCat("format ", format);
}

Json ArgsOf(const FlightSpan& span) {
  Json args = {{"operation", span.sequence()}};
  if (span.has_rank()) args["rank"] = span.rank();
  if (span.has_peer()) args["peer"] = span.peer();
  args["slice"] = span.lane();
  args["chunk"] = span.chunk();
  if (!IsWait(span)) args["bytes"] = span.bytes();
  if (HasFrame(span)) {
    // As spcclctl's other commands call a format: decoding is storing or reducing one of these.
    args["format"] = FormatName(span.format());
    if (span.has_density()) args["density"] = span.density();
  }
  if (span.has_peer()) {
    args["phase"] = span.all_gather() ? "all_gather" : "reduce_scatter";
    args["link"] = span.inter() ? "inter" : "intra";
  }
  return args;
}

Json ArgsOf(const v1::FlightOp& op) {
  Json args = {{"operation", op.sequence()}, {"what", Printable(op.what())}};
  if (!op.algorithm().empty()) args["algorithm"] = Printable(op.algorithm());
  if (op.dense_bytes() > 0) {
    args["wire_bytes"] = op.wire_bytes();
    args["dense_bytes"] = op.dense_bytes();
    Json formats = Json::object();
    for (const v1::FlightCount& sends : op.sends_by_format()) {
      formats[Printable(sends.name())] = sends.count();
    }
    args["sends_by_format"] = std::move(formats);
  }
  const auto density = [&args](const char* name, uint64_t nnz, uint64_t elements) {
    if (elements == 0) return;
    args[name] = static_cast<double>(nnz) / static_cast<double>(elements);
  };
  density("input_density", op.input_nnz(), op.input_elements());
  density("result_density", op.result_nnz(), op.result_elements());
  if (!op.error().empty()) args["error"] = Printable(op.error());
  return args;
}

// One event before it is written: sorted by track, then by time, the longer before what it holds.
struct Event {
  int pid;
  int64_t tid;
  int64_t begin_ns, end_ns;  // of the day
  std::string name, category;
  Json args;
};

class Writer {
 public:
  void Add(const v1::FlightRecord& record);
  Json Take();

 private:
  void NameProcess(int pid, const std::string& name);
  void NameThread(int pid, int64_t tid, const std::string& name);
  void AddRanks(const v1::FlightRecord& record, int pid);
  void AddOp(const v1::FlightRecord& record, const v1::FlightOp& op, int pid,
             std::map<uint32_t, int64_t>* free_from);
  void AddChannels(const v1::FlightRecord& record, int pid);
  void AddWaits(const v1::FlightRecord& record, int pid);
  void AddSpan(const v1::FlightRecord& record, const FlightSpan& span, int pid, int64_t tid);
  int64_t OfDay(const v1::FlightRecord& record, int64_t ns) const {
    return ns - record.now_ns() + record.unix_ns();
  }

  int nodes_ = 0;
  std::vector<Event> events_;
  Json metadata_ = Json::array(), failures_ = Json::array();
};

void Writer::NameProcess(int pid, const std::string& name) {
  metadata_.push_back({{"ph", "M"},
                       {"name", "process_name"},
                       {"pid", pid},
                       {"tid", 0},
                       {"args", {{"name", name}}}});
}

void Writer::NameThread(int pid, int64_t tid, const std::string& name) {
  metadata_.push_back({{"ph", "M"},
                       {"name", "thread_name"},
                       {"pid", pid},
                       {"tid", tid},
                       {"args", {{"name", name}}}});
}

void Writer::Add(const v1::FlightRecord& record) {
  const int pid = kProcesses * nodes_++;
  const std::string node = FlightView(record).NodeName();
  const std::string comm =
      absl::StrCat("communicator ", record.comm_id(), " of job ", Printable(record.job_id()));
  NameProcess(pid + kRanks, absl::StrCat(node, ": ranks, ", comm));
  NameProcess(pid + kChannels, absl::StrCat(node, ": channels"));
  NameProcess(pid + kWaits, absl::StrCat(node, ": waits"));
  AddRanks(record, pid + kRanks);
  AddChannels(record, pid + kChannels);
  AddWaits(record, pid + kWaits);
  const std::string& why = record.reason().empty() ? record.error() : record.reason();
  if (!why.empty()) {
    failures_.push_back({{"ph", "i"},
                         {"s", "p"},
                         {"name", absl::StrCat("failed: ", Printable(why))},
                         {"pid", pid + kRanks},
                         {"tid", 0},
                         {"ts", record.unix_ns()}});
  }
}

void Writer::AddRanks(const v1::FlightRecord& record, int pid) {
  const FlightView view(record);
  std::map<uint32_t, int64_t> free_from;  // by rank: the end of what its track holds
  for (const v1::FlightRank& member : record.members()) {
    if (!member.node().empty()) continue;
    NameThread(pid, member.rank() + 1, view.NameOf(member.rank()));
  }
  for (const v1::FlightOp& op : record.ended()) AddOp(record, op, pid, &free_from);
  if (record.has_running()) AddOp(record, record.running(), pid, &free_from);
  for (const v1::FlightOp& op : record.waiting()) AddOp(record, op, pid, &free_from);
}

// A rank may post ahead: on its track an operation begins when the one before it has ended.
void Writer::AddOp(const v1::FlightRecord& record, const v1::FlightOp& op, int pid,
                   std::map<uint32_t, int64_t>* free_from) {
  const int64_t end_ns = op.ended_ns() > 0 ? op.ended_ns() : record.now_ns();
  int64_t last_post_ns = 0;
  uint32_t last_rank = 0;
  for (const v1::FlightPost& post : op.posts()) {
    if (post.posted_ns() < last_post_ns) continue;
    last_post_ns = post.posted_ns();
    last_rank = post.rank();
  }
  const int64_t together_ns = op.began_ns() > 0 ? last_post_ns : end_ns;
  const int64_t began_ns = op.began_ns() > 0 ? op.began_ns() : end_ns;
  for (const v1::FlightPost& post : op.posts()) {
    const int64_t tid = post.rank() + 1;
    const int64_t begin_ns = std::max(post.posted_ns(), (*free_from)[post.rank()]);
    if (begin_ns >= end_ns) continue;
    Json args = ArgsOf(op);
    if (op.ended_ns() == 0) args["unfinished"] = true;
    if (begin_ns > post.posted_ns()) args["posted_ahead_us"] = (begin_ns - post.posted_ns()) / 1e3;
    const auto add = [&](int64_t from, int64_t to, std::string name, Json its) {
      events_.push_back({.pid = pid,
                         .tid = tid,
                         .begin_ns = OfDay(record, from),
                         .end_ns = OfDay(record, to),
                         .name = std::move(name),
                         .category = "operation",
                         .args = std::move(its)});
    };
    const std::string kind = Printable(op.what().substr(0, op.what().find(' ')));
    add(begin_ns, end_ns, absl::StrCat(kind, " #", op.sequence()), std::move(args));
    const std::string whom = op.began_ns() > 0 ? absl::StrCat("waits for rank ", last_rank)
                                               : std::string("waits for other ranks");
    const int64_t waited_ns = std::clamp(together_ns, begin_ns, end_ns);
    if (waited_ns > begin_ns) add(begin_ns, waited_ns, whom, Json::object());
    const int64_t runs_ns = std::clamp(began_ns, waited_ns, end_ns);
    if (runs_ns > waited_ns) add(waited_ns, runs_ns, "queued", Json::object());
    if (end_ns > runs_ns) add(runs_ns, end_ns, "runs", Json::object());
    (*free_from)[post.rank()] = std::max((*free_from)[post.rank()], end_ns);
  }
}

void Writer::AddSpan(const v1::FlightRecord& record, const FlightSpan& span, int pid, int64_t tid) {
  events_.push_back({.pid = pid,
                     .tid = tid,
                     .begin_ns = OfDay(record, span.begin_ns()),
                     .end_ns = OfDay(record, span.begin_ns() + span.duration_ns()),
                     .name = SpanName(span.kind()),
                     .category = IsWait(span) ? "wait" : "work",
                     .args = ArgsOf(span)});
}

void Writer::AddChannels(const v1::FlightRecord& record, int pid) {
  std::map<uint32_t, bool> seen;
  for (const FlightSpan& span : record.spans()) {
    if (IsWait(span)) continue;
    if (!std::exchange(seen[span.channel()], true)) {
      NameThread(
          pid, span.channel() + 1,
          span.channel() == 0 ? "core thread" : absl::StrCat("channel ", span.channel() - 1));
    }
    AddSpan(record, span, pid, span.channel() + 1);
  }
}

// Slices wait beside each other: each wait goes to the first track of its kind that is free.
void Writer::AddWaits(const v1::FlightRecord& record, int pid) {
  using Key = std::tuple<FlightSpan::Kind, uint32_t, uint32_t>;
  struct Track {
    int64_t tid;
    int64_t free_from;
  };
  std::map<Key, std::vector<Track>> tracks;
  int64_t next_tid = 1;
  std::vector<const FlightSpan*> waits;
  for (const FlightSpan& span : record.spans()) {
    if (IsWait(span)) waits.push_back(&span);
  }
  std::stable_sort(waits.begin(), waits.end(), [](const FlightSpan* a, const FlightSpan* b) {
    return a->begin_ns() < b->begin_ns();
  });
  for (const FlightSpan* const span : waits) {
    std::vector<Track>& alike = tracks[{span->kind(), span->rank(), span->peer()}];
    auto track = std::find_if(alike.begin(), alike.end(),
                              [&](const Track& one) { return one.free_from <= span->begin_ns(); });
    if (track == alike.end()) {
      track = alike.insert(alike.end(), Track{next_tid++, 0});
      const bool frame = span->kind() == FlightSpan::KIND_WAIT_FRAME;
      NameThread(pid, track->tid,
                 absl::StrCat("rank ", span->rank(), frame ? " for frames of" : " for room to",
                              " rank ", span->peer()));
    }
    track->free_from = span->begin_ns() + span->duration_ns();
    AddSpan(record, *span, pid, track->tid);
  }
}

Json Writer::Take() {
  std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.pid, a.tid, a.begin_ns, -a.end_ns) <
           std::tuple(b.pid, b.tid, b.begin_ns, -b.end_ns);
  });
  int64_t zero_ns = std::numeric_limits<int64_t>::max();
  for (const Event& event : events_) zero_ns = std::min(zero_ns, event.begin_ns);
  for (const Json& failure : failures_) {
    zero_ns = std::min(zero_ns, failure["ts"].get<int64_t>());
  }
  const auto micros = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
  Json all = std::move(metadata_);
  for (Event& event : events_) {
    all.push_back({{"ph", "X"},
                   {"name", std::move(event.name)},
                   {"cat", std::move(event.category)},
                   {"pid", event.pid},
                   {"tid", event.tid},
                   {"ts", micros(event.begin_ns - zero_ns)},
                   {"dur", micros(event.end_ns - event.begin_ns)},
                   {"args", std::move(event.args)}});
  }
  for (Json& failure : failures_) {
    failure["ts"] = micros(failure["ts"].get<int64_t>() - zero_ns);
    all.push_back(std::move(failure));
  }
  const bool empty = zero_ns == std::numeric_limits<int64_t>::max();
  return {{"displayTimeUnit", "ns"},
          {"otherData", {{"unix_ns_of_ts_0", empty ? 0 : zero_ns}}},
          {"traceEvents", std::move(all)}};
}

}  // namespace

Json TraceOf(const std::vector<v1::FlightRecord>& records) {
  Writer writer;
  for (const v1::FlightRecord& record : records) writer.Add(record);
  return writer.Take();
}

}  // namespace spccl::ctl
