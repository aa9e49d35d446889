#include "collective/runtime/process_maps.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "tests/support/seed.h"

namespace spccl::runtime {

bool operator==(const Allowance& a, const Allowance& b) {
  return a.bytes == b.bytes && a.error == b.error;
}
void PrintTo(const Allowance& of, std::ostream* out) {
  *out << of.bytes << " bytes, then error " << of.error;
}

namespace {

constexpr size_t kPageBytes = 4096;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr Access kRead = Access::kRead, kWrite = Access::kWrite;

UniqueFd OwnMaps() {
  return UniqueFd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
}

// A file that reads like a process's maps: what a kernel would not show just so.
UniqueFd MapsOf(std::string_view text) {
  UniqueFd file(::memfd_create("maps", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

// Some pages side by side, without rights until they are mapped anew.
class PageRow {
 public:
  explicit PageRow(size_t count)
      : count_(count),
        data_(static_cast<std::byte*>(
            ::mmap(nullptr, count * kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~PageRow() { ::munmap(data_, count_ * kPageBytes); }
  uint64_t At(size_t page) const { return reinterpret_cast<uint64_t>(data_ + page * kPageBytes); }
  void Protect(size_t page, int rights) {
    ::mprotect(data_ + page * kPageBytes, kPageBytes, rights);
  }
  void Unmap(size_t page) { ::munmap(data_ + page * kPageBytes, kPageBytes); }
  void Map(size_t page, int rights, int flags, int file) {
    ASSERT_NE(::mmap(data_ + page * kPageBytes, kPageBytes, rights, flags | MAP_FIXED, file, 0),
              MAP_FAILED);
  }
  void Map(size_t page, int rights) { Map(page, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

 private:
  size_t count_;
  std::byte* data_;
};

// Both answers, which agree, on this process's memory; the text's alone on an older kernel.
Allowance Verdict(Access access, uint64_t address, size_t bytes) {
  const UniqueFd maps = OwnMaps();
  const Allowance read = ReadMaps(maps.get(), access, address, bytes);
  const Allowance asked = AskMaps(maps.get(), access, address, bytes);
  if (asked.error != ENOTTY) {
    EXPECT_EQ(read, asked) << bytes << " bytes at " << address;
  }
  return read;
}
Allowance Verdict(Access access, const void* address, size_t bytes) {
  return Verdict(access, reinterpret_cast<uint64_t>(address), bytes);
}

Allowance All(size_t bytes) {
  return {bytes, 0};
}

const char never_written[64] = "read only";

TEST(ProcessMapsTest, EachKindOfMapping) {
  EXPECT_EQ(Verdict(kRead, never_written, sizeof never_written), All(sizeof never_written));
  EXPECT_EQ(Verdict(kWrite, never_written, sizeof never_written), (Allowance{0, EACCES}));
  const auto* const vdso = reinterpret_cast<void*>(::getauxval(AT_SYSINFO_EHDR));
  if (vdso != nullptr) {
    EXPECT_EQ(Verdict(kRead, vdso, 100), All(100));
    EXPECT_EQ(Verdict(kWrite, vdso, 100), (Allowance{0, EACCES}));
  }
  const UniqueFd file = MapsOf(std::string(kPageBytes, 'x'));
  PageRow pages(4);
  pages.Map(0, PROT_READ, MAP_PRIVATE, file.get());
  pages.Map(1, PROT_READ, MAP_SHARED, file.get());
  pages.Map(2, PROT_READ);
  for (size_t page = 0; page < 3; ++page) {
    EXPECT_EQ(Verdict(kRead, pages.At(page) + 8, 8), All(8));
    EXPECT_EQ(Verdict(kWrite, pages.At(page) + 8, 8), (Allowance{0, EACCES}));
  }
  EXPECT_EQ(Verdict(kRead, pages.At(3), 8), (Allowance{0, EACCES}));
  EXPECT_EQ(Verdict(kWrite, pages.At(3), 8), (Allowance{0, EACCES}));
  pages.Map(3, PROT_WRITE);
  EXPECT_EQ(Verdict(kRead, pages.At(3), 8), (Allowance{0, EACCES}));
  EXPECT_EQ(Verdict(kWrite, pages.At(3), 8), All(8));
}

TEST(ProcessMapsTest, ARangeEndsWhereItsMappingsDo) {
  const UniqueFd file = MapsOf(std::string(kPageBytes, 'x'));
  PageRow pages(6);
  pages.Map(0, kReadWrite);
  pages.Map(1, kReadWrite, MAP_SHARED, file.get());
  pages.Map(2, PROT_READ);
  pages.Map(3, kReadWrite);
  pages.Unmap(4);
  const uint64_t start = pages.At(0) + 100;
  EXPECT_EQ(Verdict(kWrite, start, 2 * kPageBytes - 100), All(2 * kPageBytes - 100));
  EXPECT_EQ(Verdict(kWrite, start, 2 * kPageBytes - 99), (Allowance{2 * kPageBytes - 100, EACCES}));
  EXPECT_EQ(Verdict(kRead, start, 4 * kPageBytes - 100), All(4 * kPageBytes - 100));
  EXPECT_EQ(Verdict(kRead, start, 5 * kPageBytes), (Allowance{4 * kPageBytes - 100, EFAULT}));
  EXPECT_EQ(Verdict(kRead, pages.At(4), 1), (Allowance{0, EFAULT}));
  EXPECT_EQ(Verdict(kRead, pages.At(4), 0), All(0));
}

TEST(ProcessMapsTest, NothingIsMappedAtTheEndsOfTheAddressSpace) {
  for (const uint64_t address : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 47, uint64_t{1} << 63,
                                 0xffffffff81000000u + (uint64_t{0xffffffff} << 32),
                                 0xffffffffff600000u, UINT64_MAX - kPageBytes + 1, UINT64_MAX}) {
    EXPECT_EQ(Verdict(kRead, address, 2 * kPageBytes), (Allowance{0, EFAULT})) << address;
    EXPECT_EQ(Verdict(kWrite, address, 1), (Allowance{0, EFAULT})) << address;
  }
}

// The kernel cuts the text at lines, and escapes a line's end in a name.
TEST(ProcessMapsTest, ALineMayBeLongerThanTheBuffer) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "maps-", ::getpid());
  std::filesystem::path path(folder);
  for (int i = 0; i < 10; ++i) path /= std::string(255, '\n');
  std::filesystem::create_directories(path);
  const UniqueFd file(::open((path / "x").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), kPageBytes), 0);
  PageRow pages(3);
  pages.Map(0, PROT_READ, MAP_PRIVATE, file.get());
  pages.Map(2, kReadWrite);
  EXPECT_EQ(Verdict(kWrite, pages.At(2), kPageBytes), All(kPageBytes));
  EXPECT_EQ(Verdict(kWrite, pages.At(0), kPageBytes), (Allowance{0, EACCES}));
  std::filesystem::remove_all(folder);
}

TEST(ProcessMapsTest, TheTextMayBeCutAnywhere) {
  for (size_t name = 4096 - 60; name < 4096 + 60; ++name) {
    const UniqueFd maps =
        MapsOf(absl::StrCat("1000-2000 r--p 0 00:00 1 ", std::string(name, '/'), "\n",
                            "2000-3000 rw-p 0 00:00 1 ", std::string(name, '/'),
                            "\n3000-4000 rw-p"
                            " 0\n"));
    EXPECT_EQ(ReadMaps(maps.get(), kWrite, 0x2000, 0x2000), All(0x2000));
    EXPECT_EQ(ReadMaps(maps.get(), kWrite, 0x1000, 0x3000), (Allowance{0, EACCES}));
    EXPECT_EQ(ReadMaps(maps.get(), kRead, 0x1800, 0x3000), (Allowance{0x2800, EFAULT}));
  }
}

TEST(ProcessMapsTest, AMappingThatGrowsMayComeTwice) {
  const UniqueFd maps = MapsOf(
      "1000-2000 rw-p 0\n"
      "1000-4000 rw-p 0\n"
      "3000-5000 rw-p 0\n"
      "ffffffffff600000-ffffffffff601000 r-xp 0\n");
  AddressRange around;
  EXPECT_EQ(ReadMaps(maps.get(), kWrite, 0x1000, 0x4000, &around), All(0x4000));
  EXPECT_EQ(around.start, 0x1000U);
  EXPECT_EQ(around.end, 0x5000U);
  EXPECT_EQ(ReadMaps(maps.get(), kWrite, 0x1000, 0x4001), (Allowance{0x4000, EFAULT}));
  EXPECT_EQ(ReadMaps(maps.get(), kRead, 0xffffffffff600000, 1), (Allowance{0, EFAULT}));
}

TEST(ProcessMapsTest, WhatIsNoLineIsAnError) {
  for (const char* text : {"\n", "1000\n", "1000-\n", "1000-2000\n", "1000-2000 r\n", "x\n",
                           "1000-12345678901234567 rw-p\n", "-1000-2000 rw-p\n"}) {
    EXPECT_EQ(ReadMaps(MapsOf(text).get(), kRead, 0x1000, 1), (Allowance{0, EINVAL})) << text;
  }
  EXPECT_EQ(ReadMaps(MapsOf("1000-2000 rw-p").get(), kRead, 0x1000, 1), (Allowance{0, EFAULT}));
  EXPECT_EQ(ReadMaps(MapsOf("").get(), kRead, 0x1000, 1), (Allowance{0, ESRCH}));
  EXPECT_EQ(ReadMaps(-1, kRead, 0x1000, 1), (Allowance{0, EBADF}));
}

TEST(ProcessMapsTest, AgreesWithTheKernelOnManyMappings) {
  std::mt19937_64 random(TestSeed());
  constexpr size_t kPages = 6000;
  PageRow pages(kPages);
  constexpr int kRights[] = {PROT_NONE, PROT_READ, kReadWrite, kReadWrite, kReadWrite};
  for (size_t page = 0; page < kPages; ++page) {
    if (random() % 16 == 0) {
      pages.Unmap(page);
    } else {
      pages.Protect(page, kRights[random() % std::size(kRights)]);
    }
  }
  const UniqueFd maps = OwnMaps();
  for (int i = 0; i < 200; ++i) {
    const Access access = random() % 2 == 0 ? kRead : kWrite;
    Verdict(access, pages.At(0) + random() % (kPages * kPageBytes), random() % (6 * kPageBytes));
    Verdict(access, random() >> (random() % 64), random() % (6 * kPageBytes));
  }
}

TEST(ProcessMapsTest, WhatStaysIsFoundWhileOtherMemoryComesAndGoes) {
  constexpr size_t kPages = 400;
  PageRow pages(kPages);
  pages.Map(kPages - 1, kReadWrite);
  std::atomic<bool> ended = false;
  std::thread changes([&] {
    for (uint64_t turn = 0; !ended; ++turn) {
      for (size_t page = 0; page < kPages - 1; ++page) {
        if ((turn + page) % 3 == 0) {
          pages.Unmap(page);
        } else {
          pages.Map(page, (turn + page) % 3 == 1 ? PROT_READ : kReadWrite);
        }
      }
    }
  });
  const UniqueFd maps = OwnMaps();
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(ReadMaps(maps.get(), kWrite, pages.At(kPages - 1), kPageBytes), All(kPageBytes));
  }
  ended = true;
  changes.join();
}

}  // namespace
}  // namespace spccl::runtime
