#include "collective/plan/check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::plan {
namespace {

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

// Whose contributions are in the value of a chunk, as a set of participants: a participant's
// members always contribute together, except where only one of them has an input; then the value is
// that one's. A set and not counts, because nothing may contribute twice.
class Value {
 public:
  bool empty() const { return ranks_ == 0; }
  uint32_t ranks() const { return ranks_; }

  void Add(uint32_t participant, uint32_t ranks) {
    if (words_.size() <= participant / 64) words_.resize(participant / 64 + 1);
    words_[participant / 64] |= uint64_t{1} << participant % 64;
    ranks_ += ranks;
  }

  // False if the two have a contribution in common.
  bool Add(const Value& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    uint64_t common = 0;
    for (size_t i = 0; i < other.words_.size(); ++i) {
      common |= words_[i] & other.words_[i];
      words_[i] |= other.words_[i];
    }
    ranks_ += other.ranks_;
    return common == 0;
  }

  bool Has(uint32_t participant) const {
    return participant / 64 < words_.size() && (words_[participant / 64] >> participant % 64 & 1);
  }

 private:
  absl::InlinedVector<uint64_t, 2> words_;
  uint32_t ranks_ = 0;
};

struct Message {
  uint32_t chunk;
  Phase phase;
  Value value;
};

// What is on its way from one participant to another, in order.
class Edge {
 public:
  bool empty() const { return first_ == messages_.size(); }
  size_t size() const { return messages_.size() - first_; }
  const Message& front() const { return messages_[first_]; }
  void Push(Message message) { messages_.push_back(std::move(message)); }
  Message Pop() {
    Message message = std::move(messages_[first_++]);
    if (empty()) {
      messages_.clear();
      first_ = 0;
    }
    return message;
  }

 private:
  std::vector<Message> messages_;
  size_t first_ = 0;
};

struct Participant {
  size_t next = 0;  // step
  Phase phase = Phase::kReduceScatter;
  std::vector<Value> partial, output;  // by chunk
};

class Checker {
 public:
  Checker(const Plan& plan, uint32_t frames_per_edge)
      : plan_(plan),
        ranks_(plan.ranks()),
        frames_per_edge_(frames_per_edge),
        participants_(plan.participants()),
        edges_(size_t{plan.participants()} * plan.participants()) {
    for (Participant& participant : participants_) {
      participant.partial.resize(plan.chunks);
      participant.output.resize(plan.chunks);
    }
  }

  absl::Status Run() {
    SPCCL_RETURN_IF_ERROR(CheckMembers());
    owner_of_rank_ = ParticipantOfRank(plan_.members);
    SPCCL_RETURN_IF_ERROR(CheckShape());
    bool moved = true;
    while (moved) {
      moved = false;
      for (uint32_t self = 0; self < plan_.participants(); ++self) {
        while (CanRun(self)) {
          SPCCL_RETURN_IF_ERROR(RunStep(self));
          moved = true;
        }
      }
    }
    SPCCL_RETURN_IF_ERROR(CheckAllDone());
    return CheckResults();
  }

 private:
  absl::Status Wrong(uint32_t self, size_t step, std::string_view what) const {
    const Step& s = plan_.steps[self][step];
    return absl::FailedPreconditionError(absl::StrCat("participant ", self, " step ", step, " (",
                                                      View(NameOf(s.kind)), " chunk ", s.chunk,
                                                      "): ", View(what)));
  }

  bool ChunkOfRank() const {
    return plan_.op != OpKind::kAllReduce && plan_.op != OpKind::kBroadcast;
  }

  absl::Status CheckMembers() const {
    if (plan_.members.size() != plan_.steps.size()) {
      return absl::FailedPreconditionError("members of other participants");
    }
    std::vector<bool> seen(ranks_);
    for (const std::vector<uint32_t>& members : plan_.members) {
      if (members.empty()) return absl::FailedPreconditionError("a participant without members");
      for (size_t i = 0; i < members.size(); ++i) {
        const bool ascends = i == 0 || members[i - 1] < members[i];
        if (!ascends || members[i] >= ranks_ || seen[members[i]]) {
          return absl::FailedPreconditionError(absl::StrCat("rank ", members[i], " is misplaced"));
        }
        seen[members[i]] = true;
      }
    }
    if (HasRoot(plan_.op) ? plan_.root >= ranks_ : plan_.root != 0) {
      return absl::FailedPreconditionError(absl::StrCat("root ", plan_.root));
    }
    if (ChunkOfRank() && plan_.chunks != ranks_) {
      return absl::FailedPreconditionError(
          absl::StrCat(plan_.chunks, " chunks for ", ranks_, " ranks"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckShape() const {
    for (uint32_t self = 0; self < plan_.participants(); ++self) {
      for (size_t i = 0; i < plan_.steps[self].size(); ++i) {
        const Step& step = plan_.steps[self][i];
        if (step.chunk >= plan_.chunks) return Wrong(self, i, "no such chunk");
        if (!PeerFits(step.from, self, Receives(step.kind))) {
          return Wrong(self, i, absl::StrCat("receives from ", step.from));
        }
        if (!PeerFits(step.to, self, Sends(step.kind))) {
          return Wrong(self, i, absl::StrCat("sends to ", step.to));
        }
        SPCCL_RETURN_IF_ERROR(CheckOperand(self, i));
      }
    }
    return absl::OkStatus();
  }

  bool PeerFits(uint32_t peer, uint32_t self, bool wanted) const {
    return wanted ? peer < plan_.participants() && peer != self : peer == kNobody;
  }

  // The phase says what travels: partial sums or final values. An input is both if nothing is
  // reduced, and never final if something is.
  absl::Status CheckOperand(uint32_t self, size_t index) const {
    const Step& step = plan_.steps[self][index];
    const bool reduces = Reduces(plan_.op);
    if (!reduces && (Combines(step.kind) || step.phase != Phase::kAllGather)) {
      return Wrong(self, index, "combines where nothing is reduced");
    }
    if (step.kind == StepKind::kSend) {
      const bool final = step.phase == Phase::kAllGather;
      const bool fits =
          reduces ? final == (step.operand == Operand::kOutput) : step.operand != Operand::kPartial;
      if (fits) return absl::OkStatus();
    } else if (Combines(step.kind)) {
      const bool partial_fits = step.kind != StepKind::kReduceForward;
      const bool fits =
          step.operand == Operand::kInput || (step.operand == Operand::kPartial && partial_fits);
      if (fits && step.phase == Phase::kReduceScatter) return absl::OkStatus();
    } else if (step.operand == Operand::kInput) {
      const bool passes = step.kind == StepKind::kStore || step.kind == StepKind::kStoreForward;
      if (!passes || step.phase == Phase::kAllGather) return absl::OkStatus();
      return Wrong(self, index, "stores what is not final");
    }
    return Wrong(self, index,
                 absl::StrCat("has the ", View(NameOf(step.operand)), " for an operand in ",
                              View(NameOf(step.phase))));
  }

  Edge& EdgeOf(uint32_t from, uint32_t to) {
    return edges_[size_t{from} * plan_.participants() + to];
  }

  bool CanRun(uint32_t self) {
    const size_t next = participants_[self].next;
    if (next == plan_.steps[self].size()) return false;
    const Step& step = plan_.steps[self][next];
    if (Receives(step.kind) && EdgeOf(step.from, self).empty()) return false;
    return !Sends(step.kind) || EdgeOf(self, step.to).size() < frames_per_edge_;
  }

  uint32_t Size(uint32_t participant) const {
    return static_cast<uint32_t>(plan_.members[participant].size());
  }

  // What `self` has of the chunk from the start; empty: nothing.
  Value Input(uint32_t self, uint32_t chunk) const {
    Value value;
    if (Reduces(plan_.op)) {
      value.Add(self, Size(self));
    } else if (owner_of_rank_[plan_.op == OpKind::kAllGather ? chunk : plan_.root] == self) {
      value.Add(self, 1);
    }
    return value;
  }

  absl::Status Read(uint32_t self, const Step& step, Value* value) const {
    const Participant& participant = participants_[self];
    if (step.operand != Operand::kInput) {
      *value = (step.operand == Operand::kPartial ? participant.partial
                                                  : participant.output)[step.chunk];
    } else if (participant.output[step.chunk].empty()) {
      *value = Input(self, step.chunk);
    } else {
      return absl::FailedPreconditionError("reads an input that its output may have overwritten");
    }
    if (!value->empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("reads an ", View(NameOf(step.operand)), " that it has not got"));
  }

  // What the step works on: what it receives, or what it reads to send or copy it.
  absl::Status Take(uint32_t self, const Step& step, Value* value) {
    if (!Receives(step.kind)) return Read(self, step, value);
    Message message = EdgeOf(step.from, self).Pop();
    if (message.chunk != step.chunk || message.phase != step.phase) {
      return absl::FailedPreconditionError(absl::StrCat(
          "expects chunk ", step.chunk, " of ", View(NameOf(step.phase)), ", participant ",
          step.from, " sent chunk ", message.chunk, " of ", View(NameOf(message.phase))));
    }
    *value = std::move(message.value);
    return absl::OkStatus();
  }

  absl::Status Combine(uint32_t self, const Step& step, Value* value) {
    Value own;
    SPCCL_RETURN_IF_ERROR(Read(self, step, &own));
    if (step.kind == StepKind::kReduceKeep && step.operand == Operand::kInput &&
        !participants_[self].partial[step.chunk].empty()) {
      return absl::FailedPreconditionError("overwrites what it has kept");
    }
    if (value->Add(own)) return absl::OkStatus();
    return absl::FailedPreconditionError("combines a contribution with itself");
  }

  absl::Status RunStep(uint32_t self) {
    const size_t index = participants_[self].next++;
    absl::Status status = Carry(self, plan_.steps[self][index]);
    return status.ok() ? status : Wrong(self, index, std::string(status.message()));
  }

  absl::Status Carry(uint32_t self, const Step& step) {
    Participant& participant = participants_[self];
    if (step.phase < participant.phase) {
      return absl::FailedPreconditionError("goes back to an earlier phase");
    }
    participant.phase = step.phase;
    Value value;
    SPCCL_RETURN_IF_ERROR(Take(self, step, &value));
    if (value.ranks() != step.contributions) {
      return absl::FailedPreconditionError(
          absl::StrCat("says ", step.contributions, " contributions, has ", value.ranks()));
    }
    if (Combines(step.kind)) SPCCL_RETURN_IF_ERROR(Combine(self, step, &value));
    if (Sends(step.kind)) EdgeOf(self, step.to).Push({step.chunk, step.phase, value});
    if (step.kind == StepKind::kReduceKeep) participant.partial[step.chunk] = value;
    if (!Stores(step.kind)) return absl::OkStatus();
    if (!participant.output[step.chunk].empty()) {
      return absl::FailedPreconditionError("stores the chunk again");
    }
    participant.output[step.chunk] = std::move(value);
    return absl::OkStatus();
  }

  absl::Status CheckAllDone() const {
    for (uint32_t self = 0; self < plan_.participants(); ++self) {
      const size_t next = participants_[self].next;
      if (next < plan_.steps[self].size()) return Wrong(self, next, "waits for ever");
    }
    for (size_t edge = 0; edge < edges_.size(); ++edge) {
      if (edges_[edge].empty()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "participant ", edge % plan_.participants(), " never receives chunk ",
          edges_[edge].front().chunk, " from participant ", edge / plan_.participants()));
    }
    return absl::OkStatus();
  }

  // Reduce-scatter and scatter: only who has rank c owes chunk c.
  bool Owes(uint32_t self, uint32_t chunk) const {
    const bool own_only = plan_.op == OpKind::kReduceScatter || plan_.op == OpKind::kScatter;
    return !own_only || owner_of_rank_[chunk] == self;
  }

  absl::Status CheckResults() const {
    // All contributions there are. Nothing contributes twice, so the number tells that all are in.
    const uint32_t complete = Reduces(plan_.op) ? ranks_ : 1;
    for (uint32_t self = 0; self < plan_.participants(); ++self) {
      for (uint32_t chunk = 0; chunk < plan_.chunks; ++chunk) {
        const Value& found = participants_[self].output[chunk];
        if (found.ranks() == (Owes(self, chunk) ? complete : 0)) continue;
        return absl::FailedPreconditionError(absl::StrCat(
            "participant ", self, " ends with ", Difference(self, chunk), " in chunk ", chunk));
      }
    }
    return absl::OkStatus();
  }

  std::string Difference(uint32_t self, uint32_t chunk) const {
    const Value& found = participants_[self].output[chunk];
    if (found.empty()) return "nothing";
    if (!Owes(self, chunk)) return "something it does not owe";
    uint32_t missing = 0;
    while (found.Has(missing)) ++missing;
    return absl::StrCat("all but participant ", missing, "'s contribution");
  }

  const Plan& plan_;
  const uint32_t ranks_;
  const uint32_t frames_per_edge_;
  std::vector<uint32_t> owner_of_rank_;
  std::vector<Participant> participants_;
  std::vector<Edge> edges_;  // by from * participants + to
};

}  // namespace

absl::Status Check(const Plan& plan, uint32_t frames_per_edge) {
  return Checker(plan, frames_per_edge).Run();
}

absl::Status Check(const Plan& plan) {
  return Check(plan, std::max(kFramesPerEdge, plan.chunks));
}

}  // namespace spccl::plan
