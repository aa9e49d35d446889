#include "daemon/submission_check.h"

#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/shm/order.h"

namespace spccl::daemon {
namespace {

// A range of memory, comparable with others of the same memory.
struct Range {
  uint64_t memory_id;  // 0: the client's address space
  uint64_t start;
  uint64_t bytes;
  bool on_gpu = false;
};

bool HasReservedBits(const shm::Submission& slot) {
  uint64_t bits = slot.reserved | slot.reserved2;
  for (const uint64_t word : slot.reserved3) bits |= word;
  return bits != 0;
}

// Whether the order slot is one that a correct client could name.
bool HasPossibleOrder(const shm::Submission& slot, const SessionView& session) {
  if (slot.order_slot == 0) return slot.order_value == 0;
  if (slot.order_slot > shm::kOrderSlots || !session.has_order) return false;
  return slot.order_slot <= shm::kEagerSlots || slot.order_value == 1;
}

absl::Status CheckCodes(const shm::Submission& slot) {
  if (!IsValidOpKind(slot.op)) {
    return absl::InvalidArgumentError(absl::StrCat("unknown operation ", slot.op));
  }
  if (!IsValidDType(slot.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("unknown data type ", slot.dtype));
  }
  if (!IsValidRedOp(slot.redop)) {
    return absl::InvalidArgumentError(absl::StrCat("unknown reduction ", slot.redop));
  }
  return absl::OkStatus();
}

absl::Status CheckRoot(const OpDesc& op, uint32_t ranks) {
  if (HasRoot(op.kind) ? op.root < ranks : op.root == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("root ", op.root, " of a communicator with ", ranks, " ranks"));
}

// The largest buffer of the operation must be countable in bytes, so that no later product wraps.
absl::Status CheckCount(const OpDesc& op, uint32_t ranks) {
  const uint64_t most = std::numeric_limits<int64_t>::max() / SizeOf(op.dtype) / ranks;
  if (op.count <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("count ", op.count, " is more than ", most, ", the most for ", ranks, " ranks"));
}

absl::StatusOr<Range> Locate(const shm::BufferRef& ref, uint64_t bytes, std::string_view what,
                             bool has_order, const SessionView& session) {
  const absl::string_view name(what.data(), what.size());
  if (ref.buffer_id == shm::kRawAddress) {
    if (has_order) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " buffer is an address, with an order slot"));
    }
    if (!session.attach_possible) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " buffer is an address of a process that has not handed over its memory"));
    }
    if (ref.offset == 0 || bytes > std::numeric_limits<uint64_t>::max() - ref.offset) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " buffer: ", bytes, " bytes at address ", absl::Hex(ref.offset)));
    }
    return Range{.memory_id = 0, .start = ref.offset, .bytes = bytes};
  }
  const std::optional<BufferView> buffer = session.buffer(ref.buffer_id);
  if (!buffer) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " buffer ", ref.buffer_id, " is not registered"));
  }
  if (buffer->on_gpu && !has_order) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " buffer ", ref.buffer_id, " is a GPU's, and no order slot is named"));
  }
  if (ref.offset > buffer->size_bytes || bytes > buffer->size_bytes - ref.offset) {
    return absl::InvalidArgumentError(absl::StrCat(name, " buffer ", ref.buffer_id, ": ", bytes,
                                                   " bytes at offset ", ref.offset, " of ",
                                                   buffer->size_bytes));
  }
  return Range{.memory_id = buffer->memory_id,
               .start = ref.offset,
               .bytes = bytes,
               .on_gpu = buffer->on_gpu};
}

// Where one buffer must start within the other to be "in place": the rank's share of the larger.
absl::Status CheckOverlap(const OpDesc& op, const MemberView& member, const Range& send,
                          const Range& recv) {
  if (send.memory_id != recv.memory_id) return absl::OkStatus();
  if (send.start + send.bytes <= recv.start || recv.start + recv.bytes <= send.start) {
    return absl::OkStatus();
  }
  const uint64_t share = op.count * SizeOf(op.dtype) * member.rank;
  const bool shares = op.kind == OpKind::kReduceScatter || op.kind == OpKind::kScatter;
  const bool in_place = op.kind == OpKind::kAllGather ? send.start == recv.start + share
                        : shares                      ? recv.start == send.start + share
                                                      : send.start == recv.start;
  if (in_place) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("send and receive buffers overlap, but ",
                                                 std::string(NameOf(op.kind)), " is not in place"));
}

absl::Status CheckRelay(const shm::Submission& slot, const MemberView& member) {
  if (slot.relay == 0 || (slot.relay == 1 && member.has_relays)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("relay ", slot.relay, " of a communicator that has ",
                   member.has_relays ? "relays: 0 or 1 can be" : "no relays"));
}

absl::Status CheckMemory(const OpDesc& op, const MemberView& member, const shm::Submission& slot,
                         const SessionView& session) {
  if (op.count == 0) return absl::OkStatus();
  const uint64_t recv_bytes = RecvElements(op, member.ranks) * SizeOf(op.dtype);
  const bool has_order = slot.order_slot != 0;
  SPCCL_ASSIGN_OR_RETURN(const Range recv,
                         Locate(slot.recv, recv_bytes, "receive", has_order, session));
  if (HasRoot(op.kind) && op.root != member.rank) return absl::OkStatus();
  const uint64_t send_bytes = SendElements(op, member.ranks) * SizeOf(op.dtype);
  SPCCL_ASSIGN_OR_RETURN(const Range send,
                         Locate(slot.send, send_bytes, "send", has_order, session));
  if (send.on_gpu != recv.on_gpu) {
    return absl::FailedPreconditionError(
        absl::StrCat("the ", send.on_gpu ? "send" : "receive", " buffer is a GPU's and the ",
                     send.on_gpu ? "receive" : "send", " buffer the host's"));
  }
  return CheckOverlap(op, member, send, recv);
}

absl::Status CheckArguments(const shm::Submission& slot, const SessionView& session, OpDesc* op) {
  const std::optional<MemberView> member = session.member(slot.comm_id);
  if (!member) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator ", slot.comm_id, " is not one of this process"));
  }
  SPCCL_RETURN_IF_ERROR(CheckCodes(slot));
  *op = OpDesc{.kind = static_cast<OpKind>(slot.op),
               .dtype = static_cast<DType>(slot.dtype),
               .redop = static_cast<RedOp>(slot.redop),
               .root = slot.root,
               .count = slot.count};
  if (!Reduces(op->kind) && slot.redop != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("reduction ", slot.redop, " where nothing is reduced"));
  }
  SPCCL_RETURN_IF_ERROR(CheckRoot(*op, member->ranks));
  SPCCL_RETURN_IF_ERROR(CheckCount(*op, member->ranks));
  SPCCL_RETURN_IF_ERROR(CheckRelay(slot, *member));
  return CheckMemory(*op, *member, slot, session);
}

}  // namespace

SlotCheck CheckSubmission(const shm::Submission& slot, const SessionView& session) {
  SlotCheck check;
  if (HasReservedBits(slot)) {
    check.fault = SlotFault::kCorrupt;
    check.status = absl::InvalidArgumentError("reserved bits of a submission are set");
    return check;
  }
  if (!HasPossibleOrder(slot, session)) {
    check.fault = SlotFault::kCorrupt;
    check.status = absl::InvalidArgumentError(
        absl::StrCat("order slot ", slot.order_slot, " with value ", slot.order_value));
    return check;
  }
  check.status = CheckArguments(slot, session, &check.op);
  if (!check.status.ok()) check.fault = SlotFault::kCaller;
  return check;
}

}  // namespace spccl::daemon
