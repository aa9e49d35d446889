#include "client/gpu_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::client {
namespace {

class WorkPart final : public GpuPart {
 public:
  explicit WorkPart(std::shared_ptr<GpuWork> work) : work_(std::move(work)) {}

  void End(const absl::Status& result) override {
    const GpuWork& work = *work_;
    // The daemon's stream has written it where all went well.
    if (!result.ok()) work.order->StoreDone(work.use);
    // What was captured keeps its slot and its buffer for the next replay.
    if (work.use.is_captured()) return;
    const bool is_staged = work.places.staging != nullptr;
    // After an error the stream may still be on its way to its `ready`, which nobody waits for.
    work.order->GiveBack(work.use, result.ok() || is_staged);
    if (is_staged) work.places.staging->NoteEnd(/*daemon_let_go=*/result.ok());
  }

 private:
  const std::shared_ptr<GpuWork> work_;
};

absl::Status CopyIn(const cuda::Driver& driver, const GpuWork& work, cuda::Stream stream) {
  if (work.places.staging == nullptr || work.bytes.send_bytes == 0) return absl::OkStatus();
  return driver.ToStatus(
      driver.MemcpyAsync(work.places.staging->pointer() + work.places.send_offset,
                         reinterpret_cast<uint64_t>(work.call.send), work.bytes.send_bytes, stream),
      "copying from the GPU");
}

absl::Status CopyOut(const cuda::Driver& driver, const GpuWork& work, cuda::Stream stream) {
  if (work.places.staging == nullptr || work.bytes.recv_bytes == 0) return absl::OkStatus();
  return driver.ToStatus(
      driver.MemcpyAsync(reinterpret_cast<uint64_t>(work.call.recv),
                         work.places.staging->pointer() + work.places.recv_offset,
                         work.bytes.recv_bytes, stream),
      "copying to the GPU");
}

// The host functions' data; each owns what it points to.
struct Submittal {
  std::shared_ptr<Comm> comm;
  std::shared_ptr<Operation> op;
  std::shared_ptr<GpuWork> work;
};

// On the driver's thread: must not call the driver.
void SubmitOnce(void* data) {
  const std::unique_ptr<Submittal> submittal(static_cast<Submittal*>(data));
  // The daemon may take the copy for a GPU's memory, and then waits for this.
  submittal->work->order->StoreReady(submittal->work->use);
  submittal->comm->null_stream()->SubmitReserved(submittal->op);
}

// Likewise, at each replay.
void SubmitAgain(void* data) {
  const std::shared_ptr<GpuWork>& work = *static_cast<std::shared_ptr<GpuWork>*>(data);
  absl::Status status = absl::FailedPreconditionError("the communicator was destroyed");
  if (work->places.staging != nullptr) work->order->StoreReady(work->use);
  if (const std::shared_ptr<Comm> comm = work->comm.lock()) {
    status = comm->Accepts();
    if (status.ok()) {
      status = comm->null_stream()->Enqueue(work->NewOperation(comm, work), /*may_block=*/false);
    }
  }
  // Nothing else would let the stream go on.
  if (!status.ok()) work->order->StoreDone(work->use);
}

void ForgetCaptured(void* data) {
  const std::unique_ptr<std::shared_ptr<GpuWork>> work(
      static_cast<std::shared_ptr<GpuWork>*>(data));
  (*work)->order->GiveBack((*work)->use, /*was_passed=*/true);
  // The pool ends it: here the driver must not be called.
  if ((*work)->places.staging != nullptr) (*work)->places.staging->NoteEnd(true);
}

// What the graph that is being captured on the stream owns from now on; gone with it.
absl::Status GiveToGraph(const cuda::Driver& driver, cuda::Stream stream,
                         std::shared_ptr<GpuWork>* work) {
  int status = 0;
  cuda::Graph graph = nullptr;
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.StreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr),
      "cuStreamGetCaptureInfo"));
  cuda::UserObject object = nullptr;
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.UserObjectCreate(&object, work, ForgetCaptured, 1, cuda::kUserObjectNoDestructorSync),
      "cuUserObjectCreate"));
  const absl::Status given =
      driver.ToStatus(driver.GraphRetainUserObject(graph, object, 1, cuda::kGraphUserObjectMove),
                      "cuGraphRetainUserObject");
  if (!given.ok()) (void)driver.UserObjectRelease(object, 1);
  return given;
}

}  // namespace

std::shared_ptr<Operation> GpuWork::NewOperation(const std::shared_ptr<Comm>& owner,
                                                 const std::shared_ptr<GpuWork>& self) const {
  return Operation::CreateOnGpu(owner, call, bytes,
                                {.send = places.send,
                                 .recv = places.recv,
                                 .order_slot = use.slot + 1,
                                 .order_value = use.value},
                                std::make_shared<WorkPart>(self));
}

absl::Status EnqueueDirect(const cuda::Driver& /*driver*/, const std::shared_ptr<Comm>& comm,
                           const std::shared_ptr<GpuWork>& work, cuda::Stream stream) {
  absl::Status status = work->order->EnqueueReady(work->use, stream);
  if (status.ok()) status = work->order->EnqueueWait(work->use, stream);
  if (!status.ok()) {
    work->order->GiveBack(work->use, /*was_passed=*/false);
    return status;
  }
  const std::shared_ptr<Operation> op = work->NewOperation(comm, work);
  status = comm->null_stream()->Enqueue(op, /*may_block=*/false);
  if (status.ok()) return status;
  work->order->StoreDone(work->use);
  work->order->GiveBack(work->use, /*was_passed=*/false);
  return status;
}

absl::Status EnqueueStaged(const cuda::Driver& driver, const std::shared_ptr<Comm>& comm,
                           const std::shared_ptr<GpuWork>& work, cuda::Stream stream) {
  const std::shared_ptr<Operation> op = work->NewOperation(comm, work);
  SPCCL_RETURN_IF_ERROR(CopyIn(driver, *work, stream));
  SPCCL_RETURN_IF_ERROR(comm->null_stream()->Reserve(op));
  auto submittal = std::make_unique<Submittal>(Submittal{comm, op, work});
  absl::Status status = driver.ToStatus(driver.LaunchHostFunc(stream, SubmitOnce, submittal.get()),
                                        "cuLaunchHostFunc");
  const bool submits = status.ok();
  if (submits) {
    (void)submittal.release();
    status = work->order->EnqueueWait(work->use, stream);
    if (status.ok()) status = CopyOut(driver, *work, stream);
  }
  // Also after an error: what is enqueued so far may run.
  const absl::Status recorded = work->places.staging->RecordLastCopy(stream);
  if (status.ok()) status = recorded;
  // It has its place in the communicator's order, which cannot be given back.
  if (!status.ok()) comm->null_stream()->FailReserved(op, status);
  return status;
}

absl::Status EnqueueCaptured(const cuda::Driver& driver, const std::shared_ptr<GpuWork>& work,
                             cuda::Stream stream) {
  auto kept = std::make_unique<std::shared_ptr<GpuWork>>(work);
  std::shared_ptr<GpuWork>* const data = kept.get();
  SPCCL_RETURN_IF_ERROR(GiveToGraph(driver, stream, data));
  (void)kept.release();
  SPCCL_RETURN_IF_ERROR(CopyIn(driver, *work, stream));
  if (work->places.staging == nullptr) {
    SPCCL_RETURN_IF_ERROR(work->order->EnqueueReady(work->use, stream));
  }
  SPCCL_RETURN_IF_ERROR(
      driver.ToStatus(driver.LaunchHostFunc(stream, SubmitAgain, data), "cuLaunchHostFunc"));
  SPCCL_RETURN_IF_ERROR(work->order->EnqueueWait(work->use, stream));
  return CopyOut(driver, *work, stream);
}

}  // namespace spccl::client
