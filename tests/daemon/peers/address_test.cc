#include "daemon/peers/address.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spccl::daemon::peers {
namespace {

TEST(AddressTest, WhatIsReadIsWrittenTheSame) {
  for (const std::string text :
       {"127.0.0.1:0", "host:1", "a-b.example.org:65535", "[::1]:7440", "[fe80::1]:80"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->text(), text);
  }
  EXPECT_EQ(ParseAddress("[::1]:7440")->host, "::1");
  EXPECT_EQ(ParseAddress("host:7440")->port, 7440);
}

TEST(AddressTest, WhatIsNoAddressIsRefused) {
  for (const std::string text :
       {"", ":", "host", ":1", "host:", "host:-1", "host:65536", "host:1x", "::1:7", "[::1]",
        "[host]:1", "[::1:1", "a b:1", "a/b:1", "host:+1", "unix:/tmp/x"}) {
    EXPECT_EQ(ParseAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(AddressTest, LoopbackIsWhatNobodyElseReaches) {
  for (const std::string host : {"127.0.0.1", "127.9.8.7", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const std::string host : {"0.0.0.0", "::", "128.0.0.1", "10.0.0.1", "localhost.example",
                                 "host", "::ffff:10.0.0.1", "127.0.0.1.example"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
  EXPECT_TRUE(IsWildcard("0.0.0.0") && IsWildcard("::"));
  EXPECT_FALSE(IsWildcard("127.0.0.1") || IsWildcard("host"));
}

}  // namespace
}  // namespace spccl::daemon::peers
