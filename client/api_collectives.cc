// The C API's collectives: whose memory a call is on, and which stream it joins.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/api_border.h"
#include "client/collective_call.h"
#include "client/group.h"
#include "client/include/spccl/spccl.h"
#include "client/process.h"

namespace spccl::client {
namespace {

// Whether an empty call may be on a CUDA stream: of the default one its buffers, if there are any,
// say whose it is.
bool MayBeOnGpu(Process& process, const Launch& launch, spcclStream_t stream) {
  CudaMemory& memory = process.gpu().memory();
  if (launch.bytes.send_bytes > 0 || launch.bytes.recv_bytes > 0 || memory.driver() == nullptr) {
    return false;
  }
  if (stream != nullptr) return true;
  const auto is_a_gpus = [&memory](const void* data) {
    const auto found = memory.Find(data);
    return !found.ok() || *found != nullptr;
  };
  const void* const send = launch.call.send;
  const void* const recv = launch.call.recv;
  if (send == nullptr && recv == nullptr) return true;
  return (send != nullptr && is_a_gpus(send)) || (recv != nullptr && is_a_gpus(recv));
}

absl::Status NoStreamOfTheHosts(Process& process) {
  return absl::InvalidArgumentError(absl::StrCat(
      "not a stream of spcclStreamCreate: host memory takes such a one, or NULL, and the buffers ",
      process.gpu().memory().driver() == nullptr
          ? "are taken for that, as CUDA was not initialised when a communicator was last made"
          : "are no memory of a GPU (any more)"));
}

// The stream of a call that is on no GPU's memory.
absl::Status FindHostStream(Process& process, spcclStream_t stream, Launch* launch) {
  if (stream != nullptr) {
    auto found = process.streams().Find(stream);
    if (found.ok()) {
      launch->stream = *std::move(found);
      return absl::OkStatus();
    }
    if (process.streams().IsOne(stream)) return found.status();
  }
  launch->is_detached = MayBeOnGpu(process, *launch, stream);
  if (launch->is_detached || stream == nullptr) return absl::OkStatus();
  return NoStreamOfTheHosts(process);
}

absl::Status Collective(Process& process, const std::shared_ptr<Comm>& comm,
                        const CollectiveCall& call, spcclStream_t stream) {
  Launch launch{.comm = comm, .stream = nullptr, .call = call, .bytes = {}};
  SPCCL_RETURN_IF_ERROR(comm->Accepts());
  SPCCL_ASSIGN_OR_RETURN(launch.bytes, CheckCall(call, comm->rank(), comm->ranks()));
  SPCCL_ASSIGN_OR_RETURN(launch.gpu, process.gpu().Find(call, launch.bytes, stream));
  if (launch.gpu && process.streams().IsOne(stream)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the stream is one of spcclStreamCreate, the buffers are memory of GPU ",
        launch.gpu->any().device, ": give the CUDA stream that the program works on them with"));
  }
  if (!launch.gpu) SPCCL_RETURN_IF_ERROR(FindHostStream(process, stream, &launch));
  if (comm->is_lossy()) SPCCL_RETURN_IF_ERROR(CheckLossyCarries(call));
  if (!Group::OfThread().active()) return LaunchNow(process, launch);
  Group::OfThread().Add(std::move(launch));
  return absl::OkStatus();
}

spcclResult_t EnterCollective(const char* function, const CollectiveCall& call, spcclComm_t comm,
                              spcclStream_t stream) noexcept {
  const spcclResult_t result =
      EnterComm(function, comm, [&](Process& process, const std::shared_ptr<Comm>& found) {
        return Collective(process, found, call, stream);
      });
  if (result != spcclSuccess) Group::OfThread().NoteError(StatusOfWire(result, ThreadLastError()));
  return result;
}

}  // namespace
}  // namespace spccl::client

// C functions can be in no namespace, and these speak of nothing but the library's parts.
using namespace spccl::client;  // NOLINT(google-build-using-namespace)

extern "C" {

spcclResult_t spcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                             spcclDataType_t datatype, spcclComm_t comm, spcclStream_t stream) {
  return EnterCollective(__func__,
                         {.op = OpCode::kAllGather,
                          .send = sendbuff,
                          .recv = recvbuff,
                          .count = sendcount,
                          .dtype = CodeOf(datatype)},
                         comm, stream);
}

spcclResult_t spcclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                 spcclDataType_t datatype, spcclRedOp_t op, spcclComm_t comm,
                                 spcclStream_t stream) {
  return EnterCollective(__func__,
                         {.op = OpCode::kReduceScatter,
                          .send = sendbuff,
                          .recv = recvbuff,
                          .count = recvcount,
                          .dtype = CodeOf(datatype),
                          .redop = CodeOf(op)},
                         comm, stream);
}

spcclResult_t spcclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                             spcclDataType_t datatype, spcclRedOp_t op, spcclComm_t comm,
                             spcclStream_t stream) {
  return EnterCollective(__func__,
                         {.op = OpCode::kAllReduce,
                          .send = sendbuff,
                          .recv = recvbuff,
                          .count = count,
                          .dtype = CodeOf(datatype),
                          .redop = CodeOf(op)},
                         comm, stream);
}

spcclResult_t spcclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                             spcclDataType_t datatype, int root, spcclComm_t comm,
                             spcclStream_t stream) {
  return EnterCollective(__func__,
                         {.op = OpCode::kBroadcast,
                          .send = sendbuff,
                          .recv = recvbuff,
                          .count = count,
                          .dtype = CodeOf(datatype),
                          .root = root},
                         comm, stream);
}

spcclResult_t spcclScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                           spcclDataType_t datatype, int root, spcclComm_t comm,
                           spcclStream_t stream) {
  return EnterCollective(__func__,
                         {.op = OpCode::kScatter,
                          .send = sendbuff,
                          .recv = recvbuff,
                          .count = recvcount,
                          .dtype = CodeOf(datatype),
                          .root = root},
                         comm, stream);
}

}  // extern "C"
