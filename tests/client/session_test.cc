// What the process's session does when all is well, and when the daemon is late, wrong or gone.
#include "client/session.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/process.h"
#include "proto/shm/slot.h"
#include "tests/client/client_test.h"

namespace spccl::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Notice;

class SessionTest : public testing::ClientTest {
 protected:
  // Runs `call` on a thread and, once the daemon has its operation, `blow`; returns the result and
  // how long it took to come.
  template <typename Call, typename Blow>
  std::pair<spcclResult_t, std::string> ResultAfter(Call call, Blow blow) {
    daemon_.HoldOperations(true);
    const size_t before = daemon_.submissions().size();
    std::pair<spcclResult_t, std::string> end;
    std::thread waiter([&] {
      end.first = call();
      end.second = spcclGetLastError(nullptr);
    });
    EXPECT_TRUE(daemon_.AwaitSubmissions(before + 1));
    const auto start = std::chrono::steady_clock::now();
    blow();
    waiter.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
    return end;
  }

  // Of an operation during which the daemon says goodbye, and goes.
  std::pair<spcclResult_t, std::string> ResultAtGoodbye(spcclComm_t comm, shm::Result result,
                                                        const char* reason) {
    const std::vector<float> send = Rising(8);
    std::vector<float> recv(8);
    return ResultAfter([&] { return Sum(send, &recv, comm); },
                       [&] {
                         daemon_.Send(Notice(shm::ReplyType::kGoodbye, 0, result, reason));
                         daemon_.Kill();
                       });
  }
};

TEST_F(SessionTest, OpensOnceAndOnlyWhenNeeded) {
  int version;
  void* memory;
  spcclStream_t stream;
  EXPECT_EQ(spcclGetVersion(&version), spcclSuccess);
  EXPECT_EQ(spcclMemAlloc(&memory, 100), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
  EXPECT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(daemon_.sessions(), 0u);
  EXPECT_EQ(spcclCommDestroy(OneRank()), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(OneRank()), spcclSuccess);
  EXPECT_EQ(daemon_.sessions(), 1u);
}

TEST_F(SessionTest, WithoutADaemonTheTextSaysWhereItLooked) {
  daemon_.Kill();
  spcclUniqueId id;
  EXPECT_EQ(spcclGetUniqueId(&id), spcclSystemError);
  EXPECT_THAT(LastError(), HasSubstr("no spccl daemon"));
  EXPECT_THAT(LastError(), HasSubstr(std::getenv("SPCCL_RUNTIME_DIR")));
}

TEST_F(SessionTest, OfADaemonThatIsClosedToThisUserTheTextSaysSo) {
  const char* const folder = std::getenv("SPCCL_RUNTIME_DIR");
  ASSERT_EQ(::chmod(folder, 0), 0);
  // Root may go anywhere; this thread is somebody else for a while.
  const bool is_root = ::geteuid() == 0;
  if (is_root) ASSERT_EQ(::syscall(SYS_setresuid, -1, 65534, -1), 0);
  spcclUniqueId id;
  EXPECT_EQ(spcclGetUniqueId(&id), spcclSystemError);
  const std::string said = LastError();
  if (is_root) ASSERT_EQ(::syscall(SYS_setresuid, -1, 0, -1), 0);
  ASSERT_EQ(::chmod(folder, 0700), 0);
  EXPECT_THAT(said, AllOf(HasSubstr("Permission denied"), HasSubstr("closed to this user"),
                          Not(HasSubstr("does spccld run"))));
}

TEST_F(SessionTest, APathThatIsTooLongIsRefused) {
  ::setenv("SPCCL_RUNTIME_DIR", std::string(200, 'x').c_str(), 1);
  spcclUniqueId id;
  EXPECT_EQ(spcclGetUniqueId(&id), spcclInvalidArgument);
}

TEST_F(SessionTest, WrongValuesInTheEnvironmentAreRefused) {
  const std::pair<const char*, const char*> wrong[] = {{"SPCCL_RELAY_BYTES", "abc"},
                                                       {"SPCCL_RELAY_BYTES", "-1"},
                                                       {"SPCCL_RELAY_BYTES", "1M"},
                                                       {"SPCCL_FORCE_STAGING", "x"},
                                                       {"SPCCL_FORCE_STAGING", "11"}};
  spcclUniqueId id;
  for (const auto& [name, value] : wrong) {
    ::setenv(name, value, 1);
    EXPECT_EQ(spcclGetUniqueId(&id), spcclInvalidArgument) << name << "=" << value;
    EXPECT_THAT(LastError(), HasSubstr(absl::StrCat(name, " is \"", value, "\", expected")));
    ::unsetenv(name);
  }
  EXPECT_EQ(daemon_.sessions(), 0u);
  for (const char* value : {"", "0"}) {
    ::setenv("SPCCL_FORCE_STAGING", value, 1);
    EXPECT_EQ(spcclGetUniqueId(&id), spcclSuccess) << LastError();
    ::unsetenv("SPCCL_FORCE_STAGING");
    daemon_.Kill();
    daemon_.Restart();
  }
}

TEST_F(SessionTest, ARefusedHelloKeepsTheDaemonsReason) {
  daemon_.Refuse(shm::RequestType::kHello, shm::Result::kInvalidUsage, "protocol 9 only");
  spcclUniqueId id;
  EXPECT_EQ(spcclGetUniqueId(&id), spcclInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("protocol 9 only"));
}

TEST_F(SessionTest, ASegmentOfAnotherVersionIsRefusedWithBothNumbers) {
  daemon_.SetSegmentVersion(shm::kShmVersion + 7);
  spcclUniqueId id;
  EXPECT_EQ(spcclGetUniqueId(&id), spcclInternalError);
  EXPECT_THAT(LastError(), HasSubstr(absl::StrCat("version ", shm::kShmVersion + 7)));
  EXPECT_THAT(LastError(), HasSubstr(absl::StrCat("expected ", shm::kShmVersion)));
  EXPECT_THAT(LastError(), HasSubstr("same release"));
  daemon_.SetSegmentVersion(shm::kShmVersion);
  EXPECT_EQ(spcclGetUniqueId(&id), spcclSuccess);  // the next session is another
}

TEST_F(SessionTest, DeathEndsEveryWait) {
  const spcclComm_t comm = OneRank();
  const std::vector<float> send = Rising(8);
  std::vector<float> first(8), second(8);
  spcclResult_t other = spcclSuccess;
  std::thread another;
  const auto end = ResultAfter([&] { return Sum(send, &first, comm); },
                               [&] {
                                 another = std::thread([&] { other = Sum(send, &second, comm); });
                                 EXPECT_TRUE(daemon_.AwaitSubmissions(2));
                                 daemon_.Kill();
                                 another.join();
                               });
  EXPECT_EQ(end.first, spcclSystemError);
  EXPECT_EQ(other, spcclSystemError);
  EXPECT_THAT(end.second, HasSubstr("has gone"));
  spcclResult_t async;
  EXPECT_EQ(spcclCommGetAsyncError(comm, &async), spcclSuccess);
  EXPECT_EQ(async, spcclSystemError);
  EXPECT_THAT(LastError(comm), HasSubstr("has gone"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

// Nobody took the completion while the daemon lived.
TEST_F(SessionTest, WhatWasCompletedBeforeTheDeathIsComplete) {
  const spcclComm_t comm = OneRank();
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  const std::vector<float> send = Rising(8);
  std::vector<float> first(8), second(8);
  daemon_.HoldOperations(true);
  EXPECT_EQ(Sum(send, &first, comm, stream), spcclSuccess);
  EXPECT_TRUE(daemon_.AwaitSubmissions(1));
  daemon_.HoldOperations(false);
  daemon_.Kill();
  spcclResult_t async = spcclSuccess;
  while (async == spcclSuccess) {
    ASSERT_EQ(spcclCommGetAsyncError(comm, &async), spcclSuccess);
    std::this_thread::yield();
  }
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess) << LastError();
  EXPECT_EQ(first, send);
  EXPECT_EQ(Sum(send, &second, comm, stream), spcclSystemError);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(SessionTest, DeathEndsRequestsThatWait) {
  daemon_.HoldReplies(shm::RequestType::kUniqueId, true);
  spcclResult_t result = spcclSuccess;
  std::thread waiter([&] {
    spcclUniqueId id;
    result = spcclGetUniqueId(&id);
  });
  EXPECT_TRUE(daemon_.AwaitRequests(shm::RequestType::kUniqueId, 1));
  const auto start = std::chrono::steady_clock::now();
  daemon_.Kill();
  waiter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(result, spcclSystemError);
}

TEST_F(SessionTest, AfterARestartNewCommunicatorsWorkAndOldOnesKeepFailing) {
  const spcclComm_t old = OneRank();
  daemon_.Kill();
  daemon_.Restart();
  const spcclComm_t comm = OneRank();
  EXPECT_EQ(daemon_.sessions(), 2u);
  const std::vector<float> send = Rising(8);
  std::vector<float> recv(8);
  EXPECT_EQ(Sum(send, &recv, old), spcclSystemError);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(recv, send);
  EXPECT_EQ(spcclCommDestroy(old), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(SessionTest, MemoryIsRegisteredAnewWithANewSession) {
  void* memory;
  ASSERT_EQ(spcclMemAlloc(&memory, 4096), spcclSuccess);
  auto* values = static_cast<float*>(memory);
  for (size_t round = 1; round <= 2; ++round) {
    const spcclComm_t comm = OneRank();
    values[0] = static_cast<float>(round);
    EXPECT_EQ(spcclAllReduce(values, values + 8, 1, spcclFloat, spcclSum, comm, nullptr),
              spcclSuccess);
    EXPECT_EQ(values[8], static_cast<float>(round));
    EXPECT_EQ(daemon_.Requests(shm::RequestType::kRegisterMemfd), round);
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
    if (round == 1) {
      daemon_.Kill();
      daemon_.Restart();
    }
  }
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
}

TEST_F(SessionTest, ACorruptCompletionTailEndsTheSessionOnly) {
  const spcclComm_t comm = OneRank();
  const std::vector<float> send = Rising(8);
  std::vector<float> recv(8);
  const auto end =
      ResultAfter([&] { return Sum(send, &recv, comm); }, [&] { daemon_.CorruptCompletionTail(); });
  EXPECT_EQ(end.first, spcclInternalError);
  EXPECT_THAT(end.second, HasSubstr("completion ring"));
  EXPECT_TRUE(daemon_.AwaitSessionsOpen(0));
  daemon_.HoldOperations(false);
  const spcclComm_t next = OneRank();
  EXPECT_EQ(Sum(send, &recv, next), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(next), spcclSuccess);
}

TEST_F(SessionTest, ACorruptSubmissionHeadEndsTheSession) {
  const spcclComm_t comm = OneRank();
  daemon_.CorruptSubmissionHead();
  std::vector<float> send = Rising(8), recv(8);
  EXPECT_EQ(Sum(send, &recv, comm), spcclInternalError);
  EXPECT_THAT(LastError(), HasSubstr("submission ring"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(SessionTest, ACompletionOfNothingEndsTheSession) {
  for (const uint64_t ticket : {uint64_t{0}, uint64_t{77}, ~uint64_t{0}}) {
    const spcclComm_t comm = OneRank();
    const std::vector<float> send = Rising(8);
    std::vector<float> recv(8);
    const auto end = ResultAfter([&] { return Sum(send, &recv, comm); },
                                 [&] { daemon_.CompleteTicket(ticket); });
    EXPECT_EQ(end.first, spcclInternalError);
    EXPECT_THAT(end.second, HasSubstr("not outstanding"));
    daemon_.HoldOperations(false);
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  }
}

TEST_F(SessionTest, MessagesThatAreNoneEndTheSession) {
  for (const size_t bytes : {size_t{1}, sizeof(shm::Reply), sizeof(shm::Reply) + 8}) {
    const spcclComm_t comm = OneRank();
    const std::vector<float> send = Rising(8);
    std::vector<float> recv(8);
    const auto end =
        ResultAfter([&] { return Sum(send, &recv, comm); }, [&] { daemon_.SendRubbish(bytes); });
    EXPECT_EQ(end.first, spcclInternalError) << bytes;
    daemon_.HoldOperations(false);
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  }
}

TEST_F(SessionTest, RepliesThatNobodyAskedForAreIgnored) {
  const spcclComm_t comm = OneRank();
  daemon_.Send(Notice(shm::ReplyType::kReply, 1, shm::Result::kSuccess, ""));
  daemon_.Send(Notice(static_cast<shm::ReplyType>(99), 1, shm::Result::kSuccess, ""));
  std::vector<float> send = Rising(8), recv(8);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(SessionTest, GoodbyeIsRememberedAsTheReason) {
  const spcclComm_t comm = OneRank();
  const auto end = ResultAtGoodbye(comm, shm::Result::kSuccess, "");
  EXPECT_EQ(end.first, spcclSystemError);
  EXPECT_THAT(end.second, HasSubstr("has stopped"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(SessionTest, AGoodbyeWithAReasonIsToldAsItIs) {
  const spcclComm_t comm = OneRank();
  const auto end = ResultAtGoodbye(comm, shm::Result::kRemoteError, "job u1.j2 was ended");
  EXPECT_EQ(end.first, spcclRemoteError);
  EXPECT_THAT(end.second, HasSubstr("job u1.j2 was ended"));
  EXPECT_THAT(end.second, ::testing::Not(HasSubstr("the daemon")));
  spcclResult_t async;
  EXPECT_EQ(spcclCommGetAsyncError(comm, &async), spcclSuccess);
  EXPECT_EQ(async, spcclRemoteError);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

// The daemon answers once the client has given up, which it may say once more.
void ExpectLateReply(testing::FakeDaemon* daemon, const shm::Request& request,
                     shm::RequestType undone) {
  auto session = Process::Get().LiveSession();
  ASSERT_TRUE(session.ok()) << session.status();
  daemon->HoldReplies(request.type, true);
  const auto call = (*session)->Start(request);
  ASSERT_TRUE(call.ok());
  const auto reply = (*session)->Await(*call, "waiting in a test", /*timeout_ns=*/1'000'000);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("waiting in a test"));
  daemon->HoldReplies(request.type, false);
  EXPECT_TRUE(daemon->AwaitRequests(undone, 1));
  (*session)->Abandon(*call);
  shm::Request last{};
  last.type = shm::RequestType::kUniqueId;
  EXPECT_TRUE((*session)->Ask(last, "asking last").ok());
  EXPECT_EQ(daemon->Requests(undone), 1u);
}

TEST_F(SessionTest, ALateReplyIsAnErrorAndALateCommunicatorIsAborted) {
  shm::Request request{};
  request.type = shm::RequestType::kCommInit;
  request.comm_init.ranks = 1;
  ExpectLateReply(&daemon_, request, shm::RequestType::kCommAbort);
}

TEST_F(SessionTest, ALateBufferIsDeregistered) {
  shm::Request request{};
  request.type = shm::RequestType::kRegisterAddress;
  ExpectLateReply(&daemon_, request, shm::RequestType::kDeregister);
}

TEST_F(SessionTest, EachCommunicatorFindsRoomBesideTheOthers) {
  auto session = Process::Get().LiveSession();
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->Window(), 64u);
  for (int i = 0; i < 8; ++i) (*session)->AddComm();
  EXPECT_EQ((*session)->Window(), 32u);
  for (int i = 0; i < 248; ++i) (*session)->AddComm();
  EXPECT_EQ((*session)->Window(), 1u);
  EXPECT_EQ((*session)->ShareOf(1000), 3u);
  EXPECT_EQ((*session)->ShareOf(10), 1u);
  for (int i = 0; i < 256; ++i) (*session)->RemoveComm();
}

}  // namespace
}  // namespace spccl::client
