#include "daemon/reaper.h"

#include <future>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

SharedMapping MapBytes(size_t bytes) {
  const auto memfd = CreateSealedMemfd("reaper-test", bytes);
  EXPECT_TRUE(memfd.ok());
  auto mapping = SharedMapping::Create(memfd->get(), bytes);
  EXPECT_TRUE(mapping.ok());
  return *std::move(mapping);
}

// Waits until the reaper has done all that was deferred before.
void Settle(Reaper& reaper) {
  std::promise<void> done;
  reaper.Defer([&done] { done.set_value(); });
  done.get_future().wait();
}

TEST(ReaperTest, CountsDownWhenTheMemoryIsGone) {
  Reaper reaper;
  MappingRef first = reaper.Own(MapBytes(8192));
  MappingRef second = reaper.Own(MapBytes(4096));
  EXPECT_EQ(reaper.mapped_bytes(), 12288u);
  EXPECT_EQ(reaper.mappings(), 2u);
  const MappingRef again = first;
  first.reset();
  Settle(reaper);
  EXPECT_EQ(reaper.mappings(), 2u);
  // Whoever drops it, the unmapping happens on the reaper's thread: not while that is held up.
  std::promise<void> held;
  reaper.Defer([&held] { held.get_future().wait(); });
  second.reset();
  EXPECT_EQ(reaper.mappings(), 2u);
  held.set_value();
  Settle(reaper);
  EXPECT_EQ(reaper.mappings(), 1u);
  EXPECT_EQ(reaper.mapped_bytes(), 8192u);
  again->data()[8191] = std::byte{1};
}

}  // namespace
}  // namespace spccl::daemon
