#include "collective/transport/ucx/fabric.h"

#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/collective/transport/ucx/fabric_support.h"

namespace spccl::transport::ucx {
namespace {

constexpr Key128 kKey{1, 2};

TEST(FabricTest, FramesArriveBothWays) {
  Pair pair;
  const auto comm0 = pair.Open(0, kKey), comm1 = pair.Open(1, kKey);
  auto op0 = comm0->OpenOperation(Operation(1)), op1 = comm1->OpenOperation(Operation(1));
  ASSERT_TRUE(op0.ok() && op1.ok());
  RecordingSink sink0, sink1;
  (*op0)->Start(&sink0);
  (*op1)->Start(&sink1);
  const Tag there{.from = 0, .to = 1, .lane = 5, .chunk = 3, .phase = Phase::kAllGather};
  const Tag back{.from = 1, .to = 0, .lane = 6, .chunk = 4};
  ASSERT_TRUE((*op0)->Send(there, MakeFrame(100, 1)).ok());
  ASSERT_TRUE((*op1)->Send(back, MakeFrame(300'000, 2)).ok());
  const auto at1 = sink1.AwaitFrames(1), at0 = sink0.AwaitFrames(1);
  ASSERT_EQ(at1.size(), 1);
  ASSERT_EQ(at0.size(), 1);
  EXPECT_TRUE(Holds(at1[0].frame, 100, 1));
  EXPECT_TRUE(Holds(at0[0].frame, 300'000, 2));
  EXPECT_EQ(at1[0].tag.lane, 5);
  EXPECT_EQ(at1[0].tag.chunk, 3);
  EXPECT_EQ(at1[0].tag.phase, Phase::kAllGather);
  EXPECT_EQ(at0[0].tag.from, 1);
  EXPECT_NE(pair.link[0]->DescribeRoute().find("tcp/"), std::string::npos)
      << pair.link[0]->DescribeRoute();
  const LinkCounters counters = pair.link[0]->counters();
  EXPECT_EQ(counters.frames_sent, 1);
  EXPECT_EQ(counters.bytes_sent, 100);
  EXPECT_EQ(counters.frames_received, 1);
  EXPECT_EQ(counters.bytes_received, 300'000);
  EXPECT_EQ(pair.fabric[0]->counters().refused, 0);
}

TEST(FabricTest, AKeyIsOpenedOnce) {
  const auto fabric = MakeFabric();
  auto comm = fabric->OpenCommunicator({kKey, std::vector<std::shared_ptr<Link>>(3)});
  ASSERT_TRUE(comm.ok());
  EXPECT_EQ(fabric->OpenCommunicator({kKey, {nullptr}}).status().code(),
            absl::StatusCode::kAlreadyExists);
}

// Random frames from several threads, several operations at once, workers in any number: each
// arrives once, in its lane's order, with its bytes.
struct Setup {
  uint32_t workers0, workers1;
  bool rendezvous;
};
class PropertyTest : public ::testing::TestWithParam<Setup> {};

TEST_P(PropertyTest, EachFrameOnceInOrderWithItsBytes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Pair pair(GetParam().workers0, GetParam().workers1, GetParam().rendezvous);
  const auto comm0 = pair.Open(0, kKey), comm1 = pair.Open(1, kKey);
  constexpr int kOperations = 3, kLanes = 8, kFrames = 20;
  constexpr size_t kSizes[] = {1, 48, 1000, 8191, 8192, 8193, 65'536, 262'192, 1 << 20};
  std::vector<RecordingSink> sinks0(kOperations), sinks1(kOperations);  // outlive what calls them
  std::unique_ptr<Transport> ops[2][kOperations];
  const auto open = [&](int node, int op) {
    auto opened = (node == 0 ? comm0 : comm1)->OpenOperation(Operation(op));
    ASSERT_TRUE(opened.ok()) << opened.status();
    ops[node][op] = *std::move(opened);
    ops[node][op]->Start(node == 0 ? &sinks0[op] : &sinks1[op]);
  };
  for (int op = 0; op < kOperations; ++op) open(0, op);
  open(1, 0);  // the others come while their frames are on the way
  std::vector<size_t> sizes(kOperations * kLanes * kFrames);
  for (size_t& size : sizes) size = kSizes[random() % std::size(kSizes)];
  const auto number = [&](int op, int lane, int frame) {
    return (op * kLanes + lane) * kFrames + frame;
  };
  std::vector<std::thread> senders;
  for (int lane = 0; lane < kLanes; ++lane) {
    senders.emplace_back([&, lane] {
      for (int frame = 0; frame < kFrames; ++frame) {
        for (int op = 0; op < kOperations; ++op) {
          const int which = number(op, lane, frame);
          const Tag tag{.from = 0,
                        .to = 1,
                        .lane = static_cast<uint64_t>(lane),
                        .chunk = static_cast<uint32_t>(frame)};
          ASSERT_TRUE(ops[0][op]->Send(tag, MakeFrame(sizes[which], which)).ok());
        }
      }
    });
  }
  for (int op = 1; op < kOperations; ++op) open(1, op);
  for (std::thread& sender : senders) sender.join();
  for (int op = 0; op < kOperations; ++op) {
    const auto arrived = sinks1[op].AwaitFrames(kLanes * kFrames);
    // AwaitFrames may return when the last one is there; all are.
    ASSERT_EQ(arrived.size(), kLanes * kFrames) << "operation " << op;
    std::map<uint64_t, uint32_t> next;
    for (const auto& [tag, frame] : arrived) {
      ASSERT_EQ(tag.chunk, next[tag.lane]++) << "lane " << tag.lane;
      const int which = number(op, static_cast<int>(tag.lane), static_cast<int>(tag.chunk));
      ASSERT_TRUE(Holds(frame, sizes[which], which)) << "frame " << which;
    }
    EXPECT_EQ(sinks1[op].failures(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, PropertyTest,
                         ::testing::Values(Setup{1, 1, false}, Setup{1, 1, true},
                                           Setup{2, 2, false}, Setup{3, 1, true},
                                           Setup{1, 2, false}));

// A broadcast's root, say: it sends all, ends the operation and the communicator before the peer
// has begun. Far more than may be on the way early.
TEST(FabricTest, WhatWasSentArrivesAfterTheSenderHasClosed) {
  Pair pair;
  const auto comm1 = pair.Open(1, kKey);
  constexpr int kFrames = 200;
  {
    const auto comm0 = pair.Open(0, kKey);
    for (uint64_t sequence : {1, 2}) {
      RecordingSink sink;
      auto op = comm0->OpenOperation(Operation(sequence));
      ASSERT_TRUE(op.ok());
      (*op)->Start(&sink);
      for (int frame = 0; frame < kFrames; ++frame) {
        ASSERT_TRUE((*op)
                        ->Send({.from = 0, .to = 1, .chunk = static_cast<uint32_t>(frame)},
                               MakeFrame(100'000, frame))
                        .ok());
      }
      EXPECT_GT(pair.link[0]->counters().frames_waiting, 0);
    }
  }
  for (uint64_t sequence : {1, 2}) {
    RecordingSink sink;
    auto op = comm1->OpenOperation(Operation(sequence));
    ASSERT_TRUE(op.ok()) << op.status();
    (*op)->Start(&sink);
    const auto arrived = sink.AwaitFrames(kFrames);
    ASSERT_EQ(arrived.size(), kFrames);
    for (int frame = 0; frame < kFrames; ++frame) {
      ASSERT_TRUE(Holds(arrived[frame].frame, 100'000, frame));
    }
  }
  EXPECT_EQ(pair.link[0]->counters().frames_waiting, 0);
  EXPECT_TRUE(pair.link[0]->status().ok());
}

// What waits for one communicator holds up no other, and goes when the peer closes it.
TEST(FabricTest, AnUnopenedOperationHoldsUpNoOther) {
  Pair pair;
  const Key128 other{3, 4};
  auto slow1 = pair.Open(1, kKey);
  const auto slow0 = pair.Open(0, kKey), quick0 = pair.Open(0, other), quick1 = pair.Open(1, other);
  RecordingSink sink0, sink1, unused;
  auto slow = slow0->OpenOperation(Operation(1));
  (*slow)->Start(&unused);
  for (int frame = 0; frame < 200; ++frame) {
    ASSERT_TRUE((*slow)->Send({.from = 0, .to = 1}, MakeFrame(100'000, frame)).ok());
  }
  auto op0 = quick0->OpenOperation(Operation(1)), op1 = quick1->OpenOperation(Operation(1));
  (*op0)->Start(&sink0);
  (*op1)->Start(&sink1);
  for (int frame = 0; frame < 20; ++frame) {
    ASSERT_TRUE((*op0)->Send({.from = 0, .to = 1}, MakeFrame(100'000, frame)).ok());
  }
  EXPECT_EQ(sink1.AwaitFrames(20).size(), 20);
  EXPECT_GT(pair.link[0]->counters().frames_waiting, 0);
  slow1.reset();
  // The close travels; a frame of the other communicator after it shows that it has arrived.
  ASSERT_TRUE((*op1)->Send({.from = 1, .to = 0}, MakeFrame(10, 1)).ok());
  EXPECT_EQ(sink0.AwaitFrames(1).size(), 1);
  EXPECT_EQ(pair.link[0]->counters().frames_waiting, 0);
}

// Node 1 knows at once if node 0's word has arrived, else its sink is told: of many rounds there
// are some of each.
TEST(FabricTest, RanksThatDisagreeAreToldBothValues) {
  Pair pair;
  for (uint64_t round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const auto comm0 = pair.Open(0, {round, 1}), comm1 = pair.Open(1, {round, 1});
    RecordingSink sink0, sink1;
    auto op0 = comm0->OpenOperation(Operation(1, 100));
    ASSERT_TRUE(op0.ok());
    (*op0)->Start(&sink0);
    auto op1 = comm1->OpenOperation(Operation(1, 200));
    absl::Status at1 = op1.status();
    if (op1.ok()) {
      (*op1)->Start(&sink1);
      at1 = sink1.AwaitFailure().second;
    }
    const auto [rank, at0] = sink0.AwaitFailure();
    EXPECT_EQ(rank, 1);
    for (const absl::Status& status : {at0, at1}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_EQ(status.message().find("ranks disagree"), 0) << status;
      for (const char* called :
           {"all_reduce of 100 float32, sum", "all_reduce of 200 float32, sum"}) {
        EXPECT_NE(status.message().find(called), std::string::npos) << status;
      }
    }
  }
  EXPECT_TRUE(pair.link[0]->status().ok());
}

TEST(FabricTest, StopEndsDeliveriesAndMayBeCalledFromTheSink) {
  Pair pair;
  const auto comm0 = pair.Open(0, kKey), comm1 = pair.Open(1, kKey);
  auto op0 = comm0->OpenOperation(Operation(1)), op1 = comm1->OpenOperation(Operation(1));
  RecordingSink sink0;
  struct StoppingSink : RecordingSink {
    void OnFrame(const Tag& tag, Frame frame) override {
      transport->Stop();
      RecordingSink::OnFrame(tag, std::move(frame));
    }
    Transport* transport = nullptr;
  } sink1;
  sink1.transport = op1->get();
  (*op0)->Start(&sink0);
  (*op1)->Start(&sink1);
  for (int frame = 0; frame < 50; ++frame) {
    ASSERT_TRUE((*op0)->Send({.from = 0, .to = 1}, MakeFrame(50'000, frame)).ok());
  }
  EXPECT_EQ(sink1.AwaitFrames(1).size(), 1);
  // The next operation works; nothing of the first one gets into it.
  auto next0 = comm0->OpenOperation(Operation(2)), next1 = comm1->OpenOperation(Operation(2));
  RecordingSink after0, after1;
  (*next0)->Start(&after0);
  (*next1)->Start(&after1);
  ASSERT_TRUE((*next0)->Send({.from = 0, .to = 1, .chunk = 77}, MakeFrame(10, 1)).ok());
  const auto arrived = after1.AwaitFrames(1);
  ASSERT_EQ(arrived.size(), 1);
  EXPECT_EQ(arrived[0].tag.chunk, 77);
  EXPECT_EQ(sink1.frames(), 0);
}

TEST(FabricTest, APeerThatGoesIsToldToOperationsAndToTheOwner) {
  Pair pair;
  const auto comm0 = pair.Open(0, kKey);
  auto op0 = comm0->OpenOperation(Operation(1));
  RecordingSink sink0;
  (*op0)->Start(&sink0);
  // In flight and waiting: all must come back to the pool.
  for (int frame = 0; frame < 100; ++frame) {
    ASSERT_TRUE((*op0)->Send({.from = 0, .to = 1}, MakeFrame(200'000, frame)).ok());
  }
  pair.fabric[1].reset();
  const auto [rank, reason] = sink0.AwaitFailure();
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable) << reason;
  EXPECT_NE(reason.message().find("node1"), std::string::npos) << reason;
  EXPECT_TRUE(pair.failed[0].Await());
  EXPECT_EQ(sink0.failures(), 1);
  const absl::Status sent = (*op0)->Send({.from = 0, .to = 1}, MakeFrame(10, 1));
  EXPECT_EQ(sent.code(), absl::StatusCode::kAborted) << sent;
  EXPECT_EQ(sent.message().substr(0, 13), "lost rank 1: ") << sent;
  EXPECT_EQ(comm0->OpenOperation(Operation(2)).status().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(pair.fabric[0]->OpenCommunicator({Key128{8, 8}, {nullptr, pair.link[0]}}).ok());
}

TEST(FabricTest, ADisconnectedLinkCanBeMadeAnew) {
  Event up;
  Pair pair;
  const auto comm0 = pair.Open(0, kKey);
  pair.fabric[0]->Disconnect(pair.link[0], absl::UnavailableError("not heard of"));
  EXPECT_EQ(comm0->OpenOperation(Operation(1)).status().message(), "lost rank 1: not heard of");
  // The link does not tell the other side: the daemon learns it from the control connection.
  pair.fabric[1]->Disconnect(pair.link[1], absl::UnavailableError("closed"));
  const Offer own = pair.fabric[0]->MakeOffer(), peer = pair.fabric[1]->MakeOffer();
  ASSERT_TRUE(pair.fabric[1]->Connect({.name = "node0", .own = peer, .peer = own}).ok());
  auto again = pair.fabric[0]->Connect(
      {.name = "node1", .own = own, .peer = peer, .on_up = [&] { up.Set(); }});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(up.Await());
  EXPECT_TRUE((*again)->up());
  EXPECT_GT((*again)->counters().round_trip_ns, 0);
  EXPECT_FALSE(pair.fabric[0]->Connect({.name = "x", .own = own, .peer = peer}).ok());
  pair.fabric[0]->Disconnect(*again, absl::CancelledError("the end"));
}

// The TCP connections of this process.
std::vector<int> Connections() {
  std::vector<int> connections;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof peer;
    const bool connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (connected && peer.ss_family == AF_INET) connections.push_back(fd);
  }
  return connections;
}

// From here on nothing arrives on them, no acknowledgement either; they take little more.
void CutOff(const std::vector<int>& connections) {
  sock_filter nothing = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog filter = {1, &nothing};
  const int little = 16 << 10;
  for (const int fd : connections) {
    ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
  }
}

bool IsFull(int fd) {
  uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t size = sizeof memory;
  EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size), 0);
  return memory[SK_MEMINFO_WMEM_QUEUED] >= memory[SK_MEMINFO_SNDBUF];
}

// UCX would try to send the connection's last message until the kernel takes it, and do nothing
// else.
TEST(FabricTest, APeerThatIsCutOffHoldsUpNoOther) {
  Event up;
  RecordingSink sink0, sink1;
  Pair pair;
  const auto comm0 = pair.Open(0, kKey), comm1 = pair.Open(1, kKey);
  auto op0 = comm0->OpenOperation(Operation(1)), op1 = comm1->OpenOperation(Operation(1));
  ASSERT_TRUE(op0.ok() && op1.ok());
  (*op0)->Start(&sink0);
  (*op1)->Start(&sink1);
  ASSERT_TRUE((*op0)->Send({.from = 0, .to = 1}, MakeFrame(10, 0)).ok());
  ASSERT_EQ(sink1.AwaitFrames(1).size(), 1);
  const std::vector<int> connections = Connections();
  CutOff(connections);
  // One by one, so that UCX itself holds nothing when the kernel is full.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::none_of(connections.begin(), connections.end(), IsFull)) {
    ASSERT_TRUE((*op0)->Send({.from = 0, .to = 1}, MakeFrame(8192, 1)).ok());
    while (pair.link[0]->counters().unsent_bytes > 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
  }
  pair.fabric[0]->Disconnect(pair.link[0], absl::UnavailableError("not heard of"));
  const auto third = MakeFabric();
  const Offer own = pair.fabric[0]->MakeOffer(), peer = third->MakeOffer();
  ASSERT_TRUE(third->Connect({.name = "node0", .own = peer, .peer = own}).ok());
  ASSERT_TRUE(pair.fabric[0]
                  ->Connect({.name = "node2", .own = own, .peer = peer, .on_up = [&] { up.Set(); }})
                  .ok());
  EXPECT_TRUE(up.Await());
  pair.fabric[0].reset();  // ends, too
}

TEST(FabricTest, AThousandCommunicatorsLeaveNothingBehind) {
  Pair pair;
  for (uint64_t round = 0; round < 1000; ++round) {
    const Key128 key{round, 1};
    const auto comm0 = pair.Open(0, key), comm1 = pair.Open(1, key);
    auto op0 = comm0->OpenOperation(Operation(1)), op1 = comm1->OpenOperation(Operation(1));
    ASSERT_TRUE(op0.ok() && op1.ok()) << round;
    RecordingSink sink0, sink1;
    (*op0)->Start(&sink0);
    (*op1)->Start(&sink1);
    ASSERT_TRUE((*op0)->Send({.from = 0, .to = 1}, MakeFrame(100, round)).ok());
    ASSERT_EQ(sink1.AwaitFrames(1).size(), 1) << round;
  }
  EXPECT_EQ(pair.link[0]->counters().frames_waiting, 0);
  EXPECT_TRUE(pair.link[0]->status().ok());
  EXPECT_TRUE(pair.link[1]->status().ok());
}

TEST(FabricTest, WrongOptions) {
  EXPECT_EQ(Fabric::Create({.workers = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Fabric::Create({.settings = {{"TLS", "no_such_transport"}}}).ok());
}

}  // namespace
}  // namespace spccl::transport::ucx
