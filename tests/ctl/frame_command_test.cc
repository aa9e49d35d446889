#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/host/codec.h"
#include "tests/ctl/run_tool.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FrameCommandTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(Path(name), std::ios::binary) << content;
  }
  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(Path(name), std::ios::binary).rdbuf();
    return text.str();
  }
  // Mostly zeros, as many elements as asked for.
  std::string Elements(DType dtype, size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::string bytes(count * SizeOf(dtype), '\0');
    for (size_t i = 0; i < count; ++i) {
      if (random() % 10 == 0) bytes[i * SizeOf(dtype)] = static_cast<char>(1 + random() % 100);
    }
    return bytes;
  }
  int Encode(std::string_view format, std::string_view dtype) {
    return RunArgs({"frame", "encode", "--format", std::string(format), "--dtype",
                    std::string(dtype), Path("in"), Path("frame")})
        .code;
  }

  const spccl::testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
};

TEST_F(FrameCommandTest, EveryFormatAndTypeComesBack) {
  for (int format = 0; format < kExactFormatCount; ++format) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      const std::string_view format_name = NameOf(static_cast<Format>(format));
      const std::string_view dtype_name = NameOf(static_cast<DType>(dtype));
      const uint32_t seed = static_cast<uint32_t>(format * 100 + dtype);
      SCOPED_TRACE(std::string(format_name) + " " + std::string(dtype_name));
      const std::string dense = Elements(static_cast<DType>(dtype), 4097, seed);
      Write("in", dense);
      ASSERT_EQ(Encode(format_name, dtype_name), kFine);
      const std::string frame = Read("frame");
      EXPECT_TRUE(Validate(frame.data(), frame.size(), static_cast<DType>(dtype), 4097).ok());
      EXPECT_EQ(RunArgs({"frame", "validate", Path("frame")}).code, kFine);
      ASSERT_EQ(RunArgs({"frame", "decode", Path("frame"), Path("out")}).code, kFine);
      EXPECT_EQ(Read("out"), dense);
    }
  }
}

TEST_F(FrameCommandTest, AnEmptyFileIsAnEmptyFrame) {
  Write("in", "");
  ASSERT_EQ(Encode("pici", "float32"), kFine);
  ASSERT_EQ(RunArgs({"frame", "decode", Path("frame"), Path("out")}).code, kFine);
  EXPECT_EQ(Read("out"), "");
}

// How long an errorbound frame is, only its second part tells.
TEST_F(FrameCommandTest, LossyFramesAreRead) {
  std::vector<float> dense(5000);
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<float>(i % 97) / 7;
  for (const bool is_qsgd : {false, true}) {
    const Format format = is_qsgd ? Format::kQsgd4 : Format::kErrorBound;
    std::string frame(MaxFrameBytes(format, DType::kFloat32, dense.size()) + kEncodeSlack, '\0');
    const uint64_t bytes = is_qsgd ? EncodeQsgd(format, DType::kFloat32, dense.data(), dense.size(),
                                                {.seed = 1}, frame.data())
                                         .value()
                                         .frame_bytes
                                   : EncodeErrorBound(DType::kFloat32, dense.data(), dense.size(),
                                                      {.value = 0.01}, frame.data())
                                         .frame_bytes;
    frame.resize(bytes);
    Write("frame", frame);
    EXPECT_EQ(RunArgs({"frame", "validate", Path("frame")}).code, kFine);
    ASSERT_EQ(RunArgs({"frame", "decode", Path("frame"), Path("out")}).code, kFine);
    const std::string out = Read("out");
    ASSERT_EQ(out.size(), dense.size() * sizeof(float));
    std::vector<float> decoded(dense.size());
    std::memcpy(decoded.data(), out.data(), out.size());
    const double bound = is_qsgd ? 2 : 0.01;
    for (size_t i = 0; i < dense.size(); ++i) ASSERT_NEAR(decoded[i], dense[i], bound) << i;
    for (const std::string& wrong : {frame + "x", frame.substr(0, 60), frame.substr(0, 100)}) {
      Write("frame", wrong);
      EXPECT_EQ(RunArgs({"frame", "validate", Path("frame")}).code, kUnhealthy);
    }
  }
}

TEST_F(FrameCommandTest, ShowSaysWhatTheHeaderSays) {
  Write("in", Elements(DType::kInt32, 100, 1));
  ASSERT_EQ(Encode("coo", "int32"), kFine);
  ToolRun shown = RunArgs({"frame", "show", "-o", "json", Path("frame")});
  ASSERT_EQ(shown.code, kFine);
  EXPECT_EQ(shown.json()["schema"], "spccl.v1");
  EXPECT_EQ(shown.json()["frame"]["format"], "coo");
  EXPECT_EQ(shown.json()["frame"]["dtype"], "int32");
  EXPECT_EQ(shown.json()["frame"]["element_count"], 100);
  EXPECT_EQ(shown.json()["frame"]["valid"], true);
  std::string frame = Read("frame");
  frame[16] = 99;  // nnz
  Write("frame", frame);
  shown = RunArgs({"frame", "show", Path("frame")});
  EXPECT_EQ(shown.code, kUnhealthy);
  EXPECT_THAT(shown.err, HasSubstr("not a valid frame"));
  EXPECT_THAT(shown.out, AllOf(HasSubstr("element_count"), Not(HasSubstr("not a valid frame"))));
  shown = RunArgs({"frame", "show", "-o", "json", Path("frame")});
  EXPECT_THAT(shown.json()["frame"]["fault"].get<std::string>(), HasSubstr("not a valid frame"));
  frame[5] = 65;
  Write("frame", frame);
  EXPECT_THAT(RunArgs({"frame", "validate", Path("frame")}).err,
              HasSubstr("unknown format at byte 5: found 65, expected less than 9"));
  frame[5] = static_cast<char>(Format::kCoo);
  frame[6] = 10;
  Write("frame", frame);
  EXPECT_THAT(RunArgs({"frame", "validate", Path("frame")}).err,
              HasSubstr("unknown dtype at byte 6: found 10, expected less than 10"));
  Write("frame", std::string(100, 'x'));
  shown = RunArgs({"frame", "show", Path("frame")});
  EXPECT_EQ(shown.code, kUnhealthy);
  EXPECT_EQ(shown.out, "");
}

TEST_F(FrameCommandTest, WhatIsNoFrameIsExitCodeThreeAndWritesNothing) {
  Write("in", Elements(DType::kInt32, 100, 1));
  ASSERT_EQ(Encode("pici", "int32"), kFine);
  const std::string frame = Read("frame");
  std::string wrong = frame;
  wrong[60] ^= 1;  // the bitmap
  for (const std::string& bytes :
       {std::string(), frame.substr(0, 47), frame.substr(0, frame.size() - 1), wrong}) {
    Write("frame", bytes);
    EXPECT_EQ(RunArgs({"frame", "validate", Path("frame")}).code, kUnhealthy);
    EXPECT_EQ(RunArgs({"frame", "decode", Path("frame"), Path("out")}).code, kUnhealthy);
    EXPECT_FALSE(std::filesystem::exists(Path("out")));
  }
  const ToolRun run = RunArgs({"frame", "validate", "-o", "json", Path("frame")});
  EXPECT_EQ(run.json()["error"]["code"], "unhealthy");
  EXPECT_EQ(run.json()["error"]["exit_code"], 3);
}

TEST_F(FrameCommandTest, AFileThatCannotBeReplacedStays) {
  const std::string dense = Elements(DType::kInt32, 10'000, 1);
  Write("in", dense);
  Write("frame", "before");
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const int other = Encode("coo", "int32");
  const int same =
      RunArgs({"frame", "encode", "--format", "coo", "--dtype", "int32", Path("in"), Path("in")})
          .code;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(other, kUnhealthy);
  EXPECT_EQ(same, kUnhealthy);
  EXPECT_EQ(Read("frame"), "before");
  EXPECT_EQ(Read("in"), dense);
  std::filesystem::create_symlink(Path("frame"), Path("link"));
  std::filesystem::permissions(Path("frame"), std::filesystem::perms(0640));
  ASSERT_EQ(
      RunArgs({"frame", "encode", "--format", "coo", "--dtype", "int32", Path("in"), Path("link")})
          .code,
      kFine);
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_NE(Read("frame"), "before");
  EXPECT_EQ(std::filesystem::status(Path("frame")).permissions(), std::filesystem::perms(0640));
  // A link to nothing stays, too, and what it names is made.
  std::filesystem::create_symlink(Path("target"), Path("dangling"));
  ASSERT_EQ(RunArgs({"frame", "encode", "--format", "coo", "--dtype", "int32", Path("in"),
                     Path("dangling")})
                .code,
            kFine);
  EXPECT_TRUE(std::filesystem::is_symlink(Path("dangling")));
  EXPECT_EQ(Read("target"), Read("frame"));
  const std::filesystem::path folder = std::filesystem::path(Path("in")).parent_path();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}),
            5);  // none is left over
}

TEST_F(FrameCommandTest, WrongUse) {
  Write("in", "12345");
  EXPECT_EQ(Encode("pici", "int32"), kWrongUse);  // no whole number of elements
  EXPECT_EQ(Encode("zip", "int32"), kWrongUse);
  EXPECT_EQ(Encode("pici", "int7"), kWrongUse);
  EXPECT_EQ(RunArgs({"frame", "encode", Path("in"), Path("frame")}).code, kWrongUse);
  EXPECT_EQ(RunArgs({"frame", "validate", Path("none")}).code, kNotFound);
  const ToolRun folder = RunArgs({"frame", "validate", folder_});
  EXPECT_EQ(folder.code, kWrongUse);
  EXPECT_THAT(folder.err, HasSubstr("is a directory"));
  for (const std::string& out : {folder_, folder_ + "/none/"}) {
    const ToolRun into =
        RunArgs({"frame", "encode", "--format", "pici", "--dtype", "int8", Path("in"), out});
    EXPECT_EQ(into.code, kWrongUse) << out;
    EXPECT_THAT(into.err, HasSubstr(out + ": is a directory, expected a file"));
  }
}

TEST_F(FrameCommandTest, WhatCouldNotBeWrittenLeavesNoFile) {
  Write("in", Elements(DType::kInt32, 100, 1));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const int code = Encode("pici", "int32");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(code, kUnhealthy);
  EXPECT_FALSE(std::filesystem::exists(Path("frame")));
  const ToolRun full =
      RunArgs({"frame", "encode", "--format", "pici", "--dtype", "int32", Path("in"), "/dev/full"});
  EXPECT_EQ(full.code, kUnhealthy);
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

// Sparse files of a terabyte: reading one whole would end the test.
TEST_F(FrameCommandTest, NoMoreIsReadThanAFrameMayHold) {
  constexpr uint64_t kHuge = uint64_t{1} << 40;
  Write("in", Elements(DType::kInt32, 100, 1));
  ASSERT_EQ(Encode("pici", "int32"), kFine);
  std::filesystem::resize_file(Path("frame"), kHuge);
  const ToolRun longer = RunArgs({"frame", "validate", Path("frame")});
  EXPECT_EQ(longer.code, kUnhealthy);
  EXPECT_THAT(longer.err, HasSubstr("longer"));
  Write("frame", "no frame");
  std::filesystem::resize_file(Path("frame"), kHuge);
  for (const char* command : {"show", "validate"}) {
    EXPECT_EQ(RunArgs({"frame", command, Path("frame")}).code, kUnhealthy);
  }
  std::filesystem::resize_file(Path("in"), kHuge);
  EXPECT_EQ(Encode("pici", "int32"), kWrongUse);
}

}  // namespace
}  // namespace spccl::ctl
