// How frames get from one participant of an operation to another.
//
// transport/local moves them within the daemon, transport/ucx between nodes, transport/mesh both;
// transport/fake is for tests.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "collective/plan/plan.h"
#include "collective/transport/frame_pool.h"

namespace spccl::transport {

// What a frame is, beside its bytes. The receiver checks it against the step that it is at.
// Participants are named by the lowest of their ranks, among all of the operation.
struct Tag {
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t lane = 0;  // which slice of every chunk
  uint32_t chunk = 0;
  Phase phase = Phase::kReduceScatter;
};

// A frame that is not there yet.
struct FrameSize {
  Tag tag;
  uint64_t bytes = 0;
};

// Whose failure it is, where that is not known.
inline constexpr uint32_t kNobody = UINT32_MAX;

// Where frames arrive. Methods are thread-safe, do not block, and may be called from within Send.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void OnFrame(const Tag& tag, Frame frame) = 0;
  // `rank`: who is lost, or kNobody.
  virtual void OnPeerFailed(uint32_t rank, absl::Status reason) = 0;
  // The frame is on its way, and has this size. Not all transports tell, nor of all frames; those
  // that do tell once, before the frame's OnFrame, which does not begin before this has returned,
  // and in the order in which frames of one lane from one participant to another arrive.
  virtual void OnAnnounced(const FrameSize& /*size*/) {}
  // A rank that HasRoom was false for may have room again.
  virtual void OnRoom() {}
};

// The frames of one operation. Frames of one lane from one participant to another arrive once each
// and in the order of their sends; others in any order.
class Transport {
 public:
  virtual ~Transport() = default;

  // Called once, before the first Send. The sink stays until Stop has returned. Frames may come
  // from then on.
  virtual void Start(Sink* sink) = 0;

  // Takes the frame; returns without waiting for its arrival. Thread-safe. An error is final: the
  // receiver is out of reach.
  virtual absl::Status Send(const Tag& tag, Frame frame) = 0;

  // Whether it carries frames that are in a GPU's memory (Frame::gpu), and brings such: those of
  // lane l in the memory of the l-th of the GPUs that the node's ranks use, modulo their number.
  virtual bool TakesGpuFrames() const { return false; }

  // Tells the receivers the sizes of frames that will be sent, before they are there, so that room
  // is made for them. Each is then sent with this size, if Stop does not come before. Thread-safe;
  // may be called from within the sink, and may call it. An error is final, as Send's.
  virtual absl::Status AnnounceAhead(std::span<const FrameSize> /*sizes*/) {
    return absl::OkStatus();
  }

  // Whether as little waits on the way to the rank that more should be sent. Where not, OnRoom
  // follows. What is sent all the same is taken: those who ask bound what waits. Thread-safe, does
  // not call the sink.
  virtual bool HasRoom(uint32_t /*to*/) { return true; }

  // When it has returned, the sink is not called any more, but for a call that Stop was called
  // from. Frames on their way are dropped. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace spccl::transport
