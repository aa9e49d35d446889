// What a peer can send that is not what it should be: nothing of it may hurt more than the
// communicator that it names.
#include <cstring>
#include <thread>

#include "tests/collective/transport/ucx/fabric_support.h"
#include "tests/collective/transport/ucx/raw_peer.h"

namespace spccl::transport::ucx {
namespace {

// Node 0 has an honest peer and a liar; the liar is proven, too.
class RubbishTest : public ::testing::Test {
 protected:
  RubbishTest() {
    own_ = pair_.fabric[0]->MakeOffer();
    auto made = pair_.fabric[0]->Connect({.name = "liar",
                                          .own = own_,
                                          .peer = {Key128{66, 66}, {liar_.address()}},
                                          .on_failed = [this](const absl::Status& status) {
                                            reason_ = status;
                                            failed_.Set();
                                          }});
    EXPECT_TRUE(made.ok()) << made.status();
    link_ = *made;
    liar_.Connect(own_.addresses[0]);
    honest0_ = pair_.Open(0, {1, 1});
    honest1_ = pair_.Open(1, {1, 1});
  }

  // Both links' paths through node 0 work, and all that was sent before has been looked at.
  void ExpectHonestWorks() {
    ++sequence_;
    auto op0 = honest0_->OpenOperation(Operation(sequence_));
    auto op1 = honest1_->OpenOperation(Operation(sequence_));
    ASSERT_TRUE(op0.ok() && op1.ok());
    RecordingSink sink0, sink1;
    (*op0)->Start(&sink0);
    (*op1)->Start(&sink1);
    ASSERT_TRUE((*op1)->Send({.from = 1, .to = 0}, MakeFrame(1000, sequence_)).ok());
    const auto arrived = sink0.AwaitFrames(1);
    ASSERT_EQ(arrived.size(), 1);
    EXPECT_TRUE(Holds(arrived[0].frame, 1000, sequence_));
    EXPECT_EQ(sink0.failures(), 0);
  }

  std::unique_ptr<Communicator> OpenWithLiar(Key128 key) {
    auto made = pair_.fabric[0]->OpenCommunicator({key, {nullptr, link_}});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  Message GoodFrame(Key128 key, uint64_t bytes = 64) const {
    return {.kind = MessageKind::kFrame,
            .token = own_.token,
            .communicator = key,
            .sequence = 1,
            .facts = Operation(1).facts,
            .tag = {.from = 1, .to = 0},
            .frame_bytes = bytes};
  }

  bool Tell(const Message& message, bool rendezvous = false) {
    const std::vector<std::byte> data(message.frame_bytes);
    return liar_.Send(FormatMessage(message), data, rendezvous);
  }

  void AwaitRubbish(uint64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (pair_.fabric[0]->counters().rubbish < count &&
           std::chrono::steady_clock::now() < deadline) {
      liar_.Progress();
      std::this_thread::yield();
    }
    ASSERT_EQ(pair_.fabric[0]->counters().rubbish, count);
  }

  // Waits until node 0 has looked at all that the liar has sent: its last word is counted.
  void AwaitAllSeen() {
    const uint64_t before = pair_.fabric[0]->counters().rubbish;
    ASSERT_TRUE(liar_.Send(MessageBytes(), {}));
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (pair_.fabric[0]->counters().rubbish == before &&
           std::chrono::steady_clock::now() < deadline) {
      liar_.Progress();
      std::this_thread::yield();
    }
    ASSERT_GT(pair_.fabric[0]->counters().rubbish, before);
  }

  RawPeer liar_;
  // Before the fabrics, which call back until they are gone.
  Event failed_;
  absl::Status reason_;
  Pair pair_;
  Offer own_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<Communicator> honest0_, honest1_;
  uint64_t sequence_ = 0;
};

TEST_F(RubbishTest, EveryFieldAtItsExtremes) {
  const uint64_t kValues[] = {0, 1, 0x7F7F7F7F7F7F7F7F, 0x8080808080808080, UINT64_MAX, 1 << 26};
  uint64_t number = 0, delivered = 0, failed = 0, dropped = 0;
  for (size_t width : {1, 4, 8}) {
    for (size_t at = 0; at + width <= kMessageBytes; at += width) {
      for (uint64_t value : kValues) {
        const Key128 key{7, ++number};
        const auto communicator = OpenWithLiar(key);
        auto op = communicator->OpenOperation(Operation(1));
        ASSERT_TRUE(op.ok());
        RecordingSink sink;
        (*op)->Start(&sink);
        MessageBytes header = FormatMessage(GoodFrame(key));
        std::memcpy(header.data() + at, &value, width);
        const std::vector<std::byte> data(64);
        ASSERT_TRUE(liar_.Send(header, data, number % 2 == 0));
        AwaitAllSeen();
        (*op)->Stop();
        delivered += sink.frames();
        failed += sink.failures();
        dropped += sink.frames() == 0 && sink.failures() == 0;
        ASSERT_LE(sink.frames() + sink.failures(), 1) << "byte " << at << " value " << value;
        ASSERT_TRUE(link_->status().ok()) << link_->status();
      }
    }
  }
  // All three happen: the test reaches what it means to reach.
  EXPECT_GT(delivered, 0);
  EXPECT_GT(failed, 0);
  EXPECT_GT(dropped, 0);
  ExpectHonestWorks();
}

// Each is in order as a message; each fails the communicator, and that alone.
TEST_F(RubbishTest, LiesFailTheirCommunicatorOnly) {
  using Change = std::pair<const char*, void (*)(Message*)>;
  const Change kChanges[] = {
      {"of 2", [](Message* m) { m->tag.from = 2; }},
      {"of 2", [](Message* m) { m->tag.to = UINT32_MAX; }},
      {"of another node", [](Message* m) { m->tag.from = 0; }},
      {"of another node", [](Message* m) { m->tag.to = 1; }},
      {"with number 1000000", [](Message* m) { m->index = 1'000'000; }},
      {"ranks disagree", [](Message* m) { m->facts.op.count = 1; }},
      {"ranks disagree", [](Message* m) { m->facts.plan = 1; }},
      {"is the most in this operation", [](Message* m) { m->frame_bytes = (4 << 20) + 1; }},
  };
  uint64_t number = 0;
  for (const auto& [text, change] : kChanges) {
    for (bool rendezvous : {false, true}) {
      const Key128 key{8, ++number};
      const auto communicator = OpenWithLiar(key);
      auto op = communicator->OpenOperation(Operation(1));
      RecordingSink sink;
      (*op)->Start(&sink);
      Message message = GoodFrame(key);
      change(&message);
      ASSERT_TRUE(Tell(message, rendezvous));
      const auto [rank, reason] = sink.AwaitFailure();
      EXPECT_EQ(rank, 1) << text;
      EXPECT_NE(reason.message().find(text), std::string::npos) << text << ": " << reason;
      EXPECT_NE(reason.message().find("liar"), std::string::npos) << reason;
      EXPECT_EQ(sink.frames(), 0) << text;
    }
  }
  EXPECT_TRUE(link_->status().ok());
  ExpectHonestWorks();
}

TEST_F(RubbishTest, AFrameTwiceFailsTheCommunicator) {
  const auto communicator = OpenWithLiar({9, 1});
  auto op = communicator->OpenOperation(Operation(1));
  RecordingSink sink;
  (*op)->Start(&sink);
  ASSERT_TRUE(Tell(GoodFrame({9, 1})));
  EXPECT_EQ(sink.AwaitFrames(1).size(), 1);
  ASSERT_TRUE(Tell(GoodFrame({9, 1})));
  EXPECT_NE(sink.AwaitFailure().second.message().find("with number 0 where 1 is next"),
            std::string::npos);
  EXPECT_FALSE(communicator->OpenOperation(Operation(2)).ok());
}

// The liar knows another job's communicator, but has no part in it.
TEST_F(RubbishTest, FramesForACommunicatorOfOthersAreDropped) {
  auto op = honest0_->OpenOperation(Operation(++sequence_));
  RecordingSink sink;
  (*op)->Start(&sink);
  Message message = GoodFrame({1, 1});
  message.sequence = sequence_;
  ASSERT_TRUE(Tell(message));
  ASSERT_TRUE(Tell(message, true));
  message.kind = MessageKind::kClose;
  message.frame_bytes = 0;
  ASSERT_TRUE(Tell(message));
  AwaitAllSeen();
  EXPECT_EQ(sink.frames() + sink.failures(), 0);
  EXPECT_EQ(pair_.fabric[0]->counters().stray, 2);
  (*op)->Stop();
  // Node 1 has not opened that operation; its sequence goes on after it.
  ExpectHonestWorks();
}

// It sends for operations that are not open, more than the flow control allows.
TEST_F(RubbishTest, AFloodEndsTheLiarsLinkOnly) {
  const auto communicator = OpenWithLiar({10, 1});
  for (uint64_t sequence = 1; sequence < 200 && link_->status().ok(); ++sequence) {
    Message message = GoodFrame({10, 1}, 60'000);
    message.sequence = sequence;
    if (!Tell(message)) break;
  }
  EXPECT_TRUE(failed_.Await());
  EXPECT_EQ(reason_.code(), absl::StatusCode::kResourceExhausted) << reason_;
  EXPECT_NE(reason_.message().find("liar"), std::string::npos);
  EXPECT_FALSE(communicator->OpenOperation(Operation(1)).ok());
  ExpectHonestWorks();
}

TEST_F(RubbishTest, MoreProbesThanAllowedEndTheLiarsLinkOnly) {
  const Message probe{.kind = MessageKind::kProbe, .token = own_.token, .frame_bytes = kProbeBytes};
  for (uint64_t sent = 0; sent < kProbes; ++sent) ASSERT_TRUE(Tell(probe, sent % 2 == 0));
  AwaitAllSeen();
  EXPECT_TRUE(link_->status().ok());
  (void)Tell(probe);
  EXPECT_TRUE(failed_.Await());
  EXPECT_EQ(reason_.code(), absl::StatusCode::kResourceExhausted) << reason_;
  EXPECT_NE(reason_.message().find("liar"), std::string::npos);
  ExpectHonestWorks();
}

TEST_F(RubbishTest, ProbesOfWrongSizeAreDropped) {
  Message probe{.kind = MessageKind::kProbe, .token = own_.token};
  const uint64_t before = pair_.fabric[0]->counters().rubbish;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kProbeBytes - 1, kProbeBytes + 1}) {
    probe.frame_bytes = bytes;
    ASSERT_TRUE(Tell(probe));
  }
  AwaitRubbish(before + 4);
  EXPECT_TRUE(link_->status().ok());
  ExpectHonestWorks();
}

TEST_F(RubbishTest, AnAnswerToProbesThatNobodySentEndsTheLiarsLinkOnly) {
  ASSERT_TRUE(Tell({.kind = MessageKind::kProbed,
                    .token = own_.token,
                    .sequence = kProbesAnAnswer,
                    .index = 1}));
  EXPECT_TRUE(failed_.Await());
  EXPECT_EQ(reason_.code(), absl::StatusCode::kDataLoss) << reason_;
  EXPECT_EQ(link_->counters().bytes_per_second, 0);
  ExpectHonestWorks();
}

TEST_F(RubbishTest, APartTwiceEndsTheLiarsLinkOnly) {
  const auto communicator = OpenWithLiar({12, 1});
  Message part = GoodFrame({12, 1}, 3 * kPartBytes);
  part.part_offset = kPartBytes;
  const std::vector<std::byte> data(kPartBytes);
  ASSERT_TRUE(liar_.Send(FormatMessage(part), data));
  AwaitAllSeen();
  EXPECT_TRUE(link_->status().ok());
  (void)liar_.Send(FormatMessage(part), data);
  EXPECT_TRUE(failed_.Await());
  EXPECT_EQ(reason_.code(), absl::StatusCode::kDataLoss) << reason_;
  EXPECT_NE(reason_.message().find("liar"), std::string::npos);
  ExpectHonestWorks();
}

TEST_F(RubbishTest, PartsOfWrongSizeAreDropped) {
  const uint64_t before = pair_.fabric[0]->counters().rubbish;
  Message part = GoodFrame({13, 1}, 2 * kPartBytes);
  for (const uint64_t bytes : {uint64_t{0}, kPartBytes - 1, kPartBytes + 1}) {
    ASSERT_TRUE(liar_.Send(FormatMessage(part), std::vector<std::byte>(bytes)));
  }
  part.part_offset = kPartBytes;
  ASSERT_TRUE(liar_.Send(FormatMessage(part), std::vector<std::byte>(2 * kPartBytes)));
  AwaitRubbish(before + 4);
  EXPECT_TRUE(link_->status().ok());
  ExpectHonestWorks();
}

TEST_F(RubbishTest, PartsOfStrangersAreRefused) {
  RawPeer stranger;
  stranger.Connect(own_.addresses[0]);
  Message part = GoodFrame({14, 1}, 2 * kPartBytes);
  part.token = {1, 2};
  ASSERT_TRUE(stranger.Send(FormatMessage(part), std::vector<std::byte>(kPartBytes)));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (pair_.fabric[0]->counters().refused == 0 && std::chrono::steady_clock::now() < deadline) {
    stranger.Progress();
    std::this_thread::yield();
  }
  EXPECT_EQ(pair_.fabric[0]->counters().refused, 1);
  ExpectHonestWorks();
}

// The honest peer's word counts and the liar's does not reach it.
TEST_F(RubbishTest, AnHonestLinkIsMeasuredBesideALiar) {
  Event done;
  pair_.link[0]->Measure([&] { done.Set(); });
  (void)Tell({.kind = MessageKind::kProbed, .token = own_.token, .sequence = kProbes, .index = 1});
  EXPECT_TRUE(done.Await());
  EXPECT_GT(pair_.link[0]->counters().bytes_per_second, 0);
  EXPECT_TRUE(failed_.Await());
  ExpectHonestWorks();
}

// A rendezvous that is never fulfilled holds up nothing.
TEST_F(RubbishTest, StrangersAreRefused) {
  RawPeer stranger;
  stranger.Connect(own_.addresses[0]);
  const auto communicator = OpenWithLiar({11, 1});
  auto op = communicator->OpenOperation(Operation(1));
  RecordingSink sink;
  (*op)->Start(&sink);
  Message message = GoodFrame({11, 1}, 100'000);
  message.token = {1, 2};
  const std::vector<std::byte> data(message.frame_bytes);
  EXPECT_TRUE(stranger.Send(FormatMessage(message), data, false));
  EXPECT_TRUE(stranger.Send(FormatMessage(message), data, true));
  message = {.kind = MessageKind::kHello};
  EXPECT_TRUE(stranger.Send(FormatMessage(message), {}));
  EXPECT_TRUE(stranger.Send(std::vector<std::byte>(3), {}));
  EXPECT_TRUE(stranger.Send({}, data));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    const FabricCounters counters = pair_.fabric[0]->counters();
    if (counters.refused == 3 && counters.rubbish == 2) break;
    stranger.Progress();
    std::this_thread::yield();
  }
  EXPECT_EQ(pair_.fabric[0]->counters().refused, 3);
  EXPECT_EQ(pair_.fabric[0]->counters().rubbish, 2);
  EXPECT_EQ(sink.frames() + sink.failures(), 0);
  ExpectHonestWorks();
}

}  // namespace
}  // namespace spccl::transport::ucx
