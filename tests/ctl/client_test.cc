#include "ctl/client.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "daemon/control_server.h"
#include "tests/daemon/fake_control.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

TEST(ClientTest, TakesRecordsThatAreLargerThanWhatGrpcTakesByItself) {
  const spccl::testing::TempFolder folder;
  daemon::FakeControl core;
  core.Update([](daemon::Snapshot* snapshot) { *snapshot = daemon::SampleSnapshot({41}); });
  v1::FlightRecord record;
  record.set_comm_id(41);
  record.set_uid(41);
  record.set_error(std::string(size_t{5} << 20, 'x'));
  core.SetFlight(record);
  const auto settings = *daemon::SettingsStore::Create(folder.path(), {});
  const auto jobs = *daemon::JobTable::Create(folder.path() + "/jobs");
  const auto server = *daemon::ControlServer::Create(
      {.runtime_dir = folder.path(), .admin_group = ""}, &core, settings.get(), jobs.get());
  GlobalOptions options;
  options.runtime_dir = folder.path();
  options.deadline_ns = 20'000'000'000;
  const auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  v1::GetFlightRequest request;
  request.set_comm_id(41);
  const auto answer = (*client)->Call(&v1::Control::Stub::GetFlight, request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->record().error().size(), record.error().size());
}

TEST(StreamGuardTest, GivesUpAStreamOnWhichNothingMoreComes) {
  grpc::ClientContext call;
  StreamGuard guard(&call, 1);
  guard.Rearm();  // beside the thread that watches
  while (!guard.expired()) std::this_thread::yield();
  guard.Disarm();
}

}  // namespace
}  // namespace spccl::ctl
