#include "proto/spccl/v1/flight_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::flight {
namespace {

using ::testing::HasSubstr;

v1::FlightRecord Sample() {
  v1::FlightRecord record;
  record.set_comm_id(7);
  record.add_spans()->set_bytes(9);
  return record;
}

TEST(FlightFileTest, WhatIsWrittenIsRead) {
  const auto read = ParseFile(FormatFile(Sample()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), Sample().SerializeAsString());
}

TEST(FlightFileTest, Names) {
  EXPECT_TRUE(IsFileName("flight-00000000000000001000-00000000000000aa-comm7.spcclflight"));
  EXPECT_FALSE(IsFileName("flight-1-comm7.spcclflight.new"));
  EXPECT_FALSE(IsFileName("notes.spcclflight"));
}

TEST(FlightFileTest, EveryDamageIsFound) {
  const std::string content = FormatFile(Sample());
  for (size_t length = 0; length < content.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(ParseFile(content.substr(0, length)).status())) << length;
  }
  for (size_t at = 0; at < content.size(); ++at) {
    std::string damaged = content;
    damaged[at] ^= 1;
    EXPECT_TRUE(absl::IsDataLoss(ParseFile(damaged).status())) << at;
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseFile(content + "x").status()));
}

TEST(FlightFileTest, AnotherVersionIsNamed) {
  std::string content = FormatFile(Sample());
  content[8] = 2;
  EXPECT_THAT(std::string(ParseFile(content).status().message()), HasSubstr("version 2"));
}

}  // namespace
}  // namespace spccl::flight
