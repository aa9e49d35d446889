// The checks of devices, ports and clocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/doctor.h"
#include "tests/ctl/fake_machine.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

class DoctorNetworkTest : public ::testing::Test {
 protected:
  void Interface(const std::string& name, const std::string& state) {
    fake_.Put("/sys/class/net/" + name + "/operstate", state + "\n");
    fake_.Put("/sys/class/net/" + name + "/mtu", "9000\n");
    fake_.Put("/sys/class/net/" + name + "/speed", "10000\n");
  }
  // Port 7440 is held by uid 999, whose socket is 55; port 1 is connected, and does not count.
  void Listens(const std::string& process) {
    fake_.Put("/proc/" + process + "/net/tcp",
              "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
              "   0: 00000000:1D10 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999  "
              "      0 55 1 0000000000000000 100 0 0 10 0\n"
              "   1: 0100007F:0001 0100007F:0002 01 00000000:00000000 00:00000000 00000000     0  "
              "      0 56 1 0000000000000000 100 0 0 10 0\n");
  }
  Check Port(const std::string& address, const absl::StatusOr<Listener>& daemon) {
    return CheckPort(machine_, "peers' port", address, daemon);
  }

  const FakeMachine fake_;
  const Machine& machine_ = fake_.machine;
  const absl::StatusOr<Listener> none_ = absl::UnavailableError("no daemon");
};

TEST_F(DoctorNetworkTest, Devices) {
  Interface("lo", "unknown");
  fake_.Put("/sys/class/net/bonding_masters", "");  // no interface, as on real machines
  EXPECT_EQ(CheckDevices(machine_, false).verdict, Verdict::kSkipped);
  EXPECT_EQ(CheckDevices(machine_, true).verdict, Verdict::kFailed);
  Interface("eth0", "down");
  EXPECT_EQ(CheckDevices(machine_, true).verdict, Verdict::kFailed);
  Interface("eth0", "up");
  const Check check = CheckDevices(machine_, true);
  EXPECT_EQ(check.verdict, Verdict::kOk);
  EXPECT_EQ(check.found, "eth0 up, 10000 Mbit/s, mtu 9000");
  fake_.Put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  EXPECT_EQ(CheckDevices(machine_, true).verdict, Verdict::kOk);
  fake_.Put("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  EXPECT_EQ(CheckDevices(machine_, true).verdict, Verdict::kWarning);
  EXPECT_THAT(CheckDevices(machine_, true).remedy, HasSubstr("mlx5_0:1 1: DOWN"));
}

TEST_F(DoctorNetworkTest, WhatTheEnvironmentTellsUcx) {
  EXPECT_EQ(CheckUcxChoice(machine_, std::nullopt).verdict, Verdict::kSkipped);
  EXPECT_EQ(CheckUcxChoice(machine_, 7).verdict, Verdict::kSkipped);  // cannot be read
  fake_.Put("/proc/7/environ", std::string("PATH=/bin\0HOME=/\0", 17));
  EXPECT_THAT(CheckUcxChoice(machine_, 7).found, HasSubstr("by itself"));
  Interface("eth0", "up");
  fake_.Put("/proc/7/environ", std::string("UCX_NET_DEVICES=eth0,mlx5_0:1\0UCX_TLS=tcp\0", 42));
  const Check missing = CheckUcxChoice(machine_, 7);
  EXPECT_EQ(missing.verdict, Verdict::kFailed);
  EXPECT_THAT(missing.remedy, HasSubstr("not there: mlx5_0;"));
  fake_.Put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  EXPECT_EQ(CheckUcxChoice(machine_, 7).verdict, Verdict::kOk);
  EXPECT_THAT(CheckUcxChoice(machine_, 7).found, HasSubstr("UCX_TLS=tcp"));
}

TEST_F(DoctorNetworkTest, PortsWithoutADaemon) {
  EXPECT_EQ(Port("", none_).verdict, Verdict::kSkipped);
  EXPECT_EQ(Port("127.0.0.1:0", none_).verdict, Verdict::kSkipped);
  EXPECT_EQ(Port("0.0.0.0:7440", none_).verdict, Verdict::kOk);
  Listens("self");
  const Check taken = Port("[::]:7440", none_);
  EXPECT_EQ(taken.verdict, Verdict::kFailed);
  EXPECT_THAT(taken.found, HasSubstr("taken by a process of uid 999"));
  EXPECT_EQ(Port("0.0.0.0:1", none_).verdict, Verdict::kOk);  // connected is not listening
}

TEST_F(DoctorNetworkTest, PortsOfARunningDaemon) {
  const absl::StatusOr<Listener> daemon = Listener{.pid = 7, .uid = 999};
  EXPECT_EQ(Port("0.0.0.0:7440", daemon).verdict, Verdict::kFailed);  // nobody listens
  Listens("7");
  EXPECT_EQ(Port("0.0.0.0:7440", daemon).verdict, Verdict::kOk);  // by the user alone
  EXPECT_EQ(Port("0.0.0.0:7440", Listener{.pid = 7, .uid = 1}).verdict, Verdict::kFailed);
  fake_.Link("/proc/7/fd/3", "socket:[54]");
  EXPECT_EQ(Port("0.0.0.0:7440", daemon).verdict, Verdict::kFailed);  // of that user, but not it
  fake_.Link("/proc/7/fd/4", "socket:[55]");
  EXPECT_EQ(Port("0.0.0.0:7440", daemon).verdict, Verdict::kOk);
  EXPECT_THAT(Port("0.0.0.0:7440", daemon).found, HasSubstr("the daemon listens"));
  EXPECT_EQ(Port("0.0.0.0:7440", Listener{.pid = 0, .uid = 999}).verdict, Verdict::kSkipped);
}

TEST_F(DoctorNetworkTest, Munge) {
  const absl::StatusOr<Listener> munged = Listener{.pid = 9, .uid = 4711};
  DaemonConfig config{.fields = {{"peers.listen", "0.0.0.0:7440"}}};
  EXPECT_EQ(CheckMunge(config, none_).verdict, Verdict::kSkipped);
  config.fields["peers.munge"] = "true";
  const Check absent = CheckMunge(config, none_);
  EXPECT_EQ(absent.verdict, Verdict::kFailed);
  EXPECT_THAT(absent.found, HasSubstr("no daemon"));
  EXPECT_THAT(absent.remedy, HasSubstr("start munged"));
  EXPECT_EQ(CheckMunge(config, munged).verdict, Verdict::kOk);
  EXPECT_THAT(CheckMunge(config, munged).found, HasSubstr("uid 4711"));
  config.fields.erase("peers.listen");  // nobody is asked to prove anything
  EXPECT_EQ(CheckMunge(config, none_).verdict, Verdict::kSkipped);
}

TEST_F(DoctorNetworkTest, Clock) {
  EXPECT_EQ(CheckClock({.error = 1}).verdict, Verdict::kSkipped);
  EXPECT_EQ(CheckClock({.synchronised = false}).verdict, Verdict::kWarning);
  const Check fine = CheckClock({.synchronised = true, .most_error_us = 5000});
  EXPECT_EQ(fine.verdict, Verdict::kOk);
  EXPECT_THAT(fine.found, HasSubstr("to within 5"));
}

TEST_F(DoctorNetworkTest, ClocksOfPeers) {
  EXPECT_EQ(CheckPeerClocks({}, 0).verdict, Verdict::kSkipped);
  v1::FlightRecord record;
  record.set_unix_ns(100 * kSecond);
  v1::FlightRecord* const peer = record.add_peers();
  peer->set_node("node-b");
  const auto verdict = [&](int64_t unix_ns, int64_t took_ns) {
    peer->set_unix_ns(unix_ns);
    return CheckPeerClocks({record}, took_ns).verdict;
  };
  EXPECT_EQ(verdict(0, 0), Verdict::kSkipped);  // it has not said
  EXPECT_EQ(verdict(100 * kSecond + kSecond / 2, 0), Verdict::kOk);
  EXPECT_EQ(verdict(98 * kSecond, 0), Verdict::kWarning);
  EXPECT_EQ(verdict(98 * kSecond, 2 * kSecond), Verdict::kOk);  // asking took as long
  EXPECT_EQ(verdict(170 * kSecond, 0), Verdict::kFailed);
  EXPECT_THAT(CheckPeerClocks({record}, 0).found, HasSubstr("of node-b"));
}

}  // namespace
}  // namespace spccl::ctl
