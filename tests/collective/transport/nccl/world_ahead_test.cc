// What a world tells of frames before they are there: to sinks, and to the frames' receivers.
#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "collective/transport/nccl/wire.h"
#include "collective/transport/nccl/world.h"
#include "tests/collective/transport/nccl/cluster.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

// Keeps what it is told, in order.
class HearingSink final : public Sink {
 public:
  struct Told {
    bool is_here = false;
    Tag tag;
    uint64_t bytes = 0;
  };

  void OnAnnounced(const FrameSize& size) override {
    Keep({.is_here = false, .tag = size.tag, .bytes = size.bytes});
    if (on_announced) on_announced(size);
  }
  void OnFrame(const Tag& tag, Frame frame) override {
    if (on_frame) on_frame(tag, frame.Share());
    Keep({.is_here = true, .tag = tag, .bytes = frame.size_bytes()});
  }
  void OnPeerFailed(uint32_t /*rank*/, absl::Status reason) override { ADD_FAILURE() << reason; }

  // Waits for so many frames; what there is if they do not come in time.
  std::vector<Told> Await(size_t frames) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return frames_ >= frames; });
    return told_;
  }

  // Set before the transport starts.
  std::function<void(const FrameSize&)> on_announced;
  std::function<void(const Tag&, Frame)> on_frame;

 private:
  void Keep(const Told& told) {
    const std::lock_guard lock(mutex_);
    told_.push_back(told);
    frames_ += told.is_here ? 1 : 0;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Told> told_;
  size_t frames_ = 0;
};

// Each frame is announced once, with its size, before it is here, and each lane's in order.
void ExpectAnnounced(const std::vector<HearingSink::Told>& told, size_t frames) {
  using Lane = std::tuple<uint32_t, uint32_t, uint64_t>;
  std::map<Lane, std::deque<HearingSink::Told>> announced;
  size_t here = 0;
  for (const HearingSink::Told& one : told) {
    auto& lane = announced[{one.tag.from, one.tag.to, one.tag.lane}];
    if (!one.is_here) {
      lane.push_back(one);
      continue;
    }
    ++here;
    ASSERT_FALSE(lane.empty());
    EXPECT_EQ(lane.front().tag.chunk, one.tag.chunk);
    EXPECT_EQ(lane.front().bytes, one.bytes);
    lane.pop_front();
  }
  EXPECT_EQ(here, frames);
  for (const auto& [lane, rest] : announced) EXPECT_TRUE(rest.empty());
}

// An operation from node 0 to node 1, both started.
struct OneWay {
  explicit OneWay(const std::vector<std::unique_ptr<Communicator>>& communicators)
      : sender(*communicators[0]->OpenOperation(Operation(1))),
        receiver(*communicators[1]->OpenOperation(Operation(1))) {
    sender->Start(&nobody);
    receiver->Start(&sink);
  }

  HearingSink nobody, sink;
  std::unique_ptr<OperationTransport> sender, receiver;
};

// Lane l of rank 0 is on GPU l % 2, and so is that of rank 1 on the other node.
TEST(NcclAheadTest, FramesAreAnnouncedOnceAndInOrderBeforeTheyCome) {
  std::mt19937_64 random(TestSeed());
  for (const bool late : {false, true}) {
    Cluster cluster({0, 0, 1, 1}, TestSeed());
    const auto communicators = cluster.OpenAll(1, {{0, 2}});
    HearingSink nobody, sink;
    OperationOptions options = Operation(1);
    options.rails[0] = {0, 1};
    auto sender = *communicators[0]->OpenOperation(options);
    options.rails = {{1, {2, 3}}};
    auto receiver = *communicators[1]->OpenOperation(options);
    sender->Start(&nobody);
    if (!late) receiver->Start(&sink);
    constexpr uint32_t kFrames = 60;
    for (uint32_t chunk = 0; chunk < kFrames; ++chunk) {
      const uint64_t lane = random() % 4;
      const FrameSize size{.tag = {.from = 0, .to = 1, .lane = lane, .chunk = chunk},
                           .bytes = random() % 5000};
      if (random() % 2 == 0) {
        ASSERT_TRUE(sender->AnnounceAhead({{size}}).ok());
      }
      ASSERT_TRUE(
          sender->Send(size.tag, MakeFrame(cluster.gpus[lane % 2].get(), size.bytes, chunk)).ok());
    }
    if (late) receiver->Start(&sink);
    ExpectAnnounced(sink.Await(kFrames), kFrames);
    receiver->Stop();
    sender->Stop();
  }
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

// All of it is with the receiver before it looks.
TEST(NcclAheadTest, WhatWasToldAheadKeepsItsPlaceAmongWhatIsSent) {
  Cluster cluster({0, 1}, TestSeed());
  const auto communicators = cluster.OpenAll(1);
  OneWay operation(communicators);
  auto& [nobody, sink, sender, receiver] = operation;
  ASSERT_TRUE(cluster.AwaitUp());
  cluster.net.Flush();
  Event looks;
  cluster.gpus[1]->Post([&] { EXPECT_TRUE(looks.Await()); });
  std::vector<FrameSize> sizes;
  for (uint32_t chunk = 0; chunk < 6; ++chunk) {
    sizes.push_back({.tag = {.from = 0, .to = 1, .chunk = chunk}, .bytes = 100 + chunk});
  }
  ASSERT_TRUE(sender->AnnounceAhead(std::span(sizes).last(3)).ok());
  for (const FrameSize& size : sizes) {
    ASSERT_TRUE(sender->Send(size.tag, MakeFrame(cluster.gpus[0].get(), size.bytes, 1)).ok());
  }
  cluster.net.Flush();
  looks.Set();
  const auto told = sink.Await(6);
  ExpectAnnounced(told, 6);
  uint32_t next = 0;
  for (const HearingSink::Told& one : told) {
    if (one.is_here) EXPECT_EQ(one.tag.chunk, next++);
  }
}

TEST(NcclAheadTest, NothingIsAnnouncedOnceStopped) {
  Cluster cluster({0, 1}, TestSeed());
  const auto communicators = cluster.OpenAll(1);
  HearingSink nobody, sink;
  auto sender = *communicators[0]->OpenOperation(Operation(1));
  auto receiver = *communicators[1]->OpenOperation(Operation(1));
  Event stopped;
  sink.on_announced = [&](const FrameSize&) {
    receiver->Stop();
    stopped.Set();
  };
  sender->Start(&nobody);
  receiver->Start(&sink);
  for (uint32_t chunk = 0; chunk < 10; ++chunk) {
    ASSERT_TRUE(
        sender->Send({.from = 0, .to = 1, .chunk = chunk}, MakeFrame(cluster.gpus[0].get(), 500, 1))
            .ok());
  }
  ASSERT_TRUE(stopped.Await());
  sender.reset();
  // A later operation is told of after all that.
  HearingSink next;
  auto next_sender = *communicators[0]->OpenOperation(Operation(2));
  auto next_receiver = *communicators[1]->OpenOperation(Operation(2));
  next_sender->Start(&nobody);
  next_receiver->Start(&next);
  ASSERT_TRUE(
      next_sender->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 500, 1)).ok());
  ExpectAnnounced(next.Await(1), 1);
  EXPECT_EQ(sink.Await(0).size(), 1U);
}

// The messages in which a frame's size, and that its bytes are there, were said.
struct Said {
  std::mutex mutex;
  std::set<std::pair<uint32_t, uint64_t>> announced;  // node and its id
  size_t ahead = 0, at_once = 0;

  std::vector<std::string> operator()(uint32_t from, std::string bytes) {
    const Message message = *ParseMessage(bytes);
    const std::lock_guard lock(mutex);
    for (const Announced& frame : message.frames) {
      if (frame.announces && !frame.offers) announced.emplace(from, frame.id);
      if (!frame.offers) continue;
      ++(announced.contains({from, frame.id}) ? ahead : at_once);
    }
    return {std::move(bytes)};
  }
};

// A ring, each of which passes on what comes, and says so as soon as it has heard of it.
TEST(NcclAheadTest, ASinkMayTellAheadWhatItWillPassOn) {
  constexpr uint32_t kRanks = 4, kLanes = 12;
  for (const uint64_t window : {uint64_t{30'000}, uint64_t{64} << 20}) {
    Said said;
    Cluster cluster(
        {0, 1, 2, 3}, TestSeed(), [&](WorldOptions* options) { options->window_bytes = window; },
        [&](uint32_t from, uint32_t, std::string bytes) { return said(from, std::move(bytes)); });
    const auto communicators = cluster.OpenAll(1);
    std::deque<HearingSink> sinks(kRanks);
    std::vector<std::unique_ptr<OperationTransport>> transports;
    for (const auto& communicator : communicators) {
      transports.push_back(*communicator->OpenOperation(Operation(1)));
    }
    cluster.net.Flush();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const uint32_t next = (rank + 1) % kRanks;
      const auto onward = [=](Tag tag) {
        tag.from = rank;
        tag.to = next;
        return tag;
      };
      Transport* const transport = transports[rank].get();
      sinks[rank].on_announced = [=](const FrameSize& size) {
        if (size.tag.chunk == next) return;
        EXPECT_TRUE(
            transport->AnnounceAhead({{{.tag = onward(size.tag), .bytes = size.bytes}}}).ok());
      };
      sinks[rank].on_frame = [=](const Tag& tag, Frame frame) {
        if (tag.chunk == next) return;
        EXPECT_TRUE(transport->Send(onward(tag), std::move(frame)).ok());
      };
      transport->Start(&sinks[rank]);
    }
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        const size_t bytes = 1000 * (rank + 1) + lane;
        ASSERT_TRUE(
            transports[rank]
                ->Send({.from = rank, .to = (rank + 1) % kRanks, .lane = lane, .chunk = rank},
                       MakeFrame(cluster.gpus[rank].get(), bytes, rank))
                .ok());
      }
    }
    for (HearingSink& sink : sinks) {
      ExpectAnnounced(sink.Await(kLanes * (kRanks - 1)), kLanes * (kRanks - 1));
    }
    for (auto& transport : transports) transport->Stop();
    cluster.Close();
    // With the small window some come before there is room to tell of them.
    if (window > 100'000) {
      EXPECT_EQ(said.ahead, kRanks * (kRanks - 2) * kLanes);
      EXPECT_EQ(said.at_once, kRanks * kLanes);
    } else {
      EXPECT_GT(said.ahead, 0U);
    }
    EXPECT_THAT(Fake().violations(), testing::IsEmpty());
  }
}

TEST(NcclAheadTest, WhatIsOnlyAnnouncedMayFindNoMemory) {
  Cluster cluster({0, 1}, TestSeed());
  const auto communicators = cluster.OpenAll(1);
  OneWay operation(communicators);
  auto& [nobody, sink, sender, receiver] = operation;
  cluster.net.Flush();
  cluster.gpus[1]->SetFull(true);
  const Tag tag{.from = 0, .to = 1};
  ASSERT_TRUE(sender->AnnounceAhead({{{.tag = tag, .bytes = 700}}}).ok());
  ASSERT_TRUE(cluster.gpus[1]->AwaitRefusal());
  cluster.gpus[1]->SetFull(false);
  ASSERT_TRUE(sender->Send(tag, MakeFrame(cluster.gpus[0].get(), 700, 1)).ok());
  ExpectAnnounced(sink.Await(1), 1);
}

// Both sides let go of it, and of its memory.
TEST(NcclAheadTest, WhatWasToldAheadAndIsNotSentIsForgotten) {
  Cluster cluster({0, 1}, TestSeed());
  auto communicators = cluster.OpenAll(1);
  {
    OneWay operation(communicators);
    auto& [nobody, sink, sender, receiver] = operation;
    std::vector<FrameSize> sizes;
    for (uint32_t chunk = 0; chunk < 20; ++chunk) {
      sizes.push_back({.tag = {.from = 0, .to = 1, .chunk = chunk}, .bytes = 900});
    }
    ASSERT_TRUE(sender->AnnounceAhead(sizes).ok());
    ASSERT_TRUE(
        sender->Send(sizes[5].tag, MakeFrame(cluster.gpus[0].get(), sizes[5].bytes, 1)).ok());
    ExpectAnnounced(sink.Await(1), 1);
    sender->Stop();
    ASSERT_TRUE(sender->AnnounceAhead(sizes).ok());  // says nothing any more
  }
  communicators.clear();
  absl::Status again = absl::UnknownError("never");
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!again.ok() && std::chrono::steady_clock::now() < deadline) {
    again = cluster.worlds[0]->OpenCommunicator({1, 1}, {0, 1}).status();
    std::this_thread::yield();
  }
  EXPECT_TRUE(again.ok()) << again;
}

}  // namespace
}  // namespace spccl::transport::nccl
