#include "ctl/flight_explain.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "ctl/flight_view.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

using v1::FlightDoing;
using v1::FlightNode;
using v1::FlightOp;
using v1::FlightRecord;

// A rank that posts later than this after the first is worth a word.
constexpr double kLateSeconds = 1e-3;

std::string OperationName(const FlightOp* op, uint64_t sequence) {
  std::string text = absl::StrCat("operation ", sequence);
  if (op != nullptr && !op->what().empty())
    absl::StrAppend(&text, " (", Printable(op->what()), ")");
  return text;
}

// What the kernel's word on a process means here; empty: nothing to say.
std::string MeaningOf(const std::string& process) {
  if (process == "stopped") return "its process is stopped, by SIGSTOP or a terminal";
  if (process == "traced") return "its process is held by a debugger";
  if (process == "gone") return "its process is gone";
  if (process == "running") return "its process computes";
  if (process == "sleeping") return "its process sleeps: it waits for something else";
  return process.empty() ? "" : absl::StrCat("its process is ", Printable(process));
}

// Looks at one record and its peers'.
class Finder {
 public:
  explicit Finder(const FlightRecord& record) : here_(record) {
    views_.push_back(here_);
    for (const FlightRecord& peer : record.peers()) {
      if (peer.state() == "ready") views_.emplace_back(peer);
    }
  }
  Explanation Find();

 private:
  bool FindState();
  bool FindNotPosted();
  void FindRunning(const FlightView& from);
  // Follows waits for frames and room from node to node, to the one that holds the others up.
  void Follow(const FlightView& from);
  void BlameSilent(const FlightNode& node, const FlightDoing& wait);
  void SayWaits(const FlightView& view, const FlightDoing& wait, const FlightNode* node);
  void SayLate(const FlightView& view, uint32_t rank);
  void SayPosted(const FlightView& view);
  void SayExchange(const FlightView& view);
  void SayWork(const FlightView& view);
  void SayHabits();

  // What the node of a rank says; nullptr: nothing. (Nodes' names need not differ.)
  const FlightView* ViewOf(uint32_t rank) const;
  // " on node-b", where there are several.
  std::string On(const FlightView& view) const {
    return here_.record().nodes_size() > 1 ? absl::StrCat(" on ", view.NodeName()) : "";
  }
  void LookNextAt(const FlightView& view) {
    if (&view.record() == &here_.record()) return;
    found_.node = view.record().node();
    found_.lines.push_back(absl::StrCat("look next at ", view.NodeName(), ": `spcclctl explain ",
                                        view.record().comm_id(), "` there"));
  }

  const FlightView here_;
  std::vector<FlightView> views_;  // here and what has answered, of those that are ready
  uint64_t at_ = 0;  // the operation that somebody is at and all others are not before
  const FlightNode* silent_ = nullptr;  // that the verdict is about
  Explanation found_;
};

const FlightView* Finder::ViewOf(uint32_t rank) const {
  for (const FlightView& view : views_) {
    const v1::FlightRank* const member = view.Member(rank);
    if (member != nullptr && member->node().empty()) return &view;
  }
  return nullptr;
}

bool Finder::FindState() {
  const FlightRecord& record = here_.record();
  if (record.state() == "ready") return false;
  if (record.state() == "failed") {
    found_.phase = "failed";
    found_.verdict = absl::StrCat("it has failed: ", Printable(record.error()));
  } else {
    found_.phase = "forming";
    found_.verdict = absl::StrCat("it is ", Printable(record.state()), ": it waits for ",
                                  Printable(record.forming()));
  }
  return true;
}

void Finder::SayLate(const FlightView& view, uint32_t rank) {
  const v1::FlightRank* const known = view.Member(rank);
  if (known == nullptr) return;
  const v1::FlightRank& member = *known;
  std::string text = absl::StrCat("rank ", rank, " (pid ", member.pid(), On(view), ") ");
  if (member.next_sequence() == 0) {
    absl::StrAppend(&text, "has posted nothing yet");
  } else {
    const uint64_t last = member.next_sequence() - 1;
    absl::StrAppend(&text, "has posted operation ", last, " last");
    for (const FlightOp& op : view.record().ended()) {
      if (op.sequence() != last) continue;
      absl::StrAppend(&text, ", which ended ", HumanSeconds(view.SecondsSince(op.ended_ns())),
                      " ago");
    }
  }
  const std::string meaning = MeaningOf(member.process());
  if (!meaning.empty()) absl::StrAppend(&text, "; ", meaning);
  found_.lines.push_back(std::move(text));
}

// Who has posted what this node is at, and since when they wait.
void Finder::SayPosted(const FlightView& view) {
  const FlightOp* const op = view.Current();
  if (op == nullptr || op->posts().empty()) return;
  std::vector<uint32_t> ranks;
  int64_t first = op->posts(0).posted_ns(), last = first;
  uint32_t last_rank = op->posts(0).rank();
  for (const v1::FlightPost& post : op->posts()) {
    ranks.push_back(post.rank());
    first = std::min(first, post.posted_ns());
    if (post.posted_ns() >= last) last_rank = post.rank();
    last = std::max(last, post.posted_ns());
  }
  std::string text = absl::StrCat(
      FlightView::NamesOf(ranks), On(view), ranks.size() == 1 ? " has" : " have", " posted it, ",
      ranks.size() == 1 ? "" : "the first ", HumanSeconds(view.SecondsSince(first)), " ago");
  const double spread = static_cast<double>(last - first) * 1e-9;
  if (view.Runs() && spread > kLateSeconds) {
    absl::StrAppend(&text, "; rank ", last_rank, " posted late, ", HumanSeconds(spread),
                    " after the first");
  }
  found_.lines.push_back(std::move(text));
}

bool Finder::FindNotPosted() {
  const FlightOp* op = nullptr;
  for (const FlightView& view : views_) {
    if (view.At() == at_ && op == nullptr) op = view.Current();
  }
  std::vector<std::string> names;
  for (const FlightView& view : views_) {
    if (view.At() != at_) continue;
    for (const uint32_t rank : view.NotPosted()) {
      found_.late_ranks.push_back(rank);
      names.push_back(
          absl::StrCat("rank ", rank, " (pid ", view.Member(rank)->pid(), On(view), ")"));
    }
  }
  if (names.empty()) return false;
  found_.phase = "not-posted";
  std::string text = absl::StrCat(OperationName(op, at_), " waits for ");
  for (size_t i = 0; i < names.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 == names.size() ? " and " : ", ";
    absl::StrAppend(&text, before, names[i]);
  }
  found_.verdict =
      absl::StrCat(text, names.size() == 1 ? ", which has" : ", which have", " not posted it");
  for (const FlightView& view : views_) {
    if (view.At() != at_) continue;
    const std::vector<uint32_t> late = view.NotPosted();
    for (const uint32_t rank : late) SayLate(view, rank);
    SayPosted(view);
    if (!late.empty()) LookNextAt(view);
  }
  return true;
}

const FlightDoing* Oldest(const FlightRecord& record, FlightDoing::Kind kind) {
  const FlightDoing* oldest = nullptr;
  for (const FlightDoing& doing : record.doing()) {
    if (doing.kind() != kind) continue;
    if (oldest == nullptr || doing.since_ns() < oldest->since_ns()) oldest = &doing;
  }
  return oldest;
}

void Finder::SayWaits(const FlightView& view, const FlightDoing& wait, const FlightNode* node) {
  const bool frame = wait.kind() == FlightDoing::KIND_WAITS_FOR_FRAME;
  std::string text =
      absl::StrCat("rank ", wait.rank(), On(view), " waits in ", Counted(wait.count(), "slice"),
                   frame ? " for frames from" : " for room on the link to", " rank ", wait.peer());
  if (node != nullptr) absl::StrAppend(&text, " on ", Printable(node->name()));
  if (wait.since_ns() != 0) {
    absl::StrAppend(&text, ", the longest for ", HumanSeconds(view.SecondsSince(wait.since_ns())));
  }
  if (!wait.step().empty()) absl::StrAppend(&text, " (next: ", Printable(wait.step()), ")");
  found_.lines.push_back(std::move(text));
  if (node == nullptr) return;
  const std::string link = DescribeLink(*node);
  if (!link.empty()) {
    found_.lines.push_back(absl::StrCat("the link from ", view.NodeName(), " to ",
                                        Printable(node->name()), ": ", link));
  }
}

void Finder::BlameSilent(const FlightNode& node, const FlightDoing& wait) {
  const bool frame = wait.kind() == FlightDoing::KIND_WAITS_FOR_FRAME;
  const std::string name = Printable(node.name());
  found_.node = node.name();
  silent_ = &node;
  for (const uint32_t rank : node.ranks()) found_.late_ranks.push_back(rank);
  found_.verdict = absl::StrCat(OperationName(here_.Runs() ? here_.Current() : nullptr, at_),
                                " waits for ", frame ? "frames from " : "room on the link to ",
                                name, ", whose daemon does not answer");
  found_.lines.push_back(absl::StrCat("look next at ", name, " (its daemon is at ",
                                      Printable(node.address()),
                                      "): the daemon hangs or is stopped, or the network between "
                                      "is cut"));
}

// Ranks that exchange slices of ordinary memory: all that are not done, of which one may wait for
// another.
void Finder::SayExchange(const FlightView& view) {
  found_.phase = "wait-slice";
  std::vector<std::string> names;
  for (const FlightDoing& doing : view.record().doing()) {
    if (doing.kind() != FlightDoing::KIND_WAITS_FOR_SLICE) continue;
    found_.late_ranks.push_back(doing.rank());
    names.push_back(view.NameOf(doing.rank()));
    SayLate(view, doing.rank());
  }
  found_.verdict = absl::StrCat(
      OperationName(view.Current(), at_), " waits for ", absl::StrJoin(names, ", "), On(view),
      names.size() == 1 ? " to hand its data over or take it back"
                        : " to hand their data over or take it back; one may wait for another");
}

// What a node does that waits for no other.
void Finder::SayWork(const FlightView& view) {
  const FlightRecord& record = view.record();
  if (Oldest(record, FlightDoing::KIND_WAITS_FOR_SLICE) != nullptr) {
    SayExchange(view);
  } else if (const FlightDoing* const work = Oldest(record, FlightDoing::KIND_RUNS)) {
    found_.phase = "runs";
    found_.verdict = absl::StrCat(OperationName(view.Current(), at_), " runs", On(view),
                                  ": a thread is at ", Printable(work->step()));
    if (work->since_ns() != 0) {
      found_.lines.push_back(
          absl::StrCat("that step has taken ", HumanSeconds(view.SecondsSince(work->since_ns()))));
    }
  } else {
    found_.phase = "queued";
    found_.verdict = absl::StrCat(OperationName(view.Current(), at_), " is queued", On(view),
                                  ": no channel thread has taken its next slice");
    found_.lines.push_back(
        absl::StrCat(view.NodeName(), " has ", record.channels(),
                     " channel threads; `spcclctl top` shows whose work they do"));
  }
  LookNextAt(view);
}

void Finder::Follow(const FlightView& from) {
  const FlightView* view = &from;
  std::set<const FlightRecord*> visited;
  for (;;) {
    visited.insert(&view->record());
    const FlightRecord& record = view->record();
    const FlightDoing* wait = Oldest(record, FlightDoing::KIND_WAITS_FOR_FRAME);
    if (wait == nullptr) wait = Oldest(record, FlightDoing::KIND_WAITS_FOR_ROOM);
    const bool works =
        std::any_of(record.doing().begin(), record.doing().end(), [](const FlightDoing& doing) {
          return doing.kind() == FlightDoing::KIND_RUNS ||
                 doing.kind() == FlightDoing::KIND_QUEUED ||
                 doing.kind() == FlightDoing::KIND_WAITS_FOR_SLICE;
        });
    if (works || wait == nullptr) return SayWork(*view);
    found_.phase = wait->kind() == FlightDoing::KIND_WAITS_FOR_FRAME ? "wait-frame" : "wait-room";
    const FlightNode* const node = view->NodeOf(wait->peer());
    SayWaits(*view, *wait, node);
    // Who has been asked is in this node's own record.
    const FlightNode* const mine = here_.NodeOf(wait->peer());
    const FlightView* const next = ViewOf(wait->peer());
    if (next == nullptr && mine != nullptr && mine->asked()) return BlameSilent(*mine, *wait);
    if (next == nullptr || visited.contains(&next->record()) || !next->Runs() ||
        next->At() != at_) {
      found_.verdict = absl::StrCat(
          OperationName(view->Current(), at_), " waits for frames that are on their way",
          node == nullptr
              ? ""
              : absl::StrCat(" between ", view->NodeName(), " and ", Printable(node->name())));
      return;
    }
    view = next;
  }
}

void Finder::FindRunning(const FlightView& from) {
  SayPosted(from);
  if (!from.Runs()) {
    found_.phase = "queued";
    found_.verdict = absl::StrCat(OperationName(from.Current(), at_),
                                  " has been posted by all ranks", On(from), " and begins next");
    return;
  }
  const FlightRecord& record = from.record();
  found_.lines.push_back(absl::StrCat("it runs ",
                                      On(from).empty() ? "" : absl::StrCat(On(from).substr(1), " "),
                                      "by ", Printable(record.running().algorithm()), " for ",
                                      HumanSeconds(from.SecondsSince(record.running().began_ns())),
                                      ": ", record.taken(), " of ", record.total(), " slices"));
  Follow(from);
}

// Who is late as a rule.
void Finder::SayHabits() {
  for (const Lateness& lateness : LatenessOf(here_.record())) {
    if (lateness.operations < 4 || 2 * lateness.times_last < lateness.operations ||
        lateness.median_seconds < kLateSeconds) {
      continue;
    }
    found_.lines.push_back(absl::StrCat("rank ", lateness.rank, " posted last in ",
                                        lateness.times_last, " of the last ", lateness.operations,
                                        " operations, as a rule ",
                                        HumanSeconds(lateness.median_seconds), " after the first"));
  }
}

Explanation Finder::Find() {
  if (FindState()) return std::move(found_);
  at_ = here_.At();
  for (const FlightView& view : views_) at_ = std::min(at_, view.At());
  bool busy = false;
  for (const FlightView& view : views_) {
    busy = busy || view.Runs() || view.Current() != nullptr || view.At() > at_;
  }
  if (!busy) {
    found_.phase = "idle";
    found_.verdict =
        absl::StrCat("nothing is under way: no rank has posted operation ", here_.At());
  } else if (!FindNotPosted()) {
    const auto from = std::find_if(views_.begin(), views_.end(),
                                   [this](const FlightView& view) { return view.At() == at_; });
    FindRunning(*from);
  }
  for (const FlightNode& node : here_.record().nodes()) {
    if (!node.asked() || node.answered() || &node == silent_) continue;
    found_.lines.push_back(absl::StrCat("the daemon of ", Printable(node.name()),
                                        " did not answer: what its ranks do is not known"));
  }
  SayHabits();
  return std::move(found_);
}

// "" if nothing has changed.
std::string ChangeOf(const FlightRecord& first, const FlightRecord& second) {
  const uint64_t from = FlightView(first).At(), to = FlightView(second).At();
  if (to > from) return absl::StrCat(Counted(to - from, "operation"), " ended");
  if (first.has_running() != second.has_running()) return "the operation began";
  if (second.progress() != first.progress()) {
    return absl::StrCat("the operation did ", second.progress() - first.progress(), " steps");
  }
  if (first.state() != second.state()) {
    return absl::StrCat("it is ", Printable(second.state()), " now");
  }
  const FlightOp* const before = FlightView(first).Current();
  const FlightOp* const after = FlightView(second).Current();
  const int posts =
      (after == nullptr ? 0 : after->posts_size()) - (before == nullptr ? 0 : before->posts_size());
  return posts > 0 ? absl::StrCat("more ranks posted it") : "";
}

std::string SecondLook(const FlightRecord& first, const FlightRecord& second, bool* moving) {
  std::string change = ChangeOf(first, second);
  for (const FlightRecord& peer : second.peers()) {
    if (!change.empty()) break;
    for (const FlightRecord& before : first.peers()) {
      if (before.boot_id() != peer.boot_id()) continue;
      change = ChangeOf(before, peer);
      if (!change.empty()) absl::StrAppend(&change, " on ", Printable(peer.node()));
    }
  }
  *moving = !change.empty();
  const std::string later = HumanSeconds(
      static_cast<double>(std::max<int64_t>(0, second.now_ns() - first.now_ns())) * 1e-9);
  if (*moving) return absl::StrCat("a second look ", later, " later: it moves, ", change);
  return absl::StrCat("a second look ", later, " later: still the same");
}

}  // namespace

std::string Explanation::Text() const {
  std::string text = verdict + "\n";
  for (const std::string& line : lines) absl::StrAppend(&text, "  ", line, "\n");
  return text;
}

nlohmann::ordered_json Explanation::Json() const {
  return {
      {"verdict", verdict},
      {"phase", phase},
      {"late_ranks", late_ranks},
      {"node", node.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(Printable(node))},
      {"moving", moving},
      {"lines", lines}};
}

Explanation Explain(const FlightRecord& first, const FlightRecord& second) {
  Explanation explanation = Finder(second).Find();
  explanation.verdict = absl::StrCat("communicator ", second.comm_id(), " of job ",
                                     Printable(second.job_id()), ": ", explanation.verdict);
  explanation.lines.push_back(
      second.reason().empty()
          ? SecondLook(first, second, &explanation.moving)
          : absl::StrCat("so it was when it failed: ", Printable(second.reason())));
  return explanation;
}

}  // namespace spccl::ctl
