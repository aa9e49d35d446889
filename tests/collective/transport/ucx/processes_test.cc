// Fabrics in real processes, over TCP on the loopback interface: what they do to each other, killed
// and frozen.
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/collective/transport/ucx/fabric_support.h"
#include "tests/support/multi_process.h"

namespace spccl::transport::ucx {
namespace {

using ::spccl::testing::AllSucceeded;
using ::spccl::testing::MultiProcess;

constexpr Key128 kKey{1, 2};
constexpr int kTimeoutMs = 60'000;

// One pair of connected sockets for each two processes: the control connections.
class Wires {
 public:
  explicit Wires(int processes) {
    for (int low = 0; low < processes; ++low) {
      for (int high = low + 1; high < processes; ++high) {
        int pair[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        ends_[{low, high}] = pair[0];
        ends_[{high, low}] = pair[1];
      }
    }
  }
  ~Wires() {
    for (const auto& [key, fd] : ends_) ::close(fd);
  }
  bool Send(int from, int to, const std::string& text) const {
    const uint32_t size = static_cast<uint32_t>(text.size());
    const int fd = ends_.at({from, to});
    return ::write(fd, &size, sizeof(size)) == sizeof(size) &&
           ::write(fd, text.data(), size) == static_cast<ssize_t>(size);
  }
  std::string Receive(int to, int from) const {
    uint32_t size = 0;
    const int fd = ends_.at({to, from});
    if (::recv(fd, &size, sizeof(size), MSG_WAITALL) != sizeof(size)) return "";
    std::string text(size, '\0');
    if (::recv(fd, text.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) return "";
    return text;
  }

 private:
  std::map<std::pair<int, int>, int> ends_;
};

// A process with its links to all others, rank = process.
struct Node {
  int self, processes;
  const Wires& wires;
  std::unique_ptr<Fabric> fabric = MakeFabric();
  std::vector<std::shared_ptr<Link>> links;
  std::unique_ptr<Communicator> communicator;

  Node(int self, int processes, const Wires& wires)
      : self(self), processes(processes), wires(wires), links(processes) {
    std::map<int, Offer> own;
    for (int peer = 0; peer < processes; ++peer) {
      if (peer == self) continue;
      own[peer] = fabric->MakeOffer();
      wires.Send(self, peer, FormatOffer(own[peer]));
    }
    std::vector<Event> up(processes);
    for (int peer = 0; peer < processes; ++peer) {
      if (peer == self) continue;
      links[peer] = *fabric->Connect({.name = absl::StrCat("process", peer),
                                      .own = own[peer],
                                      .peer = *ParseOffer(wires.Receive(self, peer)),
                                      .on_up = [&up, peer] { up[peer].Set(); }});
    }
    for (int peer = 0; peer < processes; ++peer) {
      if (peer != self) up[peer].Await();
    }
    communicator = *fabric->OpenCommunicator({kKey, links});
    Barrier();
  }
  void Barrier() const {
    for (int peer = 0; peer < processes; ++peer) {
      if (peer != self) wires.Send(self, peer, "here");
    }
    for (int peer = 0; peer < processes; ++peer) {
      if (peer != self) wires.Receive(self, peer);
    }
  }
};

class ProcessesTest : public ::testing::TestWithParam<int> {};

TEST_P(ProcessesTest, EachFrameOnceInOrderWithItsBytes) {
  const int processes = GetParam();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  const Wires wires(processes);
  MultiProcess team(processes, [&](int self, const MultiProcess::Report& report) {
    Node node(self, processes, wires);
    constexpr int kFrames = 150, kLanes = 4;
    const auto size_of = [&](int from, int to, int frame) {
      std::mt19937_64 random(seed + from * 1'000'003 + to * 10'007 + frame);
      return size_t{1} << (random() % 20);
    };
    auto operation = *node.communicator->OpenOperation(Operation(1));
    RecordingSink sink;
    operation->Start(&sink);
    for (int frame = 0; frame < kFrames; ++frame) {
      for (int to = 0; to < processes; ++to) {
        if (to == self) continue;
        const Tag tag{.from = static_cast<uint32_t>(self),
                      .to = static_cast<uint32_t>(to),
                      .lane = static_cast<uint64_t>(frame % kLanes),
                      .chunk = static_cast<uint32_t>(frame)};
        if (!operation->Send(tag, MakeFrame(size_of(self, to, frame), frame)).ok()) return 2;
      }
    }
    const int expected = kFrames * (processes - 1);
    const auto arrived = sink.AwaitFrames(expected);
    if (arrived.size() != static_cast<size_t>(expected)) return 3;
    std::map<std::pair<uint32_t, uint64_t>, int> last;
    for (const auto& [tag, frame] : arrived) {
      const int number = static_cast<int>(tag.chunk);
      if (last.contains({tag.from, tag.lane}) && last[{tag.from, tag.lane}] >= number) return 4;
      last[{tag.from, tag.lane}] = number;
      if (!Holds(frame, size_of(static_cast<int>(tag.from), self, number), number)) return 5;
    }
    operation->Stop();
    node.Barrier();
    return sink.failures() == 0 ? 0 : 6;
  });
  EXPECT_TRUE(AllSucceeded(team.Wait(kTimeoutMs)));
}

INSTANTIATE_TEST_SUITE_P(Processes, ProcessesTest, ::testing::Values(2, 3));

// Sends to a peer that never answers, until it is told of the failure. Returns only if it is told
// something else.
int ServeUntilFailure(Node* node, const MultiProcess::Report& report, uint32_t victim) {
  auto operation = *node->communicator->OpenOperation(Operation(1));
  RecordingSink sink;
  operation->Start(&sink);
  for (int frame = 0; frame < 50; ++frame) {
    if (!operation
             ->Send({.from = static_cast<uint32_t>(node->self), .to = victim},
                    MakeFrame(500'000, frame))
             .ok()) {
      break;
    }
  }
  report("sent;");
  const auto [rank, reason] = sink.AwaitFailure();
  const int64_t known_ns = MonotonicNanos();
  if (rank != victim || !absl::IsUnavailable(reason)) {
    report(absl::StrCat("rank ", rank, ": ", reason.ToString()));
    return 2;
  }
  operation->Stop();
  if (node->communicator->OpenOperation(Operation(2)).ok()) return 3;
  report(absl::StrCat("failed at ", known_ns, ";"));
  // Until the test ends it: who left now would be one more failure to those who have yet to see the
  // first.
  for (;;) ::pause();
}

TEST(ProcessDeathTest, AKilledPeerIsKnownByAllInThreeSeconds) {
  const Wires wires(3);
  MultiProcess team(3, [&](int self, const MultiProcess::Report& report) {
    Node node(self, 3, wires);
    if (self != 1) return ServeUntilFailure(&node, report, 1);
    auto operation = *node.communicator->OpenOperation(Operation(1));
    RecordingSink sink;
    operation->Start(&sink);
    report("ready;");
    for (;;) ::pause();
  });
  ASSERT_TRUE(team.AwaitReport(1, "ready;", kTimeoutMs));
  ASSERT_TRUE(team.AwaitReport(0, "sent;", kTimeoutMs));
  ASSERT_TRUE(team.AwaitReport(2, "sent;", kTimeoutMs));
  const int64_t killed_ns = MonotonicNanos();
  team.Kill(1, SIGKILL);
  for (int survivor : {0, 2}) {
    EXPECT_TRUE(team.AwaitReport(survivor, "failed at ", kTimeoutMs)) << "process " << survivor;
  }
  for (int survivor : {0, 2}) team.Kill(survivor, SIGKILL);
  const auto ends = team.Wait(kTimeoutMs);
  for (int survivor : {0, 2}) {
    const size_t at = ends[survivor].output.find("failed at ");
    ASSERT_NE(at, std::string::npos) << ends[survivor].output;
    const int64_t known_ns = std::stoll(ends[survivor].output.substr(at + 10));
    EXPECT_GT(known_ns, killed_ns);
    EXPECT_LT(known_ns - killed_ns, 3'000'000'000);
  }
}

// A stopped peer is never told by UCX; but it must hold up nothing here: the daemon's heartbeat
// ends the link, and everything goes on.
TEST(ProcessDeathTest, AFrozenPeerHoldsUpNothing) {
  const Wires wires(3);
  MultiProcess team(3, [&](int self, const MultiProcess::Report& report) {
    Node node(self, 3, wires);
    auto operation = *node.communicator->OpenOperation(Operation(1));
    RecordingSink sink;
    operation->Start(&sink);
    node.Barrier();
    if (self == 1) {
      report("ready;");
      for (;;) ::pause();
    }
    report("ready;");
    node.wires.Receive(self, 1);  // the test has frozen it: see below
    const uint32_t other = 2 - self;
    for (int frame = 0; frame < 50; ++frame) {
      for (uint32_t to : {uint32_t{1}, other}) {
        if (!operation
                 ->Send({.from = static_cast<uint32_t>(self), .to = to}, MakeFrame(500'000, frame))
                 .ok()) {
          return 2;
        }
      }
    }
    if (sink.AwaitFrames(50).size() != 50) return 3;  // of the one that lives
    // What the daemon does when its heartbeat fails.
    node.fabric->Disconnect(node.links[1], absl::UnavailableError("not heard of"));
    if (sink.AwaitFailure().first != 1) return 4;
    operation->Stop();
    operation.reset();
    node.communicator.reset();
    auto again = node.fabric->OpenCommunicator({Key128{5, 5}, [&] {
                                                  std::vector<std::shared_ptr<Link>> links(2);
                                                  links[self == 0 ? 1 : 0] = node.links[other];
                                                  return links;
                                                }()});
    if (!again.ok() || !(*again)->OpenOperation(Operation(1)).ok()) return 5;
    report("done;");
    node.wires.Send(self, static_cast<int>(other), "done");
    node.wires.Receive(self, static_cast<int>(other));
    return 0;
  });
  for (int process : {0, 1, 2}) ASSERT_TRUE(team.AwaitReport(process, "ready;", kTimeoutMs));
  team.Kill(1, SIGSTOP);
  for (int to : {0, 2}) ASSERT_TRUE(wires.Send(1, to, "frozen"));
  for (int process : {0, 2}) EXPECT_TRUE(team.AwaitReport(process, "done;", kTimeoutMs));
  team.Kill(1, SIGKILL);
  const auto ends = team.Wait(kTimeoutMs);
  for (int process : {0, 2}) {
    EXPECT_TRUE(ends[process].exited && ends[process].exit_code == 0)
        << process << ": " << ends[process].exit_code << " " << ends[process].output;
  }
}

}  // namespace
}  // namespace spccl::transport::ucx
