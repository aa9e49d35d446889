// What the tests of the client share: a scripted daemon a test, and short forms of the API.
#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"

namespace spccl::testing {

class ClientTest : public ::testing::Test {
 protected:
  // A communicator of this process alone.
  static spcclComm_t OneRank() {
    spcclUniqueId id;
    EXPECT_EQ(spcclGetUniqueId(&id), spcclSuccess) << spcclGetLastError(nullptr);
    spcclComm_t comm = nullptr;
    EXPECT_EQ(spcclCommInitRank(&comm, 1, id, 0), spcclSuccess) << spcclGetLastError(nullptr);
    return comm;
  }

  static spcclResult_t Sum(const std::vector<float>& send, std::vector<float>* recv,
                           spcclComm_t comm, spcclStream_t stream = nullptr) {
    return spcclAllReduce(send.data(), recv->data(), send.size(), spcclFloat32, spcclSum, comm,
                          stream);
  }

  static std::vector<float> Rising(size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1.0f);
    return values;
  }

  static std::string LastError(spcclComm_t comm = nullptr) { return spcclGetLastError(comm); }

  FakeDaemon daemon_;
};

}  // namespace spccl::testing
