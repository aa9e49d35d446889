// The frames that wait for room in a link's window, and whose is next: jobs share the link's bytes
// by their weights (see base/fair_clock.h); a job's frames keep their order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "base/fair_clock.h"
#include "collective/transport/frame_pool.h"
#include "collective/transport/link_share.h"
#include "collective/transport/ucx/send_window.h"
#include "collective/transport/ucx/wire.h"

namespace spccl::transport::ucx {

// A message on its way out, with the job that it is of.
struct Outgoing {
  Message message;
  Frame frame;
  std::shared_ptr<const LinkShare> share;
};

// Not thread-safe. Every method works in proportion to the jobs on the link.
class SendQueue {
 public:
  // From so much on, those who ask are told to wait until half of it is left: as much as the window
  // takes at once when it has room again, so that a job whose turn it is has something there.
  static constexpr uint64_t kEnoughBytes = SendWindow::kFullBytes - SendWindow::kLowBytes;

  bool empty() const { return waiting_frames_ == 0; }

  // A frame that need not wait; empty() is true.
  void Charge(const std::shared_ptr<const LinkShare>& share, uint64_t bytes);
  void Push(Outgoing one);
  // The frame whose turn it is; empty() is false.
  Outgoing Pop();

  // Whether more of the job should be sent now; if not, TakeWanted() says when.
  bool HasRoom(const std::shared_ptr<const LinkShare>& share);
  // Whether somebody who was told to wait may ask again. True once.
  bool TakeWanted();

 private:
  struct Job {
    std::shared_ptr<const LinkShare> share;
    FairClock::Account account;
    std::deque<Outgoing> waiting;
    uint64_t waiting_bytes = 0;
    bool wanted = false;  // somebody was told to wait
  };
  Job& Find(const std::shared_ptr<const LinkShare>& share);
  void Begin(Job* job, uint64_t bytes);

  FairClock clock_;
  std::map<const LinkShare*, Job> jobs_;
  uint64_t waiting_frames_ = 0;
};

}  // namespace spccl::transport::ucx
