// The collectives of a SoakProcess: buffers, calls, and what came of them.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/soak/process.h"

namespace spccl::bench {
namespace {

std::string Describe(const SoakCall& call) {
  const Operation& op = call.problem.op;
  return absl::StrCat(std::string(NameOf(op.kind)), " ", std::string(NameOf(op.dtype)), " ",
                      std::string(NameOf(op.redop)), " root ", op.root, " count ", op.count,
                      " ranks ", call.problem.ranks, call.in_place ? " in place" : "", " sparsity ",
                      call.sparsity, call.clustered ? " clustered" : "");
}

}  // namespace

bool SoakProcess::RunCalls(const SoakStep& step) {
  std::vector<Part> parts;
  if (!Prepare(step, &parts) || !IssueAll(step.kind, parts)) return false;
  for (const Part& part : parts) {
    if (!Check(part)) return false;
  }
  for (const Part& part : parts) {
    if (part.send.data != nullptr && !memory_.Give(part.send)) return false;
    if (part.recv.data != nullptr && !memory_.Give(part.recv)) return false;
  }
  operations_ += parts.size();
  return true;
}

bool SoakProcess::Prepare(const SoakStep& step, std::vector<Part>* parts) {
  for (const SoakCall& call : step.calls) {
    for (const Member& member : comms_[call.comm].here) {
      const Pattern pattern(call.problem, call.seed, call.sparsity, call.clustered);
      parts->push_back({&call, &comms_[call.comm], member, pattern});
      if (!Place(parts->back())) return false;
    }
  }
  return true;
}

// Buffers of a part, with its input.
bool SoakProcess::Place(Part& part) {
  const SoakCall& call = *part.call;
  const uint32_t rank = part.member.rank;
  const size_t alignment = SizeOf(call.problem.op.dtype);
  const size_t send_bytes = call.Sends(rank) ? call.problem.send_bytes() : 0;
  const size_t recv_bytes = call.problem.recv_bytes();
  bytes_ += send_bytes + recv_bytes;
  if (call.in_place && call.Sends(rank)) {
    const InPlaceOffsets offsets = InPlace(call.problem, rank);
    if (!memory_.Take(std::max(send_bytes, recv_bytes), alignment, &part.recv)) return false;
    part.recv_at = part.recv.data + offsets.recv;
    part.send_at = part.recv.data + offsets.send;
    part.pattern.Fill(rank, part.recv.data + offsets.send);
    return true;
  }
  if (!memory_.Take(recv_bytes, alignment, &part.recv)) return false;
  part.recv_at = part.recv.data;
  if (!call.Sends(rank)) return true;  // null: it is not looked at
  if (!memory_.Take(send_bytes, alignment, &part.send)) return false;
  part.send_at = part.send.data;
  part.pattern.Fill(rank, part.send.data);
  return true;
}

spcclResult_t SoakProcess::Issue(const Part& part, spcclStream_t stream) {
  const Operation& op = part.call->problem.op;
  const auto dtype = static_cast<spcclDataType_t>(op.dtype);
  const auto redop = static_cast<spcclRedOp_t>(op.redop);
  const auto root = static_cast<int>(op.root);
  spcclComm_t comm = part.member.handle;
  switch (op.kind) {
    case Collective::kAllGather:
      return spcclAllGather(part.send_at, part.recv_at, op.count, dtype, comm, stream);
    case Collective::kReduceScatter:
      return spcclReduceScatter(part.send_at, part.recv_at, op.count, dtype, redop, comm, stream);
    case Collective::kAllReduce:
      return spcclAllReduce(part.send_at, part.recv_at, op.count, dtype, redop, comm, stream);
    case Collective::kScatter:
      return spcclScatter(part.send_at, part.recv_at, op.count, dtype, root, comm, stream);
    case Collective::kBroadcast:
      break;
  }
  return spcclBroadcast(part.send_at, part.recv_at, op.count, dtype, root, comm, stream);
}

bool SoakProcess::IssueAll(StepKind kind, std::vector<Part>& parts) {
  if (parts.empty()) return true;
  if (kind == StepKind::kStreams) return IssueOnStreams(parts);
  if (kind == StepKind::kGroup || parts.size() > 1) return IssueGroup(parts);
  return Blame(Issue(parts[0], nullptr), Describe(*parts[0].call), parts);
}

bool SoakProcess::IssueGroup(std::span<Part> parts) {
  spcclResult_t refused = spcclGroupStart();
  std::string phase = "group";
  for (const Part& part : parts) {
    const spcclResult_t result = Issue(part, nullptr);
    if (result == spcclSuccess || refused != spcclSuccess) continue;
    refused = result;
    phase = Describe(*part.call);
  }
  const spcclResult_t ended = spcclGroupEnd();
  return Blame(refused != spcclSuccess ? refused : ended, phase, parts);
}

bool SoakProcess::IssueOnStreams(std::vector<Part>& parts) {
  spcclResult_t first = spcclSuccess;
  const auto keep = [&first](spcclResult_t result) {
    if (first == spcclSuccess) first = result;
  };
  for (const Part& part : parts) {
    const size_t turn = part.call - parts[0].call;
    keep(Issue(part, streams_[part.member.own][turn % 2]));
  }
  for (const Streams& streams : streams_) {
    for (spcclStream_t stream : streams) keep(spcclStreamSynchronize(stream));
  }
  return Blame(first, "streams", parts);
}

bool SoakProcess::Blame(spcclResult_t result, const std::string& phase,
                        std::span<const Part> parts) {
  if (result == spcclSuccess) return true;
  for (const Part& part : parts) {
    // An operation may end before its communicator learns why.
    spcclResult_t failed = parts.size() == 1 ? result : spcclSuccess;
    if (failed == spcclSuccess) spcclCommGetAsyncError(part.member.handle, &failed);
    if (failed == spcclSuccess && *spcclGetLastError(part.member.handle) == '\0') continue;
    failed_members_ = &part.comm->members;
    return failure_.Ok(result, phase, part.member.handle);
  }
  return failure_.Ok(result, phase, nullptr);
}

bool SoakProcess::Check(const Part& part) {
  constexpr size_t kMostCompared = 256 * 1024;
  uint64_t wrong = part.pattern.CountWrong(part.member.rank, part.recv_at);
  std::string what = "elements of the result";
  if (wrong == 0 && part.send.bytes != 0 && part.send.bytes <= kMostCompared) {
    scratch_.resize(part.send.bytes);
    part.pattern.Fill(part.member.rank, scratch_.data());
    wrong = std::memcmp(scratch_.data(), part.send.data, part.send.bytes) != 0 ? 1 : 0;
    what = "change of the send buffer";
  }
  for (const SoakMemory::Region* region : {&part.send, &part.recv}) {
    if (wrong != 0 || region->data == nullptr || SoakMemory::Guarded(*region)) continue;
    wrong = 1;
    what = "write beside a buffer";
  }
  if (wrong == 0) return true;
  wrong_ = absl::StrCat(wrong, " wrong: ", what, ": ", Describe(*part.call), ", rank ",
                        part.member.rank, " of the communicator ", part.call->comm);
  return false;
}

}  // namespace spccl::bench
