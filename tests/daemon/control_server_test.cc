#include "daemon/control_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "proto/spccl/v1/control.grpc.pb.h"
#include "tests/daemon/control_server_fixture.h"

namespace spccl::daemon {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

TEST_F(ControlServerTest, OurOwnUserIsAnAdministrator) {
  Start();
  const auto stub = v1::Control::NewStub(Channel());
  EXPECT_TRUE(Drain(stub.get()).ok());
  struct stat info;
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
}

TEST_F(ControlServerTest, TheKernelSaysWhoCalls) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  Start(std::to_string(kGroup));
  EXPECT_EQ(Drain(StubOn(ConnectAs(path(), kNobody, {})).get()).error_code(),
            Code::PERMISSION_DENIED);
  EXPECT_EQ(Drain(StubOn(ConnectAs(path(), kNobody, {7, kGroup + 1})).get()).error_code(),
            Code::PERMISSION_DENIED);
  std::vector<gid_t> many(100);
  for (gid_t i = 0; i < many.size(); ++i) many[i] = 70000 + i;
  many.push_back(kGroup);
  EXPECT_TRUE(Drain(StubOn(ConnectAs(path(), kNobody, {7, kGroup})).get()).ok());
  EXPECT_TRUE(Drain(StubOn(ConnectAs(path(), kNobody, many)).get()).ok());
  EXPECT_TRUE(Drain(StubOn(ConnectAs(path(), kGroup, {})).get()).ok()) << "as its primary group";
  const auto stranger = StubOn(ConnectAs(path(), kNobody, {}));
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(stranger->ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).uid(), kNobody);
}

TEST_F(ControlServerTest, AReusedDescriptorHasItsNewCaller) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  Start();
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(Drain(StubOn(ConnectAs(path(), kNobody, {})).get()).error_code(),
              Code::PERMISSION_DENIED);
    EXPECT_TRUE(Drain(StubOn(ConnectTo(path())).get()).ok());
  }
}

TEST_F(ControlServerTest, HealthFollowsTheCore) {
  core_.Update([](Snapshot* snapshot) { snapshot->core.healthy = false; });
  Start();
  EXPECT_EQ(Health(""), 2);  // from the first moment on
  EXPECT_EQ(Health("spccl.v1.Control"), 2);
  core_.Update([](Snapshot* snapshot) { snapshot->core.healthy = true; });
  EXPECT_TRUE(HealthBecomes(1));
  core_.Fail(absl::DeadlineExceededError("stuck"));
  EXPECT_TRUE(HealthBecomes(2));
}

TEST_F(ControlServerTest, ReflectionNamesTheServices) {
  Start();
  const std::string reply = Ask("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                std::string("\x3a\x01*", 3));  // list_services: "*"
  EXPECT_THAT(reply, HasSubstr("spccl.v1.Control"));
  EXPECT_THAT(reply, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(ControlServerTest, ItStopsWithStreamsOpenAndRemovesItsSocket) {
  Start();
  const auto stub = v1::Control::NewStub(Channel());
  grpc::ClientContext context;
  v1::StreamEventsRequest request;
  request.set_follow(true);
  const auto reader = stub->StreamEvents(&context, request);
  ASSERT_TRUE(core_.WaitForSubscribers(1));
  server_.reset();
  v1::StreamEventsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_TRUE(core_.WaitForSubscribers(0));
}

TEST_F(ControlServerTest, AStaleSocketIsReplacedAndALiveOneIsNot) {
  Start();
  EXPECT_EQ(TryStart().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Drain(v1::Control::NewStub(Channel()).get()).ok());
  server_.reset();
  {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().data(), path().size());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path()));
  Start();
  EXPECT_TRUE(Drain(v1::Control::NewStub(Channel()).get()).ok());
}

TEST_F(ControlServerTest, WithoutItsThreadsItDoesNotStart) {
  for (const int most : {0, 1}) {
    options_.start = [started = 0, most](std::function<void()> run) mutable {
      if (started++ == most) throw std::system_error(EAGAIN, std::system_category());
      return std::thread(std::move(run));
    };
    const absl::Status status = TryStart().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no thread to serve the control socket"));
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
}

TEST_F(ControlServerTest, WhatItCannotStartWithIsSaid) {
  EXPECT_EQ(TryStart("no-such-group-here").status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(TryStart().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace spccl::daemon
