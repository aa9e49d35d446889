// The groups of a world: what the root makes of what is ready, and what the others make of that.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/transport/nccl/world_state.h"

namespace spccl::transport::nccl {

absl::Status WorldState::TakeReady(uint32_t node, const Message& message) {
  if (options.node != options.root) return absl::InvalidArgumentError("it takes us for the root");
  for (const Transfer& transfer : message.transfers) {
    const size_t ranks = options.node_of_rank.size();
    if (transfer.from >= ranks || transfer.to >= ranks || transfer.from == transfer.to ||
        NodeOf(transfer.to) != node) {
      return absl::InvalidArgumentError(absl::StrCat("it is ready for a frame from rank ",
                                                     transfer.from, " to rank ", transfer.to));
    }
    if (++ready_of_rank[transfer.to] > kMostReady) {
      return absl::InvalidArgumentError(
          absl::StrCat("it is ready for more than ", kMostReady, " frames"));
    }
    sequencer.Add(transfer);
  }
  CutGroupsLocked();
  return absl::OkStatus();
}

absl::Status WorldState::TakeDone(uint32_t node, const Message& message) {
  if (options.node != options.root) return absl::InvalidArgumentError("it takes us for the root");
  SPCCL_RETURN_IF_ERROR(sequencer.Done(message.group, node));
  CutGroupsLocked();
  return absl::OkStatus();
}

void WorldState::CutGroupsLocked() {
  while (const auto group = sequencer.Next()) {
    std::map<uint32_t, Message> messages;
    for (const Transfer& transfer : group->transfers) {
      --ready_of_rank[transfer.to];
      for (const uint32_t node : std::set{NodeOf(transfer.from), NodeOf(transfer.to)}) {
        messages[node].transfers.push_back(transfer);
      }
    }
    for (auto& [node, message] : messages) {
      message.kind = MessageKind::kGroup;
      message.group = group->number;
      PostLocked(node, std::move(message));
    }
  }
}

absl::Status WorldState::TakeGroup(const Message& message) {
  if (message.group <= last_group) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", message.group, " comes after group ", last_group));
  }
  last_group = message.group;
  std::map<uint32_t, std::shared_ptr<GroupPart>> parts;
  for (const Transfer& transfer : message.transfers) {
    SPCCL_RETURN_IF_ERROR(AddToPartsLocked(transfer, &parts));
  }
  if (parts.empty()) return absl::InvalidArgumentError("a group in which we have no part");
  parts_of_group[message.group] = parts.size();
  for (auto& [rank, part] : parts) {
    part->number = message.group;
    Slot* const slot = SlotOf(rank);
    slot->local.issuer->Post(
        [member = slot->member, part = std::move(part)] { member->Issue(part); });
  }
  return absl::OkStatus();
}

absl::Status WorldState::AddToPartsLocked(const Transfer& transfer,
                                          std::map<uint32_t, std::shared_ptr<GroupPart>>* parts) {
  const auto wrong = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(what, " (frame ", transfer.id, " of ",
                                                   transfer.bytes, " bytes from rank ",
                                                   transfer.from, " to rank ", transfer.to, ")"));
  };
  const size_t ranks = options.node_of_rank.size();
  if (transfer.from >= ranks || transfer.to >= ranks) return wrong("a group with unknown ranks");
  const auto add = [&](uint32_t rank, uint32_t peer, const Frame& frame) {
    std::shared_ptr<GroupPart>& part = (*parts)[rank];
    if (part == nullptr) {
      part = std::make_shared<GroupPart>();
      part->keeps = std::make_shared<PartFrames>();
    }
    part->pieces.push_back({.sends = rank == transfer.from,
                            .peer = peer,
                            .data = frame.data(),
                            .bytes = transfer.bytes});
    auto& items = std::static_pointer_cast<PartFrames>(part->keeps)->items;
    items.emplace_back();
    items.back().sends = rank == transfer.from;
    return &items.back();
  };
  if (SlotOf(transfer.from) != nullptr) {
    const auto out = outgoing.find(transfer.id);
    if (out == outgoing.end() || !out->second.offered || out->second.bytes != transfer.bytes ||
        out->second.from != transfer.from || out->second.to_node != NodeOf(transfer.to)) {
      blamed = transfer.to;  // or the root, which says it after it
      return wrong("it takes a frame that was not offered so");
    }
    auto* const item = add(transfer.from, transfer.to, out->second.frame);
    item->out = std::move(out->second);
    outgoing.erase(out);
  }
  if (SlotOf(transfer.to) != nullptr) {
    const auto in = incoming.find({NodeOf(transfer.from), transfer.id});
    if (in == incoming.end() || !in->second.ready || in->second.bytes != transfer.bytes ||
        in->second.from != transfer.from || in->second.to != transfer.to) {
      return wrong("it groups a frame that we were not ready for");
    }
    auto* const item = add(transfer.to, transfer.from, in->second.frame);
    item->in = std::move(in->second);
    incoming.erase(in);
  }
  return absl::OkStatus();
}

void WorldState::OnPartDone(Slot* slot, const std::shared_ptr<GroupPart>& part) {
  Lock lock(mutex);
  if (failure.has_value() || closing) return;
  const auto group = parts_of_group.find(part->number);
  SPCCL_CHECK(group != parts_of_group.end());
  if (--group->second == 0) {
    PostLocked(options.root, {.kind = MessageKind::kDone, .group = part->number});
    parts_of_group.erase(group);
  }
  std::vector<OperationPtr> received;
  for (PartFrames::Item& item : std::static_pointer_cast<PartFrames>(part->keeps)->items) {
    if (item.sends) {
      ReleaseLocked(item.out);
      PumpLocked(item.out.operation, {item.out.tag.from, item.out.tag.to});
      item.out.frame = Frame();
      continue;
    }
    --slot->ready;
    slot->ready_bytes -= CostOf(item.in.bytes);
    Operation& operation = *item.in.operation;
    if (operation.stopped || operation.failure.has_value()) continue;
    operation.inbox[slot->local.rank].push_back({.tag = item.in.tag,
                                                 .bytes = item.in.bytes,
                                                 .is_here = true,
                                                 .frame = std::move(item.in.frame)});
    if (received.empty() || received.back() != item.in.operation) {
      received.push_back(item.in.operation);
    }
  }
  if (!slot->pending.empty()) PostAcceptLocked(slot);
  for (const OperationPtr& operation : received) Deliver(&lock, operation, slot->local.rank);
  Leave(&lock);
}

}  // namespace spccl::transport::nccl
