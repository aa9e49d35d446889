#include "daemon/metrics/listen_address.h"

#include <gtest/gtest.h>

#include <string>

namespace spccl::daemon::metrics {
namespace {

TEST(ListenAddressTest, WhatItMayBe) {
  EXPECT_EQ(*ParseListenAddress("unix"), ListenAddress{});
  EXPECT_EQ(*ParseListenAddress("unix:/run/x.sock"),
            (ListenAddress{.path = "/run/x.sock", .host = ""}));
  const ListenAddress loopback{.is_unix = false, .path = "", .host = "127.0.0.1", .port = 9464};
  EXPECT_EQ(*ParseListenAddress("127.0.0.1:9464"), loopback);
  EXPECT_EQ(*ParseListenAddress("localhost:9464"), loopback);
  EXPECT_EQ(*ParseListenAddress("[::1]:0"),
            (ListenAddress{.is_unix = false, .path = "", .host = "::1", .port = 0}));
}

TEST(ListenAddressTest, WhatIsRefused) {
  for (const std::string text : {"", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                                 "127.0.0.1:-1", "::1:9464", "node1:9464", "256.0.0.1:1",
                                 "unix:", "unix:metrics.sock", "unix:/run/", "UNIX"}) {
    EXPECT_EQ(ParseListenAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseListenAddress("unix:/" + std::string(107, 'a')).ok());
  EXPECT_TRUE(ParseListenAddress("unix:/" + std::string(106, 'a')).ok());
  EXPECT_FALSE(ParseListenAddress(std::string("unix:/a\0b", 9)).ok());
}

TEST(ListenAddressTest, WhatOtherMachinesReach) {
  for (const char* text : {"unix", "unix:/x", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"}) {
    EXPECT_FALSE(IsOpen(*ParseListenAddress(text))) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1"}) {
    EXPECT_TRUE(IsOpen(*ParseListenAddress(text))) << text;
  }
}

}  // namespace
}  // namespace spccl::daemon::metrics
