#include "daemon/completion_port.h"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/communicator.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "proto/shm/session.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

class CompletionPortTest : public ::testing::Test {
 protected:
  CompletionPortTest() {
    const auto memfd = CreateSealedMemfd("port-test", sizeof(shm::Segment));
    EXPECT_TRUE(memfd.ok());
    auto mapping = SharedMapping::Create(memfd->get(), sizeof(shm::Segment));
    EXPECT_TRUE(mapping.ok());
    port_.emplace(reaper_.Own(*std::move(mapping)));
    client_.emplace(&port_->segment()->completion_control, port_->segment()->completions,
                    shm::kCompletionCapacity);
  }
  std::optional<shm::Completion> Reap() {
    shm::Completion completion;
    if (client_->TryPop(&completion) != shm::RingState::kReady) return std::nullopt;
    return completion;
  }

  Reaper reaper_;
  std::optional<CompletionPort> port_;
  std::optional<shm::Consumer<shm::Completion>> client_;
};

TEST_F(CompletionPortTest, DeliversTheStatus) {
  ASSERT_TRUE(port_->Admit());
  EXPECT_TRUE(port_->Complete(7, 3, absl::AbortedError("rank 1 died")));
  const auto completion = Reap();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->ticket, 7u);
  EXPECT_EQ(completion->comm_id, 3u);
  EXPECT_EQ(completion->result, static_cast<uint32_t>(shm::Result::kRemoteError));
  EXPECT_EQ(shm::TextOf(completion->message), "rank 1 died");
  EXPECT_FALSE(Reap().has_value());
}

// Who waited for a rank's stream asks next how the operation went.
TEST_F(CompletionPortTest, AnErrorIsThereWhenTheStreamGoesOn) {
  const std::shared_ptr<CompletionPort> port(&*port_, [](CompletionPort*) {});
  for (uint32_t round = 1; round <= 500; ++round) {
    ASSERT_TRUE(port->Admit());
    std::atomic<uint32_t> ready = 0, done = 0;
    auto order = std::make_shared<runtime::GpuOrder>();
    order->ready = &ready;
    order->done = &done;
    order->value = round;
    RankPart part;
    part.ticket = round;
    part.port = port;
    part.order = std::move(order);
    std::thread daemon([&part] { part.Complete(absl::AbortedError("rank 1 died")); });
    while (done.load(std::memory_order_acquire) != round) std::this_thread::yield();
    const bool was_told = Reap().has_value();
    daemon.join();
    ASSERT_TRUE(was_told) << "round " << round;
  }
}

TEST_F(CompletionPortTest, AdmitsNoMoreThanWillFit) {
  for (uint32_t i = 0; i < shm::kCompletionCapacity; ++i) ASSERT_TRUE(port_->Admit());
  EXPECT_FALSE(port_->Admit());
  // Completed but not reaped: the ring is still full.
  ASSERT_TRUE(port_->Complete(1, 1, absl::OkStatus()));
  EXPECT_FALSE(port_->Admit());
  ASSERT_TRUE(Reap().has_value());
  EXPECT_TRUE(port_->Admit());
  EXPECT_FALSE(port_->Admit());
}

TEST_F(CompletionPortTest, ImpossibleIndexIsSeen) {
  ASSERT_TRUE(port_->Admit());
  for (const uint32_t head : {1u, 0x80000000u, 0xFFFFFFFFu - shm::kCompletionCapacity}) {
    port_->segment()->completion_control.head.store(head);
    EXPECT_FALSE(port_->Admit()) << head;
    ASSERT_FALSE(port_->Complete(1, 1, absl::OkStatus())) << head;
    port_->segment()->completion_control.head.store(0);
    ASSERT_TRUE(port_->Admit());
  }
}

TEST_F(CompletionPortTest, WritesNothingOnceClosed) {
  ASSERT_TRUE(port_->Admit());
  port_->Close();
  EXPECT_TRUE(port_->Complete(1, 1, absl::OkStatus()));
  EXPECT_FALSE(Reap().has_value());
}

}  // namespace
}  // namespace spccl::daemon
