#include "bench/tune/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;

TEST(RecordTest, IsReadBack) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/sweep.json";
  auto record = ReadRecord(path);
  ASSERT_THAT(record, IsOk());
  EXPECT_FALSE(record->channels.has_value());
  ASSERT_THAT(WriteRecord(path, {}), IsOk());
  EXPECT_FALSE(ReadRecord(path)->channels.has_value());
  ASSERT_THAT(WriteRecord(path, {.arguments = {{"--launcher", "ssh \"{}\""}},
                                 .channels_of = {1, 8},
                                 .channels = 8}),
              IsOk());
  record = ReadRecord(path);
  ASSERT_THAT(record, IsOk());
  ASSERT_TRUE(record->arguments.has_value());
  EXPECT_THAT(*record->arguments, ElementsAre("--launcher", "ssh \"{}\""));
  EXPECT_EQ(record->channels, 8u);
  EXPECT_THAT(record->channels_of, ElementsAre(1, 8));
}

TEST(RecordTest, WhatIsDamagedIsNamed) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/sweep.json";
  for (const char* wrong :
       {"", "{", "3", R"({"arguments": [1]})", R"({"channels": 3})",
        R"({"channels": {"chosen": 3}})", R"({"channels": {"chosen": "a", "of": [3]}})",
        R"({"channels": {"chosen": -1, "of": [3]}})", R"({"channels": {"chosen": 3.7, "of": [3]}})",
        R"({"channels": {"chosen": 3, "of": [65]}})"}) {
    std::ofstream(path) << wrong;
    const absl::Status status = ReadRecord(path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong;
    EXPECT_THAT(std::string(status.message()), HasSubstr("sweep.json: ")) << wrong;
  }
}

TEST(RecordTest, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(std::string(WriteRecord("/nowhere/sweep.json", {}).message()),
              HasSubstr("/nowhere/sweep.json"));
}

}  // namespace
}  // namespace spccl::tune
