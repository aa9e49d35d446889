#include "collective/plan/check.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::plan {
namespace {

// How often each rank's contribution is in a value; empty: no value.
using Value = std::vector<uint32_t>;

uint32_t Total(const Value& value) {
  uint32_t total = 0;
  for (const uint32_t times : value) total += times;
  return total;
}

struct Message {
  uint32_t chunk;
  Phase phase;
  Value value;
};

struct Participant {
  size_t next = 0;  // step
  Phase phase = Phase::kReduceScatter;
  std::vector<Value> output;  // by chunk
};

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

class Checker {
 public:
  Checker(const Plan& plan, uint32_t frames_per_edge)
      : plan_(plan), frames_per_edge_(frames_per_edge), participants_(plan.ranks()) {
    for (Participant& participant : participants_) participant.output.resize(plan.chunks);
  }

  absl::Status Run() {
    SPCCL_RETURN_IF_ERROR(CheckShape());
    bool moved = true;
    while (moved) {
      moved = false;
      for (uint32_t rank = 0; rank < plan_.ranks(); ++rank) {
        while (CanRun(rank)) {
          SPCCL_RETURN_IF_ERROR(RunStep(rank));
          moved = true;
        }
      }
    }
    SPCCL_RETURN_IF_ERROR(CheckAllDone());
    return CheckResults();
  }

 private:
  using Edge = std::pair<uint32_t, uint32_t>;

  absl::Status Wrong(uint32_t rank, size_t step, std::string_view what) const {
    const Step& s = plan_.steps[rank][step];
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " step ", step, " (",
                                                      View(NameOf(s.kind)), " chunk ", s.chunk,
                                                      "): ", View(what)));
  }

  absl::Status CheckShape() const {
    for (uint32_t rank = 0; rank < plan_.ranks(); ++rank) {
      for (size_t i = 0; i < plan_.steps[rank].size(); ++i) {
        const Step& step = plan_.steps[rank][i];
        if (step.chunk >= plan_.chunks) return Wrong(rank, i, "no such chunk");
        if (!PeerFits(step.from, rank, Receives(step.kind))) {
          return Wrong(rank, i, absl::StrCat("receives from ", step.from));
        }
        if (!PeerFits(step.to, rank, Sends(step.kind))) {
          return Wrong(rank, i, absl::StrCat("sends to ", step.to));
        }
      }
    }
    return absl::OkStatus();
  }

  bool PeerFits(uint32_t peer, uint32_t rank, bool wanted) const {
    return wanted ? peer < plan_.ranks() && peer != rank : peer == kNobody;
  }

  bool CanRun(uint32_t rank) {
    const Participant& self = participants_[rank];
    if (self.next == plan_.steps[rank].size()) return false;
    const Step& step = plan_.steps[rank][self.next];
    if (Receives(step.kind) && edges_[Edge(step.from, rank)].empty()) return false;
    return !Sends(step.kind) || edges_[Edge(rank, step.to)].size() < frames_per_edge_;
  }

  // The rank's own contribution to the chunk; empty if it has none.
  Value Input(uint32_t rank, uint32_t chunk) const {
    const bool has =
        Reduces(plan_.op) || (plan_.op == OpKind::kAllGather ? chunk == rank : rank == plan_.root);
    if (!has) return {};
    Value value(plan_.ranks());
    value[rank] = 1;
    return value;
  }

  absl::Status ReadInput(uint32_t rank, uint32_t chunk, Value* value) const {
    if (!participants_[rank].output[chunk].empty()) {
      return absl::FailedPreconditionError("reads an input that its output may have overwritten");
    }
    *value = Input(rank, chunk);
    if (value->empty()) return absl::FailedPreconditionError("reads an input that it has not got");
    return absl::OkStatus();
  }

  absl::Status RunStep(uint32_t rank) {
    Participant& self = participants_[rank];
    const size_t index = self.next++;
    const Step& step = plan_.steps[rank][index];
    if (step.phase < self.phase) return Wrong(rank, index, "goes back to an earlier phase");
    self.phase = step.phase;
    Value value;
    if (absl::Status status = Take(rank, step, &value); !status.ok()) {
      return Wrong(rank, index, std::string(status.message()));
    }
    if (Total(value) != step.contributions) {
      return Wrong(rank, index,
                   absl::StrCat("says ", step.contributions, " contributions, has ", Total(value)));
    }
    if (step.kind == StepKind::kReduceForward || step.kind == StepKind::kReduceStore) {
      Value own;
      if (absl::Status status = ReadInput(rank, step.chunk, &own); !status.ok()) {
        return Wrong(rank, index, std::string(status.message()));
      }
      for (uint32_t i = 0; i < plan_.ranks(); ++i) value[i] += own[i];
    }
    if (Sends(step.kind)) {
      edges_[Edge(rank, step.to)].push_back({step.chunk, step.phase, value});
    }
    if (Stores(step.kind)) {
      if (!self.output[step.chunk].empty()) return Wrong(rank, index, "stores the chunk again");
      self.output[step.chunk] = std::move(value);
    }
    return absl::OkStatus();
  }

  static bool Stores(StepKind kind) {
    return kind != StepKind::kSend && kind != StepKind::kReduceForward;
  }

  // What the step works on: what it receives, or what it reads to send or copy it.
  absl::Status Take(uint32_t rank, const Step& step, Value* value) {
    if (step.kind == StepKind::kCopy) return ReadInput(rank, step.chunk, value);
    if (step.kind == StepKind::kSend) {
      if (step.phase == Phase::kReduceScatter) return ReadInput(rank, step.chunk, value);
      *value = participants_[rank].output[step.chunk];
      if (value->empty()) return absl::FailedPreconditionError("sends what it has not got");
      return absl::OkStatus();
    }
    std::deque<Message>& edge = edges_[Edge(step.from, rank)];
    const Message message = std::move(edge.front());
    edge.pop_front();
    if (message.chunk != step.chunk || message.phase != step.phase) {
      return absl::FailedPreconditionError(absl::StrCat(
          "expects chunk ", step.chunk, " of ", View(NameOf(step.phase)), ", rank ", step.from,
          " sent chunk ", message.chunk, " of ", View(NameOf(message.phase))));
    }
    *value = message.value;
    return absl::OkStatus();
  }

  absl::Status CheckAllDone() const {
    for (uint32_t rank = 0; rank < plan_.ranks(); ++rank) {
      if (participants_[rank].next < plan_.steps[rank].size()) {
        return Wrong(rank, participants_[rank].next, "waits for ever");
      }
    }
    for (const auto& [edge, messages] : edges_) {
      if (messages.empty()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", edge.second, " never receives chunk ", messages.front().chunk,
                       " from rank ", edge.first));
    }
    return absl::OkStatus();
  }

  // What rank owes in `chunk` of its output; empty: nothing.
  Value Owed(uint32_t rank, uint32_t chunk) const {
    if (plan_.op == OpKind::kReduceScatter && chunk != rank) return {};
    if (Reduces(plan_.op)) return Value(plan_.ranks(), 1);
    return Input(plan_.op == OpKind::kAllGather ? chunk : plan_.root, chunk);
  }

  absl::Status CheckResults() const {
    for (uint32_t rank = 0; rank < plan_.ranks(); ++rank) {
      for (uint32_t chunk = 0; chunk < plan_.chunks; ++chunk) {
        const Value owed = Owed(rank, chunk);
        const Value& found = participants_[rank].output[chunk];
        if (found == owed) continue;
        return absl::FailedPreconditionError(absl::StrCat(
            "rank ", rank, " ends with ", Difference(found, owed), " in chunk ", chunk));
      }
    }
    return absl::OkStatus();
  }

  static std::string Difference(const Value& found, const Value& owed) {
    if (found.empty()) return "nothing";
    if (owed.empty()) return "something it does not owe";
    for (size_t i = 0; i < owed.size(); ++i) {
      if (found[i] != owed[i]) {
        return absl::StrCat("rank ", i, "'s contribution ", found[i], " times");
      }
    }
    return "what it should";
  }

  const Plan& plan_;
  const uint32_t frames_per_edge_;
  std::vector<Participant> participants_;
  std::map<Edge, std::deque<Message>> edges_;
};

}  // namespace

absl::Status Check(const Plan& plan, uint32_t frames_per_edge) {
  return Checker(plan, frames_per_edge).Run();
}

}  // namespace spccl::plan
