#include "daemon/peers/tls.h"

#include <gtest/gtest.h>

namespace spccl::daemon::peers {
namespace {

TEST(TlsTest, NamesHost) {
  const std::vector<std::string> names = {"node1", "*.cluster", "10.0.0.1", "fe80::1"};
  for (const std::string host : {"node1", "NODE1", "a.cluster", "10.0.0.1", "fe80:0::1"}) {
    EXPECT_TRUE(NamesHost(names, host)) << host;
  }
  for (const std::string host :
       {"node2", "cluster", ".cluster", "a.b.cluster", "10.0.0.2", "fe80::2", "", "*.cluster2"}) {
    EXPECT_FALSE(NamesHost(names, host)) << host;
  }
  EXPECT_FALSE(NamesHost({}, "node1"));
}

}  // namespace
}  // namespace spccl::daemon::peers
