// As out_of_memory_test.cc, of calls on a GPU's memory: whatever is refused, its stream goes on.
#include <cstdlib>
#include <vector>

#include "tests/client/gpu_launch_fixture.h"
#include "tests/client/refused_memory.h"

namespace spccl::testing {
namespace {

class GpuOutOfMemoryTest : public RefusedMemoryTest<GpuLaunchTest> {
 protected:
  void CopyWithEachRefused() {
    RefuseEach([&] {
      const spcclComm_t comm = OneRank();
      void* const send = NewBuffer(7);
      void* const first = NewBuffer(0);
      void* const second = NewBuffer(0);
      const spcclResult_t called = Refusing([&] { return Copy(send, first, comm); });
      const spcclResult_t after = Copy(send, second, comm);
      gpu_.Synchronize(stream_);
      const bool is_well = HealthOf(comm) == spcclSuccess;
      EXPECT_TRUE(Holds(first, called == spcclSuccess && is_well ? 7 : 0));
      EXPECT_TRUE(after == spcclSuccess || !is_well) << LastError();
      EXPECT_TRUE(Holds(second, after == spcclSuccess && is_well ? 7 : 0));
      EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess) << LastError();
      for (void* const memory : {send, first, second}) gpu_.Free(memory);
    });
  }
};

TEST_F(GpuOutOfMemoryTest, ACallIsMadeOrNot) {
  CopyWithEachRefused();
}

TEST_F(GpuOutOfMemoryTest, ACallOnACopyIsMadeOrNot) {
  ::setenv("SPCCL_FORCE_STAGING", "1", 1);
  CopyWithEachRefused();
  ::unsetenv("SPCCL_FORCE_STAGING");
}

}  // namespace
}  // namespace spccl::testing
