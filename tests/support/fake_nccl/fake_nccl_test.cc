// The fake NCCL finds who does not keep NCCL's rules: bugs are planted here.
#include "tests/support/fake_nccl/fake_nccl.h"

#include <gmock/gmock.h>

#include <array>
#include <future>

#include "tests/collective/transport/nccl/cluster.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

using testing::HasSubstr;

// Two ranks, used as NCCL wants it unless a test does otherwise.
class FakeNcclTest : public testing::Test {
 protected:
  FakeNcclTest() {
    Fake().Reset({.seed = TestSeed(), .enqueue = TestGpu::Enqueue});
    UniqueId id;
    EXPECT_EQ(nccl_->GetUniqueId(&id), kSuccess);
    for (int rank : {0, 1}) {
      On(rank, [&] {
        Config config;
        config.blocking = 0;
        EXPECT_EQ(nccl_->CommInitRankConfig(&comm_[rank], 2, id, rank, &config), kInProgress);
      });
    }
    for (int rank : {0, 1}) Await(rank);
  }
  ~FakeNcclTest() override {
    for (int rank : {0, 1}) {
      On(rank, [&] {
        if (comm_[rank] != nullptr) EXPECT_EQ(nccl_->CommAbort(comm_[rank]), kSuccess);
      });
    }
    for (TestGpu& gpu : gpus_) gpu.Flush();
  }

  void On(int rank, const std::function<void()>& what) {
    std::promise<void> done;
    gpus_[rank].Post([&] {
      what();
      done.set_value();
    });
    done.get_future().wait();
  }
  // Until nothing is under way; what came of it.
  Result Await(int rank) {
    Result result = kInProgress;
    On(rank, [&] {
      while (result == kInProgress) EXPECT_EQ(nccl_->CommGetAsyncError(comm_[rank], &result), 0);
    });
    return result;
  }
  void Add(int rank, bool sends, size_t bytes) {
    std::byte* const data = data_[rank].data();
    const cuda::Stream stream = gpus_[rank].stream();
    const int peer = 1 - rank;
    if (sends) {
      EXPECT_EQ(nccl_->Send(data, bytes, kUint8, peer, comm_[rank], stream), kSuccess);
    } else {
      EXPECT_EQ(nccl_->Recv(data, bytes, kUint8, peer, comm_[rank], stream), kSuccess);
    }
  }
  // One group, launched; whether it is through is another matter.
  void Group(int rank, const std::function<void()>& calls) {
    On(rank, [&] {
      EXPECT_EQ(nccl_->GroupStart(), kSuccess);
      calls();
      (void)nccl_->GroupEnd();
    });
    (void)Await(rank);
  }
  void ExpectViolation(const std::string& what) {
    EXPECT_THAT(Fake().violations(), testing::Contains(HasSubstr(what)));
  }

  std::shared_ptr<const Library> nccl_ = FakeLibrary();
  std::array<std::array<std::byte, 64>, 2> data_ = {};
  Comm comm_[2] = {};
  TestGpu gpus_[2] = {TestGpu(0), TestGpu(1)};
};

TEST_F(FakeNcclTest, MovesBytes) {
  data_[0].fill(std::byte{7});
  Group(0, [&] { Add(0, true, 20); });
  Group(1, [&] { Add(1, false, 20); });
  gpus_[1].Flush();
  EXPECT_EQ(data_[1][19], std::byte{7});
  EXPECT_EQ(data_[1][20], std::byte{0});
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

TEST_F(FakeNcclTest, FindsSizesThatDiffer) {
  Group(0, [&] { Add(0, true, 20); });
  Group(1, [&] { Add(1, false, 21); });
  ExpectViolation("rank 0 sends 20 bytes to rank 1, which receives 21");
  EXPECT_EQ(Await(0), kInternalError);
  EXPECT_EQ(Await(1), kInternalError);
}

TEST_F(FakeNcclTest, FindsOrdersThatDiffer) {
  Group(0, [&] { Add(0, true, 20); });
  Group(0, [&] { Add(0, false, 20); });
  Group(1, [&] { Add(1, true, 20); });
  Group(1, [&] { Add(1, false, 20); });
  for (TestGpu& gpu : gpus_) gpu.Flush();  // would hang
  ExpectViolation("deadlock");
}

TEST_F(FakeNcclTest, TakesTheSameInOneGroup) {
  for (int rank : {0, 1}) {
    Group(rank, [&] {
      Add(rank, rank == 0, 20);
      Add(rank, rank == 1, 20);
    });
  }
  for (TestGpu& gpu : gpus_) gpu.Flush();
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

TEST_F(FakeNcclTest, FindsCallsOutsideOfGroups) {
  On(0, [&] { Add(0, true, 20); });
  ExpectViolation("outside of a group");
  On(0, [&] { EXPECT_EQ(nccl_->GroupStart(), kSuccess); });
  On(0, [&] { (void)nccl_->GroupEnd(); });
  On(0, [&] { EXPECT_EQ(nccl_->GroupEnd(), kInvalidUsage); });
  ExpectViolation("without ncclGroupStart");
}

TEST_F(FakeNcclTest, FindsASecondThread) {
  Result result;
  EXPECT_NE(nccl_->CommGetAsyncError(comm_[0], &result), kSuccess);
  ExpectViolation("by a second thread");
}

TEST_F(FakeNcclTest, FindsAnEndOutOfOrder) {
  On(0, [&] { EXPECT_EQ(nccl_->CommDestroy(comm_[0]), kSuccess); });
  ExpectViolation("not finalized");
  On(0, [&] { EXPECT_EQ(nccl_->CommDestroy(comm_[0]), kInvalidArgument); });
  ExpectViolation("one that is gone");
  comm_[0] = nullptr;
}

}  // namespace
}  // namespace spccl::transport::nccl
