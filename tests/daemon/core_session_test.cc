// Sessions, buffers and the forming of communicators, as a client of the protocol sees them.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/transport/frame_pool.h"
#include "daemon/core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/relay.h"
#include "proto/shm/result.h"
#include "tests/daemon/expect_reply.h"
#include "tests/daemon/open_client.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FailsWith;
using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<shm::Reply> RegisterFd(RawClient& client, int fd, uint64_t size_bytes) {
  shm::Request request = client.Make(shm::RequestType::kRegisterMemfd);
  request.buffer.size_bytes = size_bytes;
  return client.Call(request, {fd});
}

UniqueFd Memfd(size_t bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals == 0) return fd;
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SessionTest, AnotherMajorVersionIsRefusedWithBothNumbers) {
  DaemonEnv env;
  auto client = RawClient::Connect(env.socket_path());
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(client->Hello(99), FailsWith(absl::StatusCode::kInternal,
                                           AllOf(HasSubstr("99"), HasSubstr("same release"))));
  EXPECT_TRUE(client->AwaitHangup());
}

// All of a large communicator's ranks in one process: their answers come at once, and are more than
// a socket holds.
TEST(SessionTest, WhoHasManyRanksIsAnsweredForAll) {
  DaemonEnv env;
  auto client = RawClient::Open(env.socket_path());
  ASSERT_THAT(client, IsOk());
  const auto unique_id = client->UniqueId();
  ASSERT_THAT(unique_id, IsOk());
  std::vector<uint64_t> ids;
  for (uint32_t rank = 0; rank < shm::kMostRanks; ++rank) {
    const shm::Request request = client->MakeCommInit(*unique_id, shm::kMostRanks, rank);
    ASSERT_THAT(client->Send(request), IsOk());
    ids.push_back(request.request_id);
  }
  absl::StatusOr<Snapshot> now = env.core().GetSnapshot();
  ASSERT_THAT(now, IsOk());
  while (!now->comms.empty() && now->comms[0].state == "forming") {
    now = env.core().GetSnapshot();
    ASSERT_THAT(now, IsOk());
  }
  for (const uint64_t id : ids) ExpectSuccess(client->AwaitReply(id));
}

TEST(SessionTest, TheFirstRequestIsHelloAndOnlyTheFirst) {
  DaemonEnv env;
  auto client = RawClient::Connect(env.socket_path());
  ASSERT_THAT(client, IsOk());
  ASSERT_THAT(client->Send(client->Make(shm::RequestType::kUniqueId)), IsOk());
  EXPECT_TRUE(client->AwaitHangup());
  RawClient second = Open(env);
  EXPECT_FALSE(second.Hello().ok());
  EXPECT_TRUE(second.AwaitHangup());
}

TEST(SessionTest, AConnectionThatSaysNothingIsClosed) {
  CoreOptions options;
  options.hello_timeout_ns = 50'000'000;
  DaemonEnv env(options);
  auto silent = RawClient::Connect(env.socket_path());
  ASSERT_THAT(silent, IsOk());
  EXPECT_TRUE(silent->AwaitHangup());
}

TEST(SessionTest, RubbishEndsTheSessionThatSentItAndNoOther) {
  DaemonEnv env;
  RawClient bystander = Open(env);
  std::vector<std::vector<std::byte>> packets;
  for (const size_t size : {1u, 255u, 257u, 4096u}) packets.emplace_back(size, std::byte{0xA5});
  shm::Request request = bystander.Make(shm::RequestType::kUniqueId);
  request.type = static_cast<shm::RequestType>(1000);
  const auto bytes = std::as_bytes(std::span(&request, 1));
  packets.emplace_back(bytes.begin(), bytes.end());
  for (const auto& packet : packets) {
    RawClient client = Open(env);
    ASSERT_THAT(client.SendBytes(packet.data(), packet.size()), IsOk());
    EXPECT_TRUE(client.AwaitHangup()) << packet.size();
  }
  // Descriptors where none belong.
  RawClient client = Open(env);
  ASSERT_THAT(client.Send(client.Make(shm::RequestType::kUniqueId), {0, 1}), IsOk());
  EXPECT_TRUE(client.AwaitHangup());
  EXPECT_THAT(bystander.UniqueId(), IsOk());
}

TEST(SessionTest, AClientThatDoesNotReadIsLetGo) {
  DaemonEnv env;
  RawClient client = Open(env);
  // Far more replies than a socket holds; the sends end when the daemon has hung up.
  int sent = 0;
  while (sent < 100'000 && client.Send(client.Make(shm::RequestType::kUniqueId)).ok()) ++sent;
  EXPECT_LT(sent, 100'000);
  EXPECT_THAT(Open(env).UniqueId(), IsOk());
}

TEST(SessionTest, SessionsOverTheLimitAreToldSo) {
  CoreOptions options;
  options.limits.sessions = 2;
  DaemonEnv env(options);
  RawClient first = Open(env), second = Open(env);
  EXPECT_THAT(RawClient::Open(env.socket_path()),
              FailsWith(absl::StatusCode::kInternal, HasSubstr("(limits.sessions)")));
  EXPECT_THAT(first.UniqueId(), IsOk());
}

TEST(SessionTest, ADrainingDaemonTakesNoSessionsAndCommunicators) {
  DaemonEnv env;
  RawClient client = Open(env);
  const auto unique_id = client.UniqueId();
  ASSERT_THAT(env.core().SetDraining(true), IsOk());
  EXPECT_THAT(RawClient::Open(env.socket_path()),
              FailsWith(absl::StatusCode::kInternal, HasSubstr("draining")));
  ExpectRefusal(client.Call(client.MakeCommInit(*unique_id, 1, 0)), shm::Result::kSystemError,
                HasSubstr("draining"));
  EXPECT_TRUE(env.core().GetSnapshot()->core.draining);
  ASSERT_THAT(env.core().SetDraining(false), IsOk());
  ExpectSuccess(client.Call(client.MakeCommInit(*unique_id, 1, 0)));
}

TEST(BufferTest, OnlyMemfdsThatCannotShrinkAreMapped) {
  DaemonEnv env;
  RawClient client = Open(env);
  const UniqueFd unsealed = Memfd(8192, 0);
  ExpectRefusal(RegisterFd(client, unsealed.get(), 8192), shm::Result::kInvalidArgument,
                HasSubstr("F_SEAL_SHRINK"));
  const UniqueFd growing = Memfd(8192, F_SEAL_GROW);
  ExpectRefusal(RegisterFd(client, growing.get(), 8192), shm::Result::kInvalidArgument,
                HasSubstr("F_SEAL_SHRINK"));
  const UniqueFd small = Memfd(4096, F_SEAL_SHRINK);
  ExpectRefusal(RegisterFd(client, small.get(), 4097), shm::Result::kInvalidArgument,
                HasSubstr("4096 bytes"));
  ExpectRefusal(RegisterFd(client, small.get(), 0), shm::Result::kInvalidArgument,
                HasSubstr("0 bytes"));
  ExpectRefusal(RegisterFd(client, small.get(), ~0ull), shm::Result::kSystemError,
                HasSubstr("(limits.buffer_bytes)"));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  ExpectRefusal(RegisterFd(client, read_end.get(), 4096), shm::Result::kInvalidArgument,
                HasSubstr("memfd"));
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  ExpectRefusal(RegisterFd(client, file.get(), 4096), shm::Result::kInvalidArgument,
                HasSubstr("memfd"));
  const UniqueFd read_only = Memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE);
  ExpectRefusal(RegisterFd(client, read_only.get(), 4096), shm::Result::kSystemError,
                HasSubstr("mapping"));
  ExpectSuccess(RegisterFd(client, small.get(), 4096));
  // Whoever tries to truncate it now is refused by the kernel.
  EXPECT_NE(::ftruncate(small.get(), 0), 0);
}

TEST(BufferTest, OneFileIsMappedOnceAndUnmappedWithItsLastBuffer) {
  DaemonEnv env;
  RawClient client = Open(env);
  const uint32_t before = env.core().mappings();
  const UniqueFd memfd = Memfd(8192, F_SEAL_SHRINK);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 3; ++i) {
    const auto reply = RegisterFd(client, memfd.get(), 4096 * (1 + i % 2));
    ExpectSuccess(reply);
    ids.push_back(reply->value);
  }
  EXPECT_EQ(env.core().mappings(), before + 2);  // the first was too short for the second
  for (const uint64_t id : ids) {
    shm::Request request = client.Make(shm::RequestType::kDeregister);
    request.deregister.buffer_id = id;
    ExpectSuccess(client.Call(request));
    ExpectRefusal(client.Call([&] {
      shm::Request again = client.Make(shm::RequestType::kDeregister);
      again.deregister.buffer_id = id;
      return again;
    }()),
                  shm::Result::kInvalidUsage, HasSubstr("is not registered"));
  }
  while (env.core().mappings() != before) ::poll(nullptr, 0, 1);
  EXPECT_EQ(env.core().GetSnapshot()->buffers.size(), 0u);
}

// What is mapped is what is counted: the file may be larger than the limit, and than all memory.
TEST(BufferTest, OfAFileNoMoreIsMappedThanIsRegistered) {
  DaemonEnv env;
  RawClient client = Open(env);
  std::vector<UniqueFd> files;
  for (int i = 0; i < 40; ++i) {  // 320 TiB, of the 128 that there are
    files.push_back(Memfd(uint64_t{1} << 43, F_SEAL_SHRINK));
    ExpectSuccess(RegisterFd(client, files.back().get(), 4096));
  }
}

TEST(BufferTest, ALimitThatWasLoweredBelowWhatIsHeldHolds) {
  CoreOptions options;
  options.limits.buffer_bytes_per_session = 1 << 20;
  DaemonEnv env(options);
  RawClient client = Open(env);
  const UniqueFd memfd = Memfd(1 << 20, F_SEAL_SHRINK);
  ExpectSuccess(RegisterFd(client, memfd.get(), 1 << 19));
  options.limits.buffer_bytes_per_session = 1 << 12;
  ASSERT_THAT(env.core().Reconfigure(options), IsOk());
  ExpectRefusal(RegisterFd(client, memfd.get(), 4096), shm::Result::kSystemError,
                HasSubstr("(limits.buffer_bytes)"));
}

TEST(BufferTest, LimitsAreNamed) {
  CoreOptions options;
  options.limits.buffers_per_session = 2;
  options.limits.buffer_bytes_per_session = 1 << 20;
  DaemonEnv env(options);
  RawClient client = Open(env);
  const UniqueFd memfd = Memfd(1 << 21, F_SEAL_SHRINK);
  ExpectRefusal(RegisterFd(client, memfd.get(), (1 << 20) + 1), shm::Result::kSystemError,
                HasSubstr("(limits.buffer_bytes)"));
  ExpectSuccess(RegisterFd(client, memfd.get(), 4096));
  ExpectRefusal(RegisterFd(client, memfd.get(), (1 << 20) - 4095), shm::Result::kSystemError,
                HasSubstr("(limits.buffer_bytes)"));
  ExpectSuccess(RegisterFd(client, memfd.get(), 4096));
  ExpectRefusal(RegisterFd(client, memfd.get(), 4096), shm::Result::kSystemError,
                HasSubstr("(limits.buffers)"));
  RawClient other = Open(env);
  ExpectSuccess(RegisterFd(other, memfd.get(), 4096));
}

TEST(BufferTest, AddressesTakeMemoryThatWasHandedOver) {
  DaemonEnv env;
  RawClient client = Open(env);
  shm::Request address = client.Make(shm::RequestType::kRegisterAddress);
  address.buffer.address = 16;  // nothing is there, and nothing is touched
  address.buffer.size_bytes = 8;
  ExpectRefusal(client.Call(address), shm::Result::kInvalidUsage, HasSubstr("handed over"));
  const auto hand_over = [&](const std::vector<int>& fds) {
    return client.Call(client.Make(shm::RequestType::kHandOverMemory), fds);
  };
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const UniqueFd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  ExpectRefusal(hand_over({}), shm::Result::kInvalidArgument, HasSubstr("expected two"));
  ExpectRefusal(hand_over({event.get(), maps.get()}), shm::Result::kInvalidArgument,
                HasSubstr("/mem"));
  ExpectSuccess(hand_over({memory.get(), maps.get()}));
  ExpectRefusal(hand_over({memory.get(), maps.get()}), shm::Result::kInvalidUsage,
                HasSubstr("before"));
  address.request_id = client.Make(shm::RequestType::kRegisterAddress).request_id;
  ExpectSuccess(client.Call(address));
}

TEST(BufferTest, AddressesThatWrapAreRefused) {
  DaemonEnv env;
  RawClient client = Open(env);
  ASSERT_THAT(client.HandOverMemory(), IsOk());
  for (const auto& [address, size] :
       {std::pair(0ull, 8ull), std::pair(4096ull, 0ull), std::pair(~0ull, 2ull)}) {
    shm::Request request = client.Make(shm::RequestType::kRegisterAddress);
    request.buffer.address = address;
    request.buffer.size_bytes = size;
    ExpectRefusal(client.Call(request), shm::Result::kInvalidArgument, HasSubstr("at address"));
  }
}

TEST(CommInitTest, ArgumentsThatAreWrongInThemselves) {
  DaemonEnv env;
  RawClient client = Open(env);
  const std::string unique_id = *client.UniqueId();
  ExpectRefusal(client.Call(client.MakeCommInit(unique_id, 0, 0)), shm::Result::kInvalidArgument,
                HasSubstr("0 ranks"));
  ExpectRefusal(client.Call(client.MakeCommInit(unique_id, 257, 0)), shm::Result::kInvalidArgument,
                HasSubstr("1 to 256"));
  ExpectRefusal(client.Call(client.MakeCommInit(unique_id, 2, 2)), shm::Result::kInvalidArgument,
                HasSubstr("rank 2 of 2"));
  shm::Request request = client.MakeCommInit(unique_id, 1, 0);
  shm::SetText(request.comm_init.algorithm, "star");
  ExpectRefusal(client.Call(request), shm::Result::kInvalidArgument,
                HasSubstr("unknown algorithm \"star\" (SPCCL_ALGO): there are auto, local, ring"));
  request = client.MakeCommInit(unique_id, 1, 0);
  shm::SetText(request.comm_init.codec, "zip");
  ExpectRefusal(client.Call(request), shm::Result::kInvalidArgument,
                HasSubstr("unknown codec \"zip\" (SPCCL_CODEC): there are auto, dense, pici"));
  ExpectRefusal(client.Call(client.MakeCommInit(std::string(128, '\0'), 1, 0)),
                shm::Result::kInvalidArgument, HasSubstr("unique id"));
  std::string guessed = unique_id;
  guessed[20] ^= 1;
  ExpectRefusal(client.Call(client.MakeCommInit(guessed, 1, 0)), shm::Result::kInvalidUsage,
                HasSubstr("not known"));
  ExpectSuccess(client.Call(client.MakeCommInit(unique_id, 1, 0)));
  ExpectRefusal(client.Call(client.MakeCommInit(unique_id, 1, 0)), shm::Result::kInvalidUsage,
                HasSubstr("has formed a communicator already"));
}

TEST(CommInitTest, MissingRanksAreNamedToAllAtTheDeadline) {
  DaemonEnv env;
  RawClient a = Open(env), b = Open(env), late = Open(env);
  const std::string unique_id = *a.UniqueId();
  const shm::Request of_a = a.MakeCommInit(unique_id, 4, 0, 60'000);
  const shm::Request of_b = b.MakeCommInit(unique_id, 4, 2, 100);
  ASSERT_THAT(a.Send(of_a), IsOk());
  ASSERT_THAT(b.Send(of_b), IsOk());
  const auto is_told = HasSubstr("rank 1, rank 3 of 4 did not join");
  ExpectRefusal(a.AwaitReply(of_a.request_id), shm::Result::kRemoteError, is_told);
  ExpectRefusal(b.AwaitReply(of_b.request_id), shm::Result::kRemoteError, is_told);
  ExpectRefusal(late.Call(late.MakeCommInit(unique_id, 4, 1)), shm::Result::kRemoteError, is_told);
  EXPECT_EQ(env.core().GetSnapshot()->comms.size(), 0u);
}

TEST(CommInitTest, RanksThatDisagreeAreAllTold) {
  DaemonEnv env;
  for (const bool same_rank : {false, true}) {
    RawClient a = Open(env), b = Open(env);
    const std::string unique_id = *a.UniqueId();
    const shm::Request of_a = a.MakeCommInit(unique_id, 3, 1);
    ASSERT_THAT(a.Send(of_a), IsOk());
    const auto is_told =
        same_rank ? HasSubstr("two processes are rank 1") : HasSubstr("disagree on the size");
    // The first request is in the daemon before the second: wait until it forms.
    while (env.core().GetSnapshot()->comms.empty()) ::poll(nullptr, 0, 1);
    ExpectRefusal(
        b.Call(same_rank ? b.MakeCommInit(unique_id, 3, 1) : b.MakeCommInit(unique_id, 2, 0)),
        shm::Result::kInvalidUsage, is_told);
    ExpectRefusal(a.AwaitReply(of_a.request_id), shm::Result::kInvalidUsage, is_told);
  }
}

TEST(CommInitTest, ARankThatLeavesWhileOthersWaitIsNamed) {
  DaemonEnv env;
  RawClient a = Open(env);
  const std::string unique_id = *a.UniqueId();
  const shm::Request of_a = a.MakeCommInit(unique_id, 3, 0);
  ASSERT_THAT(a.Send(of_a), IsOk());
  {
    RawClient b = Open(env);
    ASSERT_THAT(b.Send(b.MakeCommInit(unique_id, 3, 1)), IsOk());
  }
  ExpectRefusal(a.AwaitReply(of_a.request_id), shm::Result::kRemoteError,
                AllOf(HasSubstr("rank 1 (pid "), HasSubstr("has closed its session")));
}

TEST(CommInitTest, CommunicatorsOverTheLimitAreToldSo) {
  CoreOptions options;
  options.limits.communicators = 1;
  DaemonEnv env(options);
  RawClient client = Open(env);
  ExpectSuccess(client.Call(client.MakeCommInit(*client.UniqueId(), 1, 0)));
  ExpectRefusal(client.Call(client.MakeCommInit(*client.UniqueId(), 1, 0)),
                shm::Result::kSystemError, HasSubstr("its limit (limits.communicators)"));
}

// The descriptor beside the reply.
UniqueFd AskForRelays(RawRank& rank) {
  shm::Request request = rank.client.Make(shm::RequestType::kCommRelays);
  request.comm.comm_id = rank.handle;
  EXPECT_THAT(rank.client.Send(request), IsOk());
  pollfd query{.fd = rank.client.socket(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&query, 1, spccl::testing::kPatienceMs), 1);
  shm::Reply reply;
  absl::StatusOr<shm::Packet> packet =
      shm::ReceivePacket(rank.client.socket(), &reply, sizeof reply);
  EXPECT_THAT(packet, IsOk());
  EXPECT_EQ(reply.request_id, request.request_id);
  EXPECT_EQ(reply.result, 0u) << reply.message;
  EXPECT_EQ(packet->fds.size(), 1u);
  return std::move(packet->fds.at(0));
}

TEST(CommRelaysTest, AllRanksOfACommunicatorGetTheSameSealedMemory) {
  DaemonEnv env;
  auto ranks = FormComm(env.socket_path(), 2);
  ASSERT_THAT(ranks, IsOk());
  struct stat seen[2];
  for (int rank = 0; rank < 2; ++rank) {
    const UniqueFd memory = AskForRelays((*ranks)[rank]);
    EXPECT_THAT(CheckSealedMemfd(memory.get(), shm::RelayBytes(2)), IsOk());
    ASSERT_EQ(::fstat(memory.get(), &seen[rank]), 0);
  }
  EXPECT_EQ(seen[0].st_ino, seen[1].st_ino);
  RawClient& client = (*ranks)[0].client;
  shm::Request request = client.Make(shm::RequestType::kCommRelays);
  request.comm.comm_id = 99;
  ExpectRefusal(client.Call(request), shm::Result::kInvalidUsage,
                HasSubstr("not one of this process"));
}

TEST(CommRelaysTest, WhoHoldsUpAnOperationInThemIsNamedWhenTheTimeIsUp) {
  CoreOptions options;
  options.op_timeout_ns = 100'000'000;
  DaemonEnv env(options);
  auto ranks = FormComm(env.socket_path(), 2);
  ASSERT_THAT(ranks, IsOk());
  const UniqueFd memory = AskForRelays((*ranks)[0]);
  const auto control = SharedMapping::Create(memory.get(), shm::RelaySlotsOffset(2));
  ASSERT_THAT(control, IsOk());
  // Rank 0 has handed over a slice that rank 1 reduces.
  constexpr uint64_t kSlice = 1;
  reinterpret_cast<shm::RelayControl*>(control->data())->turns[shm::SlotOf(kSlice, 0, 2)].value =
      shm::HandedOver(/*sequence=*/0, kSlice);
  for (RawRank& rank : *ranks) {
    const auto buffer = rank.client.Allocate(2 * spccl::testing::kLargeCount * sizeof(float));
    ASSERT_THAT(buffer, IsOk());
    shm::Submission slot = AllReduceSlot(rank, *buffer, spccl::testing::kLargeCount, 0,
                                         spccl::testing::kLargeCount * sizeof(float));
    slot.relay = 1;
    ASSERT_TRUE(rank.client.Push(slot));
  }
  const auto completion = (*ranks)[0].client.AwaitCompletion();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->result, static_cast<uint32_t>(shm::Result::kRemoteError));
  EXPECT_THAT(std::string(shm::TextOf(completion->message)),
              AllOf(HasSubstr("operation 0 took more than 100 ms"),
                    HasSubstr("waited for rank 1 (pid "), HasSubstr("has not done its part")));
}

TEST(CommDestroyTest, FreesTheCommunicatorAndItsJobsCount) {
  DaemonEnv env;
  auto ranks = FormComm(env.socket_path(), 2);
  ASSERT_THAT(ranks, IsOk());
  for (RawRank& rank : *ranks) {
    shm::Request request = rank.client.Make(shm::RequestType::kCommDestroy);
    request.comm.comm_id = rank.handle;
    ExpectSuccess(rank.client.Call(request));
    request.request_id = 1000;
    ExpectRefusal(rank.client.Call(request), shm::Result::kInvalidUsage,
                  HasSubstr("not one of this process"));
  }
  const auto snapshot = env.core().GetSnapshot();
  EXPECT_TRUE(snapshot->comms.empty());
  EXPECT_EQ(snapshot->jobs.at(0).communicators, 0u);
  EXPECT_EQ(snapshot->jobs[0].counters.failed_ops, 0u);
}

TEST(CommDestroyTest, TheLastOneGivesBackWhatIsKeptForOperations) {
  DaemonEnv env;
  const auto destroy = [](std::vector<RawRank>& ranks) {
    for (RawRank& rank : ranks) {
      shm::Request request = rank.client.Make(shm::RequestType::kCommDestroy);
      request.comm.comm_id = rank.handle;
      ExpectSuccess(rank.client.Call(request));
    }
  };
  auto first = FormComm(env.socket_path(), 2), second = FormComm(env.socket_path(), 2);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  transport::FramePool& pool = transport::FramePool::Shared();
  pool.Take(100'000);
  const size_t kept = pool.kept_bytes();
  EXPECT_GT(kept, 0u);
  destroy(*first);
  EXPECT_EQ(pool.kept_bytes(), kept);
  destroy(*second);
  // The answer comes after the communicator is gone.
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

}  // namespace
}  // namespace spccl::daemon
