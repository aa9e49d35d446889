#include "collective/runtime/cuda/bounced_transport.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/runtime/cuda/names.h"
#include "kernels/host/codec.h"

namespace spccl::runtime {

using transport::Frame;
using transport::Tag;

namespace {

// That are being copied to the host at a time; more wait in the GPU's memory.
constexpr size_t kMostLeaving = 32;

}  // namespace

template <class What>
void BouncedTransport::State::Call(const What& what) {
  {
    const std::lock_guard lock(mutex);
    if (stopped) return;
    callers.push_back(std::this_thread::get_id());
  }
  what();
  const std::lock_guard lock(mutex);
  callers.erase(std::find(callers.begin(), callers.end(), std::this_thread::get_id()));
  left.notify_all();
}

void BouncedTransport::State::Leave() {
  bool room;
  {
    const std::lock_guard lock(mutex);
    --leaving;
    room = std::exchange(wants_room, false);
  }
  if (room) Call([this] { sink->OnRoom(); });
}

BouncedTransport::BouncedTransport(Gpus& gpus, std::vector<Gpu*> rails,
                                   std::unique_ptr<transport::Transport> far)
    : rails_(std::move(rails)), far_(std::move(far)), state_(std::make_shared<State>(gpus)) {
  state_->far = far_.get();
}

BouncedTransport::~BouncedTransport() {
  Stop();
}

void BouncedTransport::Start(transport::Sink* sink) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->sink = sink;
  }
  far_->Start(this);
}

void BouncedTransport::Stop() {
  {
    std::unique_lock lock(state_->mutex);
    state_->stopped = true;
    // But for a call that this one comes from.
    state_->left.wait(lock, [this] {
      return std::all_of(state_->callers.begin(), state_->callers.end(),
                         [](std::thread::id id) { return id == std::this_thread::get_id(); });
    });
  }
  far_->Stop();
}

absl::Status BouncedTransport::Send(const Tag& tag, Frame frame) {
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->leaving;
  }
  Bring(state_, RailOf(tag.lane), tag, std::move(frame));
  return absl::OkStatus();
}

bool BouncedTransport::HasRoom(uint32_t to) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->leaving >= kMostLeaving) {
      state_->wants_room = true;
      return false;
    }
  }
  return far_->HasRoom(to);
}

absl::StatusOr<Frame> BouncedTransport::StartBringing(State& state, Gpu& gpu, uint64_t lane,
                                                      const Frame& frame) {
  SPCCL_ASSIGN_OR_RETURN(Frame host, gpu.TakePinned(frame.size_bytes()));
  const cuda::Driver& driver = *state.gpus.driver();
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.MemcpyAsync(PointerOf(host.data()), PointerOf(frame.data()), frame.size_bytes(),
                         static_cast<cuda::Stream>(gpu.QueueOf(lane).stream)),
      "cuMemcpyAsync"));
  host.set_size_bytes(frame.size_bytes());
  return host;
}

// One lane's frames go through one stream: they stay in order.
Detached BouncedTransport::Bring(std::shared_ptr<State> state, Gpu& gpu, Tag tag, Frame frame) {
  co_await ThreadOf(gpu);
  absl::StatusOr<Frame> host = StartBringing(*state, gpu, tag.lane, frame);
  absl::Status status = co_await EndOf(gpu, gpu.QueueOf(tag.lane).stream);
  if (!host.ok()) status = host.status();
  if (status.ok()) {
    host->TakeMeter(&frame);
    frame = Frame();
    state->Call([&] { status = state->far->Send(tag, *std::move(host)); });
  }
  frame = Frame();
  if (!status.ok()) state->Call([&] { state->sink->OnPeerFailed(tag.to, status); });
  state->Leave();
}

void BouncedTransport::OnFrame(const Tag& tag, Frame frame) {
  Fetch(state_, RailOf(tag.lane), tag, std::move(frame));
}

absl::StatusOr<Frame> BouncedTransport::StartFetching(State& state, Gpu& gpu, uint64_t lane,
                                                      const Frame& host, Frame* pinned) {
  const FrameFault fault = Validate(host.data(), host.size_bytes());
  if (!fault.ok()) {
    return absl::DataLossError(absl::StrCat("a bad frame: ", std::string(NameOf(fault.error)),
                                            " at byte ", fault.at, ": found ", fault.found,
                                            ", expected ", fault.expected));
  }
  SPCCL_ASSIGN_OR_RETURN(Frame frame, gpu.TakeFrame(host.size_bytes()));
  SPCCL_ASSIGN_OR_RETURN(*pinned, gpu.TakePinned(host.size_bytes()));
  // A copy from memory that is not pinned would hold up this thread until the GPU has made it.
  std::memcpy(pinned->data(), host.data(), host.size_bytes());
  std::memcpy(frame.header(), host.data(), sizeof(FrameHeader));
  const cuda::Driver& driver = *state.gpus.driver();
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.MemcpyAsync(PointerOf(frame.data()), PointerOf(pinned->data()), host.size_bytes(),
                         static_cast<cuda::Stream>(gpu.QueueOf(lane).stream)),
      "cuMemcpyAsync"));
  frame.set_size_bytes(host.size_bytes());
  return frame;
}

Detached BouncedTransport::Fetch(std::shared_ptr<State> state, Gpu& gpu, Tag tag, Frame frame) {
  co_await ThreadOf(gpu);
  Frame pinned;
  absl::StatusOr<Frame> here = StartFetching(*state, gpu, tag.lane, frame, &pinned);
  frame = Frame();
  absl::Status status = co_await EndOf(gpu, gpu.QueueOf(tag.lane).stream);
  pinned = Frame();
  if (!here.ok()) status = here.status();
  state->Call([&] {
    if (status.ok()) {
      state->sink->OnFrame(tag, *std::move(here));
    } else {
      state->sink->OnPeerFailed(tag.from, status);
    }
  });
}

void BouncedTransport::OnPeerFailed(uint32_t rank, absl::Status reason) {
  state_->Call([&] { state_->sink->OnPeerFailed(rank, std::move(reason)); });
}

void BouncedTransport::OnRoom() {
  state_->Call([&] { state_->sink->OnRoom(); });
}

}  // namespace spccl::runtime
