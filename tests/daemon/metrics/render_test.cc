#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "daemon/metrics/families.h"
#include "daemon/metrics/sample.h"
#include "tests/daemon/metrics/full_sample.h"
#include "tests/daemon/metrics/parse.h"

namespace spccl::daemon::metrics {
namespace {

TEST(RenderTest, EveryFamilyIsExposedOnceInOrderWithItsType) {
  const Parsed parsed = Parse(Render(FullSample()));
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    const std::string name(family.name);
    names.push_back(name);
    EXPECT_EQ(parsed.types.count(name), 1u) << name;
    if (parsed.types.contains(name)) {
      EXPECT_EQ(parsed.types.at(name), NameOf(family.type));
    }
    const std::string sample = family.type == Type::kHistogram ? name + "_count" : name;
    EXPECT_TRUE(std::any_of(parsed.samples.begin(), parsed.samples.end(),
                            [&sample](const auto& one) { return one.name == sample; }))
        << name << " has no series";
  }
  EXPECT_EQ(parsed.families, names);
}

TEST(RenderTest, ValuesAreWhereTheyBelong) {
  const Parsed parsed = Parse(Render(FullSample()));
  EXPECT_EQ(parsed.Of("spccl_build_info{version=1.2.3,codec_target=AVX3}"), 1);
  EXPECT_EQ(parsed.Of("spccl_healthy"), 1);
  EXPECT_EQ(parsed.Of("spccl_progress_age_seconds"), 0.005);
  EXPECT_EQ(parsed.Of("spccl_operations_total{op=all_reduce,dtype=float32,outcome=ok}"), 1);
  EXPECT_EQ(parsed.Of("spccl_operations_total{op=all_reduce,dtype=float32,outcome=failed}"), 0);
  EXPECT_EQ(parsed.Of("spccl_send_wire_bytes_total{op=all_reduce,dtype=float32}"), 100);
  EXPECT_EQ(parsed.Of("spccl_input_density_ratio_bucket{le=0.01}"), 1);
  EXPECT_EQ(parsed.Of("spccl_input_density_ratio_bucket{le=0.003}"), 0);
  EXPECT_EQ(parsed.Of("spccl_buffer_bytes{kind=mapped}"), 4096);
  EXPECT_EQ(parsed.Of("spccl_gpus{state=usable}"), 7);
  EXPECT_EQ(parsed.Of("spccl_gpus{state=failed}"), 1);
  EXPECT_EQ(parsed.Of("spccl_link_bandwidth_bytes_per_second{peer=node2:7440}"), 1.25e9);
  EXPECT_EQ(parsed.Of("spccl_job_info{job_id=u1000.j17,uid=1000,slurm_job_id=17}"), 1);
  EXPECT_EQ(parsed.Of("spccl_job_wire_bytes_total{job_id=u1000.j17}"), 30);
  EXPECT_EQ(parsed.Of("spccl_job_channel_seconds_total{job_id=u1000.j17}"), 0.25);
  EXPECT_EQ(parsed.Of("spccl_metrics_requests_total{code=200}"), 7);
  EXPECT_EQ(parsed.Of("process_cpu_seconds_total"), 1.5);
}

TEST(RenderTest, WhatIsNotKnownIsLeftOut) {
  Sample sample = FullSample();
  sample.core.reset();
  sample.process = {};
  sample.progress.healthy = false;
  const Parsed parsed = Parse(Render(sample));
  EXPECT_EQ(parsed.Of("spccl_core_answers"), 0);
  EXPECT_EQ(parsed.Of("spccl_healthy"), 0);
  EXPECT_FALSE(parsed.types.contains("spccl_sessions"));
  EXPECT_FALSE(parsed.types.contains("process_resident_memory_bytes"));

  sample = FullSample();
  sample.core->links["node3:7440"] = {};  // not measured
  const Parsed other = Parse(Render(sample));
  EXPECT_FALSE(other.series.contains("spccl_link_bandwidth_bytes_per_second{peer=node3:7440}"));
}

TEST(RenderTest, AJobOutsideTheBatchSystemHasNoNumberThere) {
  Sample sample = FullSample();
  sample.core->jobs[0].id = "u7.s4711";
  sample.core->jobs[0].uid = 7;
  EXPECT_EQ(Parse(Render(sample)).Of("spccl_job_info{job_id=u7.s4711,uid=7,slurm_job_id=}"), 1);
}

TEST(ProcessTest, TellsOfThisProcess) {
  const ProcessSample process = ReadProcess();
  ASSERT_TRUE(process.cpu_seconds && process.start_unix_seconds && process.resident_bytes &&
              process.virtual_bytes && process.threads && process.open_fds && process.max_fds);
  EXPECT_GE(*process.cpu_seconds, 0);
  EXPECT_GE(*process.threads, 1u);
  EXPECT_GE(*process.open_fds, 3u);
  EXPECT_LE(*process.open_fds, *process.max_fds);
  EXPECT_GT(*process.virtual_bytes, *process.resident_bytes);
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(*process.start_unix_seconds, now + 1);
  EXPECT_GE(*process.start_unix_seconds, now - 3600);
}

}  // namespace
}  // namespace spccl::daemon::metrics
