// A PeerNet that notes what it is told, and lets a test wait for it.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/peers/peer_net.h"

namespace spccl::daemon::peers {

class Node {
 public:
  struct Peer {
    int ups = 0;
    PeerInfo info;
    std::vector<v1::PeerMessage> messages;
    int downs = 0;
    absl::Status down;
  };

  explicit Node(PeerNetOptions options) : options_(std::move(options)) {
    absl::StatusOr<std::unique_ptr<PeerNet>> net = PeerNet::Create(
        options_,
        {.on_up = [this](PeerId id, const PeerInfo& info) { Up(id, info); },
         .on_message = [this](PeerId id,
                              v1::PeerMessage message) { Message(id, std::move(message)); },
         .on_down = [this](PeerId id, const absl::Status& status) { DownWith(id, status); }});
    status_ = net.status();
    if (net.ok()) net_ = *std::move(net);
  }

  const absl::Status& status() const { return status_; }
  PeerNet* operator->() { return net_.get(); }
  uint64_t boot_id() const { return options_.boot_id; }
  void Stop() { net_.reset(); }

  PeerId Connect(Node& other) { return Connect(other->address(), other.boot_id()); }
  PeerId Connect(const std::string& address, uint64_t boot_id) {
    const absl::StatusOr<PeerId> id = net_->Connect(address, boot_id);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }

  // Waits until `wanted` is true of the peer; false after ten seconds, or the time given.
  bool Await(PeerId id, const std::function<bool(const Peer&)>& wanted) {
    return AwaitFor(id, 10'000'000'000, wanted);
  }
  bool AwaitFor(PeerId id, int64_t ns, const std::function<bool(const Peer&)>& wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(ns),
                             [&] { return wanted(peers_[id]); });
  }
  // The same of all peers that ever were.
  bool AwaitAll(const std::function<bool(const std::map<PeerId, Peer>&)>& wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return wanted(peers_); });
  }
  bool AwaitUp(PeerId id) {
    return Await(id, [](const Peer& peer) { return peer.ups == 1; });
  }
  absl::Status AwaitDown(PeerId id) {
    EXPECT_TRUE(Await(id, [](const Peer& peer) { return peer.downs == 1; })) << "not down";
    return Get(id).down;
  }
  // The peer that came up with this boot id, waited for.
  PeerId AwaitPeer(uint64_t boot_id) {
    std::unique_lock lock(mutex_);
    PeerId found = 0;
    const auto look = [&] {
      for (const auto& [id, peer] : peers_) {
        if (peer.ups == 1 && peer.downs == 0 && peer.info.boot_id == boot_id) found = id;
      }
      return found != 0;
    };
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(10), look)) << "no peer " << boot_id;
    return found;
  }
  Peer Get(PeerId id) {
    const std::lock_guard lock(mutex_);
    return peers_[id];
  }
  std::map<PeerId, Peer> all() {
    const std::lock_guard lock(mutex_);
    return peers_;
  }
  // Called for each message, by the net's thread.
  std::function<void(PeerId, const v1::PeerMessage&)> echo;

 private:
  void Up(PeerId id, const PeerInfo& info) {
    const std::lock_guard lock(mutex_);
    ++peers_[id].ups;
    peers_[id].info = info;
    EXPECT_EQ(peers_[id].downs, 0);
    changed_.notify_all();
  }
  void Message(PeerId id, v1::PeerMessage message) {
    if (echo) echo(id, message);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(peers_[id].ups, 1);
    EXPECT_EQ(peers_[id].downs, 0);
    peers_[id].messages.push_back(std::move(message));
    changed_.notify_all();
  }
  void DownWith(PeerId id, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    ++peers_[id].downs;
    peers_[id].down = status;
    changed_.notify_all();
  }

  const PeerNetOptions options_;
  absl::Status status_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<PeerId, Peer> peers_;
  std::unique_ptr<PeerNet> net_;  // last: it calls back until it is gone
};

inline PeerNetOptions OptionsOf(uint64_t boot_id) {
  PeerNetOptions options;
  options.boot_id = boot_id;
  options.name = "node" + std::to_string(boot_id);
  options.version = "1.2.3";
  return options;
}

// A message that carries a number, to be told apart.
inline v1::PeerMessage Numbered(uint32_t number) {
  v1::PeerMessage message;
  message.mutable_join()->set_rank(number);
  return message;
}
inline std::vector<uint32_t> NumbersOf(const Node::Peer& peer) {
  std::vector<uint32_t> numbers;
  for (const v1::PeerMessage& message : peer.messages) numbers.push_back(message.join().rank());
  return numbers;
}

}  // namespace spccl::daemon::peers
