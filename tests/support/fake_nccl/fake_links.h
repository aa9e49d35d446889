// What connects the processes of worlds: UNIX sockets, and one thread that serves them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace spccl {

struct FakeWorld;

// What a process says about one of its ranks. Followed by `bytes` bytes.
struct FakeMessage {
  enum class Kind {
    kHello,     // first, to who made the world's id, which follows
    kJoin,      // `rank` of `number`
    kLaunch,    // its kernel `number`; FakeCalls follow
    kRun,       // the kernel has begun
    kData,      // for call `peer` of kernel `number` of `rank`, which receives: what is received
    kFinalize,  // it ends when all do
    kLeave,     // it is gone
    kFail,      // the world ends with error `number`, because of what follows
  };
  Kind kind = Kind::kHello;
  int rank = 0, peer = 0;
  uint64_t number = 0, bytes = 0;
};

// A socket to another process, for one world.
struct FakeLink {
  int fd = -1;                            // < 0: it has ended
  bool dialed = false;                    // to who made the world's id
  bool closing = false;                   // when all has been written
  std::shared_ptr<FakeWorld> world = {};  // null: it has not said which
  std::string in = {}, out = {};          // half a message; what waits for the socket
};

// All functions: with the mutex held.
class FakeLinks {
 public:
  // Who hears of what comes; called by the thread, with the mutex held.
  class Owner {
   public:
    virtual void OnMessage(const std::shared_ptr<FakeLink>& link, const FakeMessage& message,
                           std::string_view bytes) = 0;
    // The other process is gone, or has closed the link.
    virtual void OnEnded(FakeLink* link) = 0;

   protected:
    ~Owner() = default;
  };
  // Both live as long as the process, once there is a link.
  FakeLinks(std::mutex* mutex, Owner* owner) : mutex_(*mutex), owner_(*owner) {}

  // By which other processes of this machine (of its network namespace) reach this one; of no other
  // process, ever.
  const std::string& Listen();
  // What Listen() has said; empty: nothing yet.
  const std::string& name() const { return name_; }
  // A link that has ended if nobody is there.
  std::shared_ptr<FakeLink> Connect(const std::string& name);
  // Does not wait; in order.
  void Send(FakeLink* link, FakeMessage message, std::string_view bytes = {});
  // When what was sent has been written. The owner is not told.
  void Close(FakeLink* link);

 private:
  void Start();
  void Add(std::shared_ptr<FakeLink> link);
  void Wake() const;
  void Serve();
  void ServeOne(const std::shared_ptr<FakeLink>& link);
  bool Read(const std::shared_ptr<FakeLink>& link);
  static void Write(FakeLink* link);

  std::mutex& mutex_;
  Owner& owner_;
  std::string name_;
  int listener_ = -1, wake_ = -1;
  std::vector<std::shared_ptr<FakeLink>> links_;
};

}  // namespace spccl
