// Who connects to this daemon's address for peers, until they have said hello and proved it:
// strangers, of whom only so many are held, and each only so long. (gRPC would hold as many as
// come, for minutes.)
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/peers/address.h"

namespace spccl::daemon::peers {

class Acceptor {
 public:
  // Where one more comes, the one that came first goes.
  static constexpr size_t kMostStrangers = 256;

  // Listens on all addresses that the host has here; port 0: any.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const Address& address,
                                                          int64_t hello_limit_ns);
  ~Acceptor();

  uint16_t port() const { return port_; }
  // Accepts from now on. `take` gets each connection, and may close it whenever it likes.
  void Start(std::function<void(UniqueFd)> take);
  // `take` is not called any more.
  void Stop();
  // Whoever connected from there, as gRPC calls it ("ipv4:10.0.0.2:40962"), is no stranger any
  // more. Thread-safe.
  void Welcome(const std::string& remote);

 private:
  // A socket that somebody else owns by now, and how it is known again.
  struct Stranger {
    int fd;
    uint64_t cookie;
    std::string remote;  // an address and a port
    int64_t since_ns;
  };

  explicit Acceptor(int64_t hello_limit_ns) : hello_limit_ns_(hello_limit_ns) {}
  absl::Status Bind(const Address& address);
  void Run();
  void Accept(int listener);
  // Cuts off those whose time is up. Returns how long the next has, in milliseconds; -1: there is
  // none.
  int CutOff();

  const int64_t hello_limit_ns_;
  uint16_t port_ = 0;
  std::vector<UniqueFd> listeners_;
  UniqueFd stop_;
  std::function<void(UniqueFd)> take_;
  bool connections_wait_ = false;  // for descriptors or memory, and that has been said
  std::mutex mutex_;
  std::deque<Stranger> strangers_;  // by age
  std::thread thread_;
};

}  // namespace spccl::daemon::peers
