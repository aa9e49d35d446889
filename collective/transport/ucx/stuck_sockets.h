// Which of a worker's TCP connections take nothing more: their peer was cut off, or froze.
#pragma once

#include <cstdint>
#include <map>

namespace spccl::transport::ucx {

// UCX 1.13 ends a connection by a last message that it tries to send until the kernel takes it. To
// a peer that is gone without a word this takes minutes, and the worker does nothing else
// meanwhile. So a connection is ended only when each of the worker's that is full was seen to move;
// one that stays as it is is shut down, and ends with an error instead. UCX does not tell which
// connection is whose: hence all of them.
//
// Linux only: the connections are those that the worker's event descriptor watches, by /proc. Where
// that cannot be read, none is ever found stuck. Not thread-safe.
class StuckSockets {
 public:
  // The descriptor of ucp_worker_get_efd: it watches others, which watch the connections.
  explicit StuckSockets(int event_fd) : event_fd_(event_fd) {}

  // Another connection is to be ended: what moved until now has to be seen moving again.
  void Begin();

  // Shuts down every connection that is full and whose peer has acknowledged nothing for so long,
  // as far as these calls saw. True if none is left that may be stuck.
  bool Clear(int64_t now_ns, int64_t patience_ns);

 private:
  struct Full {
    uint64_t acknowledged_bytes = 0;
    int64_t since_ns = 0;
    bool moves = false;
  };

  const int event_fd_;
  std::map<int, Full> seen_;  // full ones, by descriptor
};

}  // namespace spccl::transport::ucx
