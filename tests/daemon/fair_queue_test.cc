#include "daemon/fair_queue.h"

#include <map>
#include <memory>

#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

class NoTask final : public runtime::Task {
 public:
  runtime::Progress RunOne(runtime::Scratch) override { return runtime::Progress::kDone; }
  void Cancel(absl::Status, int) override {}
};

std::map<std::string, int> CountTurns(FairQueue& queue, int turns) {
  std::map<std::string, int> counts;
  for (int i = 0; i < turns; ++i) {
    const auto entry = queue.Next();
    ++counts[entry->job_id];
    ++counts[entry->job_id + "/" + std::to_string(entry->comm_id)];
  }
  return counts;
}

TEST(FairQueueTest, JobsShareEquallyWhateverTheirNumberOfCommunicators) {
  FairQueue queue;
  for (uint64_t comm = 1; comm <= 4; ++comm) queue.Add("many", comm, std::make_shared<NoTask>());
  queue.Add("one", 9, std::make_shared<NoTask>());
  const auto counts = CountTurns(queue, 800);
  EXPECT_EQ(counts.at("many"), 400);
  EXPECT_EQ(counts.at("one"), 400);
  for (uint64_t comm = 1; comm <= 4; ++comm) {
    EXPECT_EQ(counts.at("many/" + std::to_string(comm)), 100);
  }
}

TEST(FairQueueTest, AJobThatComesLateGetsNoMoreThanItsShare) {
  FairQueue queue;
  queue.Add("early", 1, std::make_shared<NoTask>());
  CountTurns(queue, 100);
  queue.Add("late", 2, std::make_shared<NoTask>());
  const auto counts = CountTurns(queue, 100);
  EXPECT_EQ(counts.at("early"), 50);
  EXPECT_EQ(counts.at("late"), 50);
}

TEST(FairQueueTest, ParkedEntriesLoseTheirTurns) {
  FairQueue queue;
  const auto a = queue.Add("a", 1, std::make_shared<NoTask>());
  queue.Add("b", 2, std::make_shared<NoTask>());
  a->parked = true;
  EXPECT_EQ(CountTurns(queue, 10).at("b"), 10);
  a->parked = false;
  EXPECT_EQ(CountTurns(queue, 10).at("a"), 5);
}

TEST(FairQueueTest, ForgetsWhatIsRemoved) {
  FairQueue queue;
  const auto task = std::make_shared<NoTask>();
  const auto entry = queue.Add("a", 1, task);
  EXPECT_EQ(queue.Find(task.get()), entry);
  queue.Remove(entry);
  queue.Remove(entry);
  EXPECT_EQ(queue.Next(), nullptr);
  EXPECT_EQ(queue.Find(task.get()), nullptr);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace spccl::daemon
