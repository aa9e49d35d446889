#include "daemon/settings_store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/settings_store_fixture.h"

namespace spccl::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(SettingsStoreTest, NarrowerScopesWin) {
  policy::Settings defaults;
  defaults.pici = {.intra = 0.9, .inter = 0.8, .ag = 0.7};
  const auto store = Open(defaults);
  EXPECT_EQ(store->Resolve("j", 1), defaults);
  ASSERT_TRUE(store->Set(GlobalScope{}, Everything()).ok());
  ASSERT_TRUE(store->Set(JobScope{"j"}, Intra(0.5)).ok());
  ASSERT_TRUE(store->Set(CommScope{1}, Intra(0.4)).ok());
  EXPECT_EQ(store->Resolve("other", 2).pici.intra, 0.1);
  EXPECT_EQ(store->Resolve("j", 2).pici.intra, 0.5);
  EXPECT_EQ(store->Resolve("j", 1).pici.intra, 0.4);
  EXPECT_EQ(store->Resolve("j", 1).algorithm, policy::Algorithm::kRing);
  ASSERT_TRUE(store->Reset(JobScope{"j"}).ok());
  EXPECT_EQ(store->Resolve("j", 2).pici.intra, 0.1);
  EXPECT_EQ(store->Resolve("j", 1).pici.intra, 0.4);
  store->Forget(1);
  EXPECT_EQ(store->Resolve("j", 1).pici.intra, 0.1);
}

TEST_F(SettingsStoreTest, SharesAreKeptApartFromSettings) {
  const JobShare defaults{.weight = 3, .max_channels = 4};
  auto store = *SettingsStore::Create(folder_, {}, defaults);
  EXPECT_EQ(store->ShareOf("j"), defaults);
  ASSERT_TRUE(store->Set(JobScope{"j"}, Intra(0.5)).ok());
  ASSERT_TRUE(store->SetShare("j", {.weight = 2, .max_operations = 7}).ok());
  ASSERT_TRUE(store->SetShare("j", {.max_operations = 8}).ok());
  const JobShare expected{.weight = 2, .max_operations = 8, .max_channels = 4};
  EXPECT_EQ(store->ShareOf("j"), expected);
  EXPECT_EQ(store->ShareOf("other"), defaults);
  store.reset();
  store = *SettingsStore::Create(folder_, {}, defaults);
  EXPECT_EQ(store->ShareOf("j"), expected);
  // What the job's user may reset is not this.
  ASSERT_TRUE(store->Reset(JobScope{"j"}).ok());
  EXPECT_EQ(store->ShareOf("j"), expected);
  ASSERT_TRUE(store->Set(JobScope{"j"}, Intra(0.5)).ok());
  store->SetDefaultShare({});
  EXPECT_EQ(store->ShareOf("j"), (JobShare{.weight = 2, .max_operations = 8}));
  ASSERT_TRUE(store->ResetShare("j").ok());
  EXPECT_EQ(store->ShareOf("j"), JobShare{});
  EXPECT_EQ(store->Get(JobScope{"j"}), Intra(0.5));
}

TEST_F(SettingsStoreTest, WrongSharesAreRefused) {
  auto store = Open();
  EXPECT_FALSE(store->SetShare("j", {}).ok());
  EXPECT_THAT(std::string(store->SetShare("j", {.weight = 0}).message()),
              HasSubstr("weight: found 0, expected an integer from 1 to 1000"));
  EXPECT_FALSE(store->SetShare("j", {.max_channels = 65}).ok());
  EXPECT_FALSE(store->SetShare("", {.weight = 2}).ok());
  EXPECT_EQ(store->ShareOf("j"), JobShare{});
  store.reset();
  EXPECT_THAT(ErrorOf("[job.\"j\"]\nweight = 1001\n"),
              HasSubstr(":2:10: weight: found the integer 1001"));
  EXPECT_THAT(ErrorOf("[job.\"j\"]\nmax_channels = \"2\"\n"), HasSubstr("expected an integer"));
  EXPECT_THAT(ErrorOf("[global]\nweight = 2\n"), HasSubstr("unknown setting weight"));
}

TEST_F(SettingsStoreTest, TheVersionIsAnotherAfterEachChange) {
  const auto store = Open();
  std::set<uint64_t> versions = {store->version()};
  ASSERT_TRUE(store->Set(GlobalScope{}, Intra(0.5)).ok());
  versions.insert(store->version());
  ASSERT_TRUE(store->Set(CommScope{1}, Intra(0.5)).ok());
  versions.insert(store->version());
  ASSERT_TRUE(store->Reset(GlobalScope{}).ok());
  versions.insert(store->version());
  store->Forget(1);
  versions.insert(store->version());
  store->SetDefaults({});
  versions.insert(store->version());
  EXPECT_EQ(versions.size(), 6u);
  store->Forget(1);
  EXPECT_TRUE(versions.contains(store->version())) << "nothing has changed";
}

TEST_F(SettingsStoreTest, WhatChangesNothingIsNotWritten) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(JobScope{"j"}, Intra(0.25)).ok());
  ASSERT_TRUE(store->SetShare("j", {.weight = 2}).ok());
  const uint64_t version = store->version();
  // Whatever is written would end here.
  ASSERT_EQ(::mkdir((path() + ".new").c_str(), 0755), 0);
  EXPECT_TRUE(store->Reset(JobScope{"none"}).ok());
  EXPECT_TRUE(store->Reset(GlobalScope{}).ok());
  EXPECT_TRUE(store->Reset(JobScope{"j"}, SettingsPart::kAlgorithm).ok());
  EXPECT_TRUE(store->ResetShare("none").ok());
  EXPECT_TRUE(store->Set(JobScope{"j"}, Intra(0.25)).ok());
  EXPECT_TRUE(store->SetShare("j", {.weight = 2}).ok());
  EXPECT_EQ(store->version(), version);
  EXPECT_FALSE(store->Reset(JobScope{"j"}).ok());
}

TEST_F(SettingsStoreTest, SetMergesIntoTheScope) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(JobScope{"j"}, Everything()).ok());
  ASSERT_TRUE(store->Set(JobScope{"j"}, Intra(0.75)).ok());
  policy::Overrides expected = Everything();
  expected.pici.intra = 0.75;
  EXPECT_EQ(store->Get(JobScope{"j"}), expected);
  EXPECT_EQ(store->Get(JobScope{"k"}), policy::Overrides{});
}

TEST_F(SettingsStoreTest, ResetMayBeOfAPart) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(JobScope{"j"}, Everything()).ok());
  ASSERT_TRUE(store->Reset(JobScope{"j"}, SettingsPart::kThresholds).ok());
  policy::Overrides expected;
  expected.algorithm = policy::Algorithm::kRing;
  expected.codec = policy::Codec::kPiciColumn;
  EXPECT_EQ(store->Get(JobScope{"j"}), expected);
  ASSERT_TRUE(store->Set(JobScope{"j"}, Everything()).ok());
  ASSERT_TRUE(store->Reset(JobScope{"j"}, SettingsPart::kAlgorithm).ok());
  expected = Everything();
  expected.algorithm.reset();
  expected.codec.reset();
  EXPECT_EQ(store->Get(JobScope{"j"}), expected);
}

TEST_F(SettingsStoreTest, LossySendsAreSetKeptAndTakenBack) {
  const policy::Lossy bound{.format = Format::kErrorBound, .bound = {1e-3, true}};
  policy::Overrides lossy;
  lossy.lossy = bound;
  {
    const auto store = Open();
    EXPECT_FALSE(store->Resolve("j", 1).lossy.on());
    ASSERT_TRUE(store->Set(JobScope{"j"}, lossy).ok());
  }
  EXPECT_THAT(Content(), HasSubstr("lossy = \"errorbound:relative=0.001\"\n"));
  const auto store = Open();
  EXPECT_EQ(store->Resolve("j", 1).lossy, bound);
  lossy.lossy = policy::Lossy{};
  ASSERT_TRUE(store->Set(CommScope{1}, lossy).ok());
  EXPECT_FALSE(store->Resolve("j", 1).lossy.on()) << "a communicator may be exact in a lossy job";
  // A lossy codec is a codec, whichever of the two forgets it.
  for (const SettingsPart part : {SettingsPart::kCodec, SettingsPart::kAlgorithm}) {
    ASSERT_TRUE(store->Set(JobScope{"j"}, lossy).ok());
    ASSERT_TRUE(store->Reset(JobScope{"j"}, part).ok());
    EXPECT_EQ(store->Get(JobScope{"j"}), policy::Overrides{});
  }
}

TEST_F(SettingsStoreTest, GlobalAndJobsAreKeptAndCommunicatorsAreNot) {
  const std::string odd = "a \"job\".with\\odd = characters]#";
  {
    const auto store = Open();
    ASSERT_TRUE(store->Set(GlobalScope{}, Everything()).ok());
    ASSERT_TRUE(store->Set(JobScope{odd}, Everything()).ok());
    ASSERT_TRUE(store->Set(JobScope{"gone"}, Everything()).ok());
    ASSERT_TRUE(store->Set(CommScope{7}, Everything()).ok());
    ASSERT_TRUE(store->Reset(JobScope{"gone"}).ok());
  }
  const auto store = Open();
  EXPECT_EQ(store->Get(GlobalScope{}), Everything());
  EXPECT_EQ(store->Get(JobScope{odd}), Everything());
  EXPECT_EQ(store->Get(JobScope{"gone"}), policy::Overrides{});
  EXPECT_EQ(store->Get(CommScope{7}), policy::Overrides{});
}

TEST_F(SettingsStoreTest, OneStoreAFolder) {
  auto store = Open();
  const absl::Status second = SettingsStore::Create(folder_, {}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()),
              HasSubstr(folder_ + " is in use by process " + std::to_string(::getpid())));
  store.reset();
  EXPECT_TRUE(SettingsStore::Create(folder_, {}).ok());
}

TEST_F(SettingsStoreTest, NobodyElseCanLockTheFolder) {
  const std::string lock = folder_ + "/lock";
  for (const mode_t before : {0u, 0644u}) {  // of an older release
    if (before != 0) ASSERT_EQ(::chmod(lock.c_str(), before), 0);
    Open();
    struct stat info;
    ASSERT_EQ(::stat(lock.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
  }
}

// As one is whose closing of a file waits for a file system's server.
TEST_F(SettingsStoreTest, SaysWhereWhoHasTheFolderIsAZombie) {
  const auto store = Open();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  std::ofstream(folder_ + "/lock") << child << "\n";
  EXPECT_THAT(
      std::string(SettingsStore::Create(folder_, {}).status().message()),
      HasSubstr(" is in use by process " + std::to_string(child) + ", which has ended but for"));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(SettingsStoreTest, MakesItsFolder) {
  ASSERT_TRUE(SettingsStore::Create(folder_ + "/new", {}).ok());
  EXPECT_EQ(SettingsStore::Create("/no/such/folder", {}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SettingsStoreTest, RefusesWhatIsNoSettingAndChangesNothing) {
  const auto store = Open();
  ASSERT_TRUE(store->Set(GlobalScope{}, Intra(0.5)).ok());
  const std::string before = Content();
  for (const double wrong : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(store->Set(GlobalScope{}, Intra(wrong)).code(), absl::StatusCode::kInvalidArgument);
  }
  for (const std::string& id : {std::string(), std::string(257, 'x'), std::string("a\nb"),
                                std::string("\xff"), std::string("a\0b", 3)}) {
    EXPECT_EQ(store->Set(JobScope{id}, Intra(0.1)).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(store->Reset(JobScope{id}).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Content(), before);
  EXPECT_EQ(store->Get(GlobalScope{}), Intra(0.5));
}

TEST_F(SettingsStoreTest, ParseErrorsNameTheLine) {
  EXPECT_THAT(ErrorOf("[global]\nalgorithm = \"ring\"\ncodec = \n"), StartsWith(path() + ":3:"));
  EXPECT_EQ(ErrorOf("[global]\nalgorithm = \"star\"\n"),
            path() +
                ":2:13: algorithm: found the string \"star\", expected one of auto, local, ring, "
                "two-level-ring, recursive-doubling, halving-doubling, split, direct, tree");
  EXPECT_EQ(ErrorOf("\n[job.a]\nthresholds.pici.intra = 2\n"),
            path() +
                ":3:25: thresholds.pici.intra: found the integer 2, expected a sparsity, a "
                "number from 0 to 1, or \"auto\"");
  EXPECT_EQ(ErrorOf("[global]\nlossy = \"errorbound:absolute=nan\"\n"),
            path() +
                ":2:9: lossy: found the string \"errorbound:absolute=nan\": the bound is nan, "
                "expected a positive, finite number");
  EXPECT_THAT(ErrorOf("[global]\nlossy = 1\n"), HasSubstr("expected a string"));
  EXPECT_THAT(ErrorOf("[global]\nchannels = 3\n"), HasSubstr(":2:12: unknown setting channels"));
  EXPECT_THAT(ErrorOf("[node]\ncodec = \"coo\"\n"), HasSubstr(":2:1: unknown scope node.codec"));
  EXPECT_THAT(ErrorOf("global = 3\n"), HasSubstr(":1:1: unknown scope global"));
}

TEST_F(SettingsStoreTest, ConcurrentReadersSeeWholeSettings) {
  const auto store = Open();
  const auto both = [](double value) {
    policy::Overrides overrides;
    overrides.pici = {.intra = value, .inter = value, .ag = value};
    overrides.coo = overrides.pici;
    return overrides;
  };
  ASSERT_TRUE(store->Set(JobScope{"j"}, both(0)).ok());
  std::atomic<uint64_t> torn{0}, reads{0};
  std::vector<std::jthread> readers;  // they stop also where an assertion below ends the test
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const policy::Settings now = store->Resolve("j", 1);
        if (now.pici.intra != now.coo.ag || now.pici.inter != now.pici.ag) ++torn;
        ++reads;
      }
    });
  }
  for (int i = 0; i < 50 || reads < 1000; ++i) {
    ASSERT_TRUE(store->Set(JobScope{"j"}, both((i % 100) / 100.0)).ok());
    ASSERT_TRUE(store->Set(CommScope{static_cast<uint64_t>(i)}, both(0.5)).ok());
    store->Forget(static_cast<uint64_t>(i));
  }
  readers.clear();
  EXPECT_EQ(torn, 0u);
}

TEST_F(SettingsStoreTest, JobsWithSettingsAreBounded) {
  std::string content;
  for (size_t i = 0; i < SettingsStore::kMaxJobs; ++i) {
    content += "[job.j" + std::to_string(i) + "]\ncodec = \"coo\"\n";
  }
  std::ofstream(path()) << content;
  const auto store = Open();
  EXPECT_EQ(store->Set(JobScope{"one more"}, Intra(0.5)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->Set(JobScope{"j3"}, Intra(0.5)).ok());
  // Shares have room of their own.
  EXPECT_TRUE(store->SetShare("one more", {.weight = 2}).ok());
  EXPECT_EQ(store->Set(JobScope{"one more"}, Intra(0.5)).code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(store->Reset(JobScope{"j4"}).ok());
  EXPECT_TRUE(store->Set(JobScope{"one more"}, Intra(0.5)).ok());
}

TEST_F(SettingsStoreTest, JobsWithSharesAreBounded) {
  std::string content;
  for (size_t i = 0; i < SettingsStore::kMaxJobs; ++i) {
    content += "[job.\"u1000.j" + std::to_string(i) + "\"]\nweight = 3\n";
  }
  std::ofstream(path()) << content;
  const auto store = Open();
  const absl::Status status = store->SetShare("one more", {.weight = 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "already 4096 jobs have shares or quotas of their own: reset some");
  EXPECT_TRUE(store->Set(JobScope{"one more"}, Intra(0.5)).ok());
  EXPECT_TRUE(store->Set(JobScope{"u1000.j3"}, Intra(0.5)).ok());
  EXPECT_TRUE(store->SetShare("u1000.j3", {.max_operations = 2}).ok());
  ASSERT_TRUE(store->ResetShare("u1000.j4").ok());
  EXPECT_TRUE(store->SetShare("one more", {.weight = 2}).ok());
}

TEST_F(SettingsStoreTest, AllJobsThatThereMayBeFitIntoTheFile) {
  constexpr size_t kMostFileBytes = size_t{8} << 20;
  policy::Overrides longest;
  longest.algorithm = policy::Algorithm::kHalvingDoubling;
  longest.codec = policy::Codec::kPiciColumn;
  longest.lossy =
      policy::Lossy{.format = Format::kErrorBound, .bound = {1.2345678901234567e-300, true}};
  longest.slice_bytes = policy::kMostSliceBytes;
  longest.pici = {.intra = 0.1 + 0.2, .inter = 0.1 + 0.2, .ag = 0.1 + 0.2};
  longest.coo = longest.pici;
  const auto store = Open();
  ASSERT_TRUE(store->Set(JobScope{std::string(256, '"')}, longest).ok());
  ASSERT_TRUE(store
                  ->SetShare(std::string(256, '\\'), {.weight = kMostJobWeight,
                                                      .max_buffer_bytes = kMostQuota,
                                                      .max_communicators = 1'000'000,
                                                      .max_operations = 1'000'000,
                                                      .max_channels = 64})
                  .ok());
  EXPECT_LT(Content().size() * SettingsStore::kMaxJobs, kMostFileBytes);
}

TEST_F(SettingsStoreTest, AUsersJobsWithSettingsAreBounded) {
  std::string content;
  for (size_t i = 0; i < SettingsStore::kMaxJobsOfUser; ++i) {
    content += "[job.\"u1000.s" + std::to_string(i) + "\"]\ncodec = \"coo\"\n";
  }
  std::ofstream(path()) << content;
  const auto store = Open();
  const absl::Status status = store->Set(JobScope{"u1000.more"}, Intra(0.5));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "already 256 jobs of u1000 have settings of their own: reset some");
  EXPECT_TRUE(store->Set(JobScope{"u1000.s3"}, Intra(0.5)).ok());
  EXPECT_TRUE(store->Set(JobScope{"u100.s3"}, Intra(0.5)).ok());
  ASSERT_TRUE(store->Reset(JobScope{"u1000.s4"}).ok());
  EXPECT_TRUE(store->Set(JobScope{"u1000.more"}, Intra(0.5)).ok());
}

}  // namespace
}  // namespace spccl::daemon
