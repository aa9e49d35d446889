#include "collective/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/process_memory.h"

namespace spccl::runtime {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPage = 4096;

// Two pages of this process, the second one not readable if `hole`.
class Pages {
 public:
  Pages()
      : data_(static_cast<std::byte*>(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { ::munmap(data_, 2 * kPage); }
  std::byte* data() const { return data_; }
  void CloseSecond() { ::mprotect(data_ + kPage, kPage, PROT_NONE); }
  MemoryView Remote() const {
    return MemoryView::Remote(testing::OwnMemory(), reinterpret_cast<uint64_t>(data_));
  }

 private:
  std::byte* data_;
};

TEST(MemoryViewTest, MappedReadsAndWritesAtTheOffset) {
  std::vector<std::byte> memory(16);
  const MemoryView view = MemoryView::Mapped(memory.data());
  const char text[] = "abcd";
  ASSERT_TRUE(view.Write(3, text, 4).ok());
  char back[4] = {};
  ASSERT_TRUE(view.Read(3, back, 4).ok());
  EXPECT_EQ(std::string(back, 4), "abcd");
  EXPECT_EQ(std::memcmp(memory.data() + 3, "abcd", 4), 0);
}

TEST(MemoryViewTest, RemoteReadsAndWritesAtTheOffset) {
  Pages pages;
  const std::string text(kPage, 'x');
  ASSERT_TRUE(pages.Remote().Write(100, text.data(), text.size()).ok());
  std::string back(kPage, '\0');
  ASSERT_TRUE(pages.Remote().Read(100, back.data(), back.size()).ok());
  EXPECT_EQ(back, text);
  EXPECT_EQ(pages.data()[99], std::byte{0});
  EXPECT_EQ(pages.data()[100 + kPage], std::byte{0});
}

TEST(MemoryViewTest, ARangeThatEndsInAHoleIsAnErrorWithBothAddresses) {
  Pages pages;
  pages.CloseSecond();
  std::vector<std::byte> local(2 * kPage);
  const absl::Status status = pages.Remote().Read(0, local.data(), local.size());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  char start[32];
  char hole[32];
  std::snprintf(start, sizeof start, "at %p", static_cast<void*>(pages.data()));
  std::snprintf(hole, sizeof hole, "stopped at %p", static_cast<void*>(pages.data() + kPage));
  EXPECT_THAT(std::string(status.message()), HasSubstr(start));
  EXPECT_THAT(std::string(status.message()), HasSubstr(hole));
  EXPECT_THAT(std::string(status.message()), HasSubstr("read 8192 bytes"));
  EXPECT_FALSE(pages.Remote().Write(kPage, local.data(), 1).ok());
}

TEST(MemoryViewTest, NothingIsReadOfAnEmptyRange) {
  EXPECT_TRUE(MemoryView::Remote(testing::OwnMemory(), 0).Read(0, nullptr, 0).ok());
}

TEST(MemoryViewTest, SameByte) {
  std::byte a[2];
  EXPECT_TRUE(MemoryView::Mapped(a).SameByte(1, MemoryView::Mapped(a + 1), 0));
  EXPECT_FALSE(MemoryView::Mapped(a).SameByte(0, MemoryView::Mapped(a + 1), 0));
  const ProcessMemory* const own = testing::OwnMemory();
  const auto again = testing::TakeMemory(::getpid());
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(MemoryView::Remote(own, 8).SameByte(4, MemoryView::Remote(own, 0), 12));
  EXPECT_FALSE(MemoryView::Remote(own, 8).SameByte(0, MemoryView::Remote(own, 8), 4));
  EXPECT_FALSE(MemoryView::Remote(own, 8).SameByte(0, MemoryView::Remote(again->get(), 8), 0));
  EXPECT_FALSE(MemoryView::Device(8, 0).SameByte(0, MemoryView::Device(8, 1), 0));
  EXPECT_FALSE(MemoryView::Mapped(a).SameByte(0, MemoryView::Remote(own, 8), 0));
}

}  // namespace
}  // namespace spccl::runtime
