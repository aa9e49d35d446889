#include "client/gpu_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/error.h"

namespace spccl::client {
namespace {

class WorkPart final : public GpuPart {
 public:
  explicit WorkPart(std::shared_ptr<GpuWork> work) : work_(std::move(work)) {}

  void End(const absl::Status& result, bool by_daemon) override {
    const GpuWork& work = *work_;
    // Not once more: the next replay, of this graph or of another that has got the slot, would take
    // it for its own.
    if (!result.ok() && !by_daemon) work.order->StoreDone(work.use);
    // What was captured keeps its slot and its buffer for the next replay.
    if (work.use.is_captured()) {
      if (!result.ok() && by_daemon) work.order->NoteError(work.use);
      return;
    }
    // After an error the stream may still be on its way to its `ready`, which nobody waits for.
    work.order->GiveBack(work.use, result.ok());
    if (work.places.staging != nullptr) work.places.staging->NoteEnd(result.ok());
  }

 private:
  const std::shared_ptr<GpuWork> work_;
};

absl::Status CopyIn(const cuda::Driver& driver, const GpuWork& work, cuda::Stream stream) {
  if (work.places.staging == nullptr || work.bytes.send_bytes == 0) return absl::OkStatus();
  return driver.ToStatus(
      driver.MemcpyAsync(work.places.staging->pointer() + work.places.send_offset,
                         AddressOf(work.call.send), work.bytes.send_bytes, stream),
      "copying from the GPU");
}

absl::Status CopyOut(const cuda::Driver& driver, const GpuWork& work, cuda::Stream stream) {
  if (work.places.staging == nullptr || work.bytes.recv_bytes == 0) return absl::OkStatus();
  return driver.ToStatus(
      driver.MemcpyAsync(AddressOf(work.call.recv),
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
  if (work->places.staging != nullptr) work->order->StoreReady(work->use);
  const absl::Status status = CatchAll([&]() -> absl::Status {
    const std::shared_ptr<Comm> comm = work->comm.lock();
    if (comm == nullptr) return absl::FailedPreconditionError("the communicator was destroyed");
    SPCCL_RETURN_IF_ERROR(comm->Accepts());
    return comm->null_stream()->Enqueue(work->NewOperation(comm, work), /*may_block=*/false);
  });
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

// The graph that is being captured on the stream owns it from now on; it goes with it, or at once
// after an error.
absl::Status GiveToGraph(const cuda::Driver& driver, cuda::Stream stream,
                         std::unique_ptr<std::shared_ptr<GpuWork>> work) {
  int status = 0;
  cuda::Graph graph = nullptr;
  cuda::UserObject object = nullptr;
  absl::Status made = driver.ToStatus(
      driver.StreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr),
      "cuStreamGetCaptureInfo");
  if (made.ok()) {
    made = driver.ToStatus(driver.UserObjectCreate(&object, work.get(), ForgetCaptured, 1,
                                                   cuda::kUserObjectNoDestructorSync),
                           "cuUserObjectCreate");
  }
  if (!made.ok()) {
    (*work)->GiveUp();
    return made;
  }
  (void)work.release();
  const absl::Status given =
      driver.ToStatus(driver.GraphRetainUserObject(graph, object, 1, cuda::kGraphUserObjectMove),
                      "cuGraphRetainUserObject");
  if (!given.ok()) (void)driver.UserObjectRelease(object, 1);
  return given;
}

}  // namespace

void GpuWork::GiveUp() const {
  if (use.slot != shm::kNoOrder) order->GiveBack(use, /*was_passed=*/true);
  if (places.staging != nullptr) places.staging->NoteEnd(/*daemon_let_go=*/true);
}

std::shared_ptr<Operation> GpuWork::NewOperation(const std::shared_ptr<Comm>& owner,
                                                 const std::shared_ptr<GpuWork>& self) const {
  return Operation::CreateOnGpu(owner, call, bytes,
                                {.send = places.send,
                                 .recv = places.recv,
                                 .order_slot = use.slot + 1,
                                 .order_value = use.value},
                                std::make_shared<WorkPart>(self));
}

namespace {

// Of memory that was handed over.
class DirectEnqueue final : public GpuEnqueue {
 public:
  using GpuEnqueue::GpuEnqueue;

  absl::Status Begin() override {
    absl::Status status = work_->order->EnqueueReady(work_->use, stream_);
    if (!status.ok()) work_->GiveUp();
    return status;
  }

  absl::Status End() override {
    absl::Status status = CatchAll([this]() -> absl::Status {
      SPCCL_RETURN_IF_ERROR(work_->order->EnqueueWait(work_->use, stream_));
      return comm_->null_stream()->Enqueue(work_->NewOperation(comm_, work_), /*may_block=*/false);
    });
    if (status.ok()) return status;
    // `ready` is on the stream; nobody else will write `done`.
    work_->order->StoreDone(work_->use);
    work_->order->GiveBack(work_->use, /*was_passed=*/false);
    return status;
  }
};

// Of memory that is copied.
class StagedEnqueue final : public GpuEnqueue {
 public:
  using GpuEnqueue::GpuEnqueue;

  absl::Status Begin() override {
    absl::Status status = CatchAll([this]() -> absl::Status {
      op_ = work_->NewOperation(comm_, work_);
      SPCCL_RETURN_IF_ERROR(CopyIn(driver_, *work_, stream_));
      return comm_->null_stream()->Reserve(op_);
    });
    if (!status.ok()) {
      // The copy may be on the stream.
      (void)work_->places.staging->RecordLastCopy(stream_);
      work_->GiveUp();
      return status;
    }
    status = EnqueueSubmittal();
    return status.ok() ? status : Settle(status);
  }

  absl::Status End() override {
    absl::Status status = work_->order->EnqueueWait(work_->use, stream_);
    if (status.ok()) status = CopyOut(driver_, *work_, stream_);
    return Settle(status);
  }

 private:
  absl::Status EnqueueSubmittal() {
    const absl::Status launched = CatchAll([this]() -> absl::Status {
      auto submittal = std::make_unique<Submittal>(Submittal{comm_, op_, work_});
      SPCCL_RETURN_IF_ERROR(driver_.ToStatus(
          driver_.LaunchHostFunc(stream_, SubmitOnce, submittal.get()), "cuLaunchHostFunc"));
      (void)submittal.release();
      return absl::OkStatus();
    });
    // The slot is used again once this is there, and no host function will write it.
    if (!launched.ok()) work_->order->StoreReady(work_->use);
    return launched;
  }

  // Also after an error: what is enqueued so far may run, and its place in the communicator's order
  // cannot be given back.
  absl::Status Settle(absl::Status status) {
    const absl::Status recorded = work_->places.staging->RecordLastCopy(stream_);
    if (status.ok()) status = recorded;
    if (!status.ok()) comm_->null_stream()->FailReserved(op_, status);
    return status;
  }

  std::shared_ptr<Operation> op_;
};

// Each replay of the graph that is being captured on the stream makes the call anew.
class CapturedEnqueue final : public GpuEnqueue {
 public:
  using GpuEnqueue::GpuEnqueue;

  absl::Status Begin() override {
    std::unique_ptr<std::shared_ptr<GpuWork>> kept;
    const absl::Status made = CatchAll([&] {
      kept = std::make_unique<std::shared_ptr<GpuWork>>(work_);
      return absl::OkStatus();
    });
    if (!made.ok()) {
      work_->GiveUp();
      return made;
    }
    std::shared_ptr<GpuWork>* const data = kept.get();
    SPCCL_RETURN_IF_ERROR(GiveToGraph(driver_, stream_, std::move(kept)));
    SPCCL_RETURN_IF_ERROR(CopyIn(driver_, *work_, stream_));
    if (work_->places.staging == nullptr) {
      SPCCL_RETURN_IF_ERROR(work_->order->EnqueueReady(work_->use, stream_));
    }
    return driver_.ToStatus(driver_.LaunchHostFunc(stream_, SubmitAgain, data), "cuLaunchHostFunc");
  }

  absl::Status End() override {
    SPCCL_RETURN_IF_ERROR(work_->order->EnqueueWait(work_->use, stream_));
    return CopyOut(driver_, *work_, stream_);
  }
};

}  // namespace

std::unique_ptr<GpuEnqueue> NewEnqueue(const cuda::Driver& driver, std::shared_ptr<Comm> comm,
                                       std::shared_ptr<GpuWork> work, cuda::Stream stream) {
  const auto make = [&]<typename Way>() -> std::unique_ptr<GpuEnqueue> {
    return std::make_unique<Way>(driver, std::move(comm), std::move(work), stream);
  };
  if (work->use.is_captured()) return make.operator()<CapturedEnqueue>();
  if (work->places.staging != nullptr) return make.operator()<StagedEnqueue>();
  return make.operator()<DirectEnqueue>();
}

}  // namespace spccl::client
