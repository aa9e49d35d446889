// Starting collectives, and the groups that put it off.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "client/collective_call.h"
#include "client/comm.h"
#include "client/gpu_launch.h"
#include "client/join.h"
#include "client/process.h"
#include "client/stream.h"

namespace spccl::client {

// A checked collective that is to be started. No stream: the communicator's null stream.
struct Launch {
  std::shared_ptr<Comm> comm;
  std::shared_ptr<Stream> stream;
  CollectiveCall call;
  Footprint bytes;
  std::optional<GpuCall> gpu = std::nullopt;  // on a GPU's memory, and a CUDA stream
  // On the null stream, but nobody waits: an empty call, as it may be on a CUDA stream.
  bool is_detached = false;

  bool waits() const { return stream == nullptr && !gpu && !is_detached; }
};

// Starts it; on the null stream, waits for its end and returns its result.
absl::Status LaunchNow(Process& process, const Launch& launch);

// What one thread has collected between spcclGroupStart and spcclGroupEnd.
class Group {
 public:
  static Group& OfThread();

  bool active() const { return depth_ > 0; }
  void Start(Process& process);
  // The outermost end starts everything and waits for it.
  absl::Status End(Process& process);

  void Add(JoinRequest join);
  void Add(Launch launch) { launches_.push_back(std::move(launch)); }
  // A call inside the group has failed: the group will not be started.
  void NoteError(const absl::Status& status);

 private:
  int depth_ = 0;
  const Process* process_ = nullptr;  // where the group was started
  std::vector<JoinRequest> joins_;
  std::vector<Launch> launches_;
  absl::Status first_error_;
};

}  // namespace spccl::client
