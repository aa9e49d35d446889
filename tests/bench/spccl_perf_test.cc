// spccl-perf as a user runs it: real ranks on a real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kProgram[] = SPCCL_PERF_PATH;

// Every test has a temporary folder of its own, which the program must leave empty.
class SpcclPerfTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / "perf-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    EXPECT_THAT(Left(), IsEmpty());
    fs::remove_all(folder_);
  }

  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path());
    return names;
  }

  // Output, standard error with it, and exit code.
  struct Result {
    std::string output;
    int code;
  };
  static Result Run(const std::string& arguments, const std::string& output_to = "") {
    const std::string command = std::string(kProgram) + " " + arguments + " 2>&1 " + output_to;
    FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    std::array<char, 4096> part;
    while (const size_t read = fread(part.data(), 1, part.size(), pipe)) {
      output.append(part.data(), read);
    }
    const int status = pclose(pipe);
    return {.output = output, .code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
  }
  static nlohmann::json RunJson(const std::string& arguments) {
    const Result result =
        Run("--ranks 2 --sizes 64K --iters 2 --warmup 1 --check --json " + arguments);
    EXPECT_EQ(result.code, 0) << result.output;
    return nlohmann::json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  }

  std::string folder_;
};

TEST_F(SpcclPerfTest, RunsEveryCollective) {
  for (const std::string op :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "scatter"}) {
    EXPECT_EQ(RunJson("--in-place --op " + op)["wrong"], 0) << op;
    const auto line = RunJson("--op " + op);
    ASSERT_TRUE(line.is_object()) << op;
    EXPECT_EQ(line["op"], op);
    EXPECT_EQ(line["wrong"], 0) << op;
    EXPECT_EQ(line["bytes"], 65536) << op;
    EXPECT_GT(line["time_us_min"], 0) << op;
    EXPECT_LE(line["time_us_min"], line["time_us_p50"]) << op;
  }
}

TEST_F(SpcclPerfTest, TakesEveryKindOfBuffer) {
  for (const std::string buffers : {"alloc", "malloc", "register"}) {
    EXPECT_EQ(RunJson("--buffers " + buffers)["wrong"], 0) << buffers;
    EXPECT_EQ(RunJson("--in-place --buffers " + buffers)["wrong"], 0) << buffers;
  }
}

TEST_F(SpcclPerfTest, TellsWhatWentAsFrames) {
  const auto sparse = RunJson("--algo ring --codec pici --sparsity 0.99");
  EXPECT_EQ(sparse["wrong"], 0);
  EXPECT_GT(sparse["sends"]["pici"], 0);
  EXPECT_GT(sparse["wire_bytes"], 0);
  EXPECT_LT(sparse["wire_bytes"], 0.3 * sparse["dense_bytes"].get<double>());
  const auto dense = RunJson("--algo ring --codec dense --sparsity 0.99");
  EXPECT_EQ(dense["wrong"], 0);
  EXPECT_EQ(dense["sends"]["pici"], 0);
  EXPECT_GT(dense["sends"]["dense"], 0);
}

TEST_F(SpcclPerfTest, PrintsATable) {
  const Result result = Run("--ranks 2 --sizes 8,64K --iters 1 --warmup 0 --check --seed 42");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("seed 42"));
  EXPECT_THAT(result.output, HasSubstr("        8 "));
  EXPECT_THAT(result.output, HasSubstr("    65536 "));
}

TEST_F(SpcclPerfTest, WhatCannotBePrintedIsAFailure) {
  const std::string few = "--ranks 2 --sizes 64K --iters 1 --warmup 0";
  for (const std::string& arguments : {few, few + " --json", std::string("--help")}) {
    const Result result = Run(arguments, ">/dev/full");
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.output, HasSubstr("standard output could not be written"));
  }
}

TEST_F(SpcclPerfTest, SaysWhyThereIsNoMemory) {
  const Result result = Run("--ranks 2 --sizes 99999G --iters 1");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("bytes are more than this machine's memory"));
}

TEST_F(SpcclPerfTest, RefusesMistakesWithOne) {
  const Result result = Run("--op all_to_all");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.output, HasSubstr("all_to_all"));
}

// On the fake CUDA: what hands memory over, and what copies it through the host.
TEST_F(SpcclPerfTest, MeasuresOnGpus) {
  const std::string cuda = std::string(" --device cuda --cuda-library ") + SPCCL_FAKE_CUDA_LIBRARY +
                           " --daemon-arg=--gpu-kernels=" + SPCCL_FAKE_DEVICE_LIBRARY;
  for (const std::string op : {"all_reduce", "all_gather", "reduce_scatter"}) {
    std::string arguments = "--op ";
    arguments.append(op).append(cuda);
    const auto line = RunJson(arguments);
    ASSERT_TRUE(line.is_object()) << op;
    EXPECT_EQ(line["wrong"], 0) << op;
    EXPECT_EQ(line["device"], "cuda");
    EXPECT_FALSE(line["device_name"].is_null());
    EXPECT_GT(line["time_us_min"], 0);
  }
  EXPECT_EQ(RunJson("--in-place --sparsity 0.9" + cuda)["wrong"], 0);
  EXPECT_EQ(RunJson("--buffers register" + cuda)["wrong"], 0);
  EXPECT_EQ(RunJson("--daemon-arg=--gpu-enabled=off" + cuda)["wrong"], 0);
}

TEST_F(SpcclPerfTest, SaysHowGpusMemoryIsHandedOver) {
  const std::string cuda = std::string(" --device cuda --cuda-library ") + SPCCL_FAKE_CUDA_LIBRARY +
                           " --daemon-arg=--gpu-kernels=";
  const std::string few = "--ranks 2 --sizes 64K --iters 1 --warmup 0 --check";
  const std::string taken = cuda + SPCCL_FAKE_DEVICE_LIBRARY;
  EXPECT_EQ(RunJson("--handed-over" + taken)["memory"], "handed over (cuda-ipc)");
  const Result nodes =
      Run(few + " --nodes 2 --handed-over --daemon-arg=--gpu-between-nodes=host" + taken);
  EXPECT_EQ(nodes.code, 0) << nodes.output;
  EXPECT_THAT(nodes.output, HasSubstr("# memory: handed over (cuda-ipc)\n"));

  const std::string refused = cuda + "/nowhere.so";
  EXPECT_EQ(RunJson(refused)["wrong"], 0);
  const Result staged = Run(few + refused);
  EXPECT_EQ(staged.code, 0) << staged.output;
  EXPECT_THAT(staged.output, ContainsRegex("# memory: staged through the host: .*/nowhere.so"));
  const Result strict = Run(few + " --handed-over" + refused);
  EXPECT_EQ(strict.code, 2) << strict.output;
  EXPECT_THAT(strict.output, ContainsRegex("--handed-over: .*staged .*/nowhere.so"));
  EXPECT_THAT(Run(few + " --daemon-arg=--gpu-enabled=off" + taken).output,
              HasSubstr("staged through the host: gpu.enabled is off"));
}

// Memory that is handed over, and memory that is copied, in graphs that are replayed.
TEST_F(SpcclPerfTest, ReplaysWhatItHasCaptured) {
  const std::string cuda = std::string(" --captured --device cuda --cuda-library ") +
                           SPCCL_FAKE_CUDA_LIBRARY +
                           " --daemon-arg=--gpu-kernels=" + SPCCL_FAKE_DEVICE_LIBRARY;
  for (const std::string op : {"all_reduce", "all_gather --in-place", "reduce_scatter"}) {
    std::string arguments = "--handed-over --sparsity 0.9 --op ";
    const auto line = RunJson(arguments.append(op).append(cuda));
    ASSERT_TRUE(line.is_object()) << op;
    EXPECT_EQ(line["wrong"], 0) << op;
    EXPECT_EQ(line["captured"], true);
    EXPECT_EQ(line["memory"], "handed over (cuda-ipc)");
  }
  const std::string sizes = " --ranks 2 --sizes 4K,64K,128K --iters 1 --warmup 1 --check";
  EXPECT_EQ(Run("--in-place" + sizes + cuda).code, 0);

  setenv("SPCCL_FORCE_STAGING", "1", 1);
  const Result copied = Run(sizes + cuda);
  unsetenv("SPCCL_FORCE_STAGING");
  EXPECT_EQ(copied.code, 0) << copied.output;
  EXPECT_THAT(copied.output, HasSubstr("# memory: staged through the host: "));

  // It replays at each iteration: the last of one to warm up, and two.
  setenv("SPCCL_FAKE_CUDA_FAIL", "cuGraphLaunch:3:719", 1);
  const Result last = Run("--ranks 1 --sizes 4K --iters 2 --warmup 1" + cuda);
  unsetenv("SPCCL_FAKE_CUDA_FAIL");
  EXPECT_EQ(last.code, 2) << last.output;
  EXPECT_THAT(last.output, HasSubstr("cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED"));
}

// Three ranks on two GPUs, and all of them on one.
TEST_F(SpcclPerfTest, RanksShareGpus) {
  for (const std::string device : {"cuda", "cuda:1"}) {
    const Result result = Run("--ranks 3 --sizes 48K --iters 1 --warmup 0 --check --device " +
                              device + " --cuda-library " + SPCCL_FAKE_CUDA_LIBRARY +
                              " --daemon-arg=--gpu-kernels=" + SPCCL_FAKE_DEVICE_LIBRARY);
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("device " + device + ","));
    EXPECT_THAT(result.output,
                HasSubstr(device == "cuda" ? "# on Fake GPU 0 and 1 more\n" : "# on Fake GPU 1\n"));
  }
}

TEST_F(SpcclPerfTest, SaysWhatIsMissingForGpusBeforeItStartsADaemon) {
  const Result result = Run("--ranks 2 --sizes 8 --device cuda --spccld /nowhere --cuda-library " +
                            folder_ + "/none");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("--device cuda: there is no CUDA driver"));
  EXPECT_THAT(result.output, HasSubstr(folder_ + "/none"));
  EXPECT_THAT(result.output, HasSubstr("install NVIDIA's driver"));
}

TEST_F(SpcclPerfTest, SaysWhenThereIsNoDaemon) {
  const Result result = Run("--ranks 2 --sizes 8 --runtime-dir " + folder_ + "/nowhere");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("nowhere"));
  EXPECT_EQ(Run("--spccld /nowhere/spccld").code, 2);
  EXPECT_EQ(Run("--spccld /bin/false").code, 2);
}

// Interrupted while it runs, it takes its ranks, its daemon and its folder with it.
TEST_F(SpcclPerfTest, CleansUpOnAnInterrupt) {
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    execl(kProgram, kProgram, "--sizes", "64K", "--iters", "1000000", "--json", nullptr);
    _exit(127);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto listens = [this] {
    for (const std::string& folder : Left()) {
      if (fs::exists(folder + "/run/session.sock")) return true;
    }
    return false;
  };
  while (!listens() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  kill(pid, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status;
  EXPECT_EQ(kill(-pid, 0), -1) << "a rank is left";
}

}  // namespace
