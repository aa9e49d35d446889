#include "ctl/render.h"

#include <gtest/gtest.h>

#include <sstream>

namespace spccl::ctl {
namespace {

TEST(RenderTest, EveryFieldIsThereAlsoAtItsDefault) {
  v1::Comm comm;
  comm.set_id(18446744073709551615u);
  comm.mutable_settings()->set_algorithm(v1::ALGORITHM_RING);
  comm.mutable_settings()->set_codec(v1::CODEC_PICI_COLUMN);
  comm.mutable_settings()->mutable_pici()->set_ag(0);
  v1::NamedCount* sends = comm.mutable_counters()->add_sends_by_format();
  sends->set_key("coo");
  sends->set_value(7);
  comm.add_members()->set_phase("idle");
  v1::CommNode* node = comm.add_nodes();
  node->add_ranks(0);
  node->add_ranks(2);
  const nlohmann::ordered_json json = ToJson(comm);
  EXPECT_EQ(json["id"], 18446744073709551615u);
  EXPECT_EQ(json["error"], "");
  EXPECT_EQ(json["queued_ops"], 0);
  EXPECT_EQ(json["settings"]["algorithm"], "ring");
  EXPECT_EQ(json["settings"]["codec"], "pici-column");
  EXPECT_EQ(json["settings"]["pici"]["ag"], 0.0);
  EXPECT_TRUE(json["settings"]["pici"]["intra"].is_null());
  EXPECT_TRUE(json["settings"]["coo"].is_null());
  EXPECT_EQ(json["counters"]["sends_by_format"]["coo"], 7);
  EXPECT_EQ(json["members"][0]["phase"], "idle");
  EXPECT_EQ(json["nodes"][0]["ranks"], nlohmann::ordered_json({0, 2}));
  EXPECT_EQ(json.size(), static_cast<size_t>(v1::Comm::descriptor()->field_count()));
  EXPECT_TRUE(ToJson(v1::Settings())["algorithm"].is_null());
  EXPECT_TRUE(ToJson(v1::ListJobsResponse())["jobs"].is_array());
}

TEST(RenderTest, NumbersForPeople) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(64.0 * 1024 * 1024 * 1024), "64.0 GiB");
  EXPECT_EQ(HumanBytes(300.0 * 1024), "300 KiB");
  EXPECT_EQ(HumanBitRate(0), "-");
  EXPECT_EQ(HumanBitRate(0.1176e9), "941 Mbit/s");
  EXPECT_EQ(HumanBitRate(1.15e9), "9.2 Gbit/s");
  EXPECT_EQ(HumanBitRate(100), "800 bit/s");
  EXPECT_EQ(HumanSeconds(0.00035), "350 us");
  EXPECT_EQ(HumanSeconds(0.35), "350 ms");
  EXPECT_EQ(HumanSeconds(90), "1m 30s");
  EXPECT_EQ(HumanSeconds(2 * 86400 + 3 * 3600), "2d 3h");
  EXPECT_EQ(Percent(1, 8), "12.5%");
  EXPECT_EQ(Percent(1, 0), "-");
  EXPECT_EQ(Sparsity(1, 100), "0.9900");
  EXPECT_EQ(Sparsity(0, 0), "-");
  EXPECT_EQ(NameOf(v1::ALGORITHM_UNSPECIFIED), "-");
  EXPECT_EQ(NameOf(static_cast<v1::Codec>(99)), "-");
  EXPECT_EQ(NameOf(v1::CODEC_PICI_COLUMN), "pici-column");
}

TEST(RenderTest, TablesAlign) {
  Table table({"NAME", "#N"});
  table.Add({"a", "100"});
  table.Add({"long\x1bname", "7"});
  std::ostringstream out;
  table.Print(&out);
  EXPECT_EQ(out.str(),
            "NAME         N\n"
            "a          100\n"
            "long?name    7\n");
}

}  // namespace
}  // namespace spccl::ctl
