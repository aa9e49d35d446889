#include "daemon/snapshot_calls.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;

// A loop whose turns the test runs. The snapshots' boot_id is the state at the time they are taken.
class SnapshotCallsTest : public ::testing::Test {
 protected:
  void Post(std::function<void()> fn) { posted_.push_back(std::move(fn)); }
  void RunTurn() {
    for (const auto& fn : std::exchange(posted_, {})) fn();
  }
  void Ask() {
    calls_.Ask([this, asked = state_](const std::shared_ptr<const TakenSnapshot>& taken) {
      EXPECT_GE(taken->snapshot.core.boot_id, asked);
      answers_.push_back(taken->snapshot.core.boot_id);
    });
  }

  uint64_t state_ = 1;
  int taken_ = 0;
  std::vector<uint64_t> answers_;
  std::vector<std::function<void()>> posted_;
  SnapshotCalls calls_{[this](std::function<void()> fn) { Post(std::move(fn)); },
                       [this] {
                         ++taken_;
                         auto taken = std::make_shared<TakenSnapshot>();
                         taken->snapshot.core.boot_id = state_;
                         return taken;
                       }};
};

TEST_F(SnapshotCallsTest, ThoseWhoWaitAtTheSameTimeShareOne) {
  for (int i = 0; i < 3; ++i) {
    Ask();
    ++state_;
  }
  RunTurn();
  EXPECT_EQ(taken_, 0);  // the sockets come first
  RunTurn();
  EXPECT_EQ(taken_, 1);
  EXPECT_THAT(answers_, ElementsAre(4, 4, 4));
  RunTurn();
  EXPECT_EQ(taken_, 1);
}

TEST_F(SnapshotCallsTest, OneWhoComesLaterSharesOnlyWhatHasNotBegun) {
  Ask();
  RunTurn();
  ++state_;
  Ask();  // behind the one that is due: the next one
  RunTurn();
  EXPECT_THAT(answers_, ElementsAre(2));
  ++state_;
  RunTurn();
  EXPECT_EQ(taken_, 2);
  EXPECT_THAT(answers_, ElementsAre(2, 3));
}

TEST_F(SnapshotCallsTest, WhatTheCallerHasPostedBeforeComesFirst) {
  Ask();
  RunTurn();
  // As one who subscribes and asks then, while another's snapshot is due.
  Post([this] { state_ = 7; });
  Ask();
  RunTurn();
  RunTurn();
  EXPECT_THAT(answers_, ElementsAre(1, 7));
}

TEST_F(SnapshotCallsTest, AtTheEndWhoWaitsIsAnswered) {
  Ask();
  RunTurn();
  calls_.AnswerAll();
  calls_.AnswerAll();
  EXPECT_THAT(answers_, ElementsAre(1));
  EXPECT_EQ(taken_, 1);
}

}  // namespace
}  // namespace spccl::daemon
