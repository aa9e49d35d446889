// An operator new that refuses one allocation, for tests of what comes of that: to be included once
// in a program.
#pragma once

#include <sys/prctl.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

extern "C" const char __executable_start, etext;  // NOLINT: the linker's

namespace spccl::testing {

// So many allocations succeed before one is refused; negative: none is refused.
inline thread_local int64_t t_left = -1;
// Likewise, of the library's own threads.
inline std::atomic<int64_t> g_threads_left{-1};

inline bool IsLibrarysThread() {
  char name[16] = {};
  return ::prctl(PR_GET_NAME, name) == 0 && std::strncmp(name, "spccl-", 6) == 0;
}

// The program is linked to the library; a driver that it loads may have all it asks for.
inline bool IsProgram(const void* caller) {
  return caller >= &__executable_start && caller < &etext;
}

inline bool IsRefused(const void* caller) {
  if (!IsProgram(caller)) return false;
  if (t_left >= 0 && t_left-- == 0) return true;
  return g_threads_left.load() >= 0 && IsLibrarysThread() && g_threads_left.fetch_sub(1) == 0;
}

inline void* Allocate(size_t bytes, const void* caller) {
  void* const memory = IsRefused(caller) ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace spccl::testing

void* operator new(size_t bytes) {
  return spccl::testing::Allocate(bytes, __builtin_return_address(0));
}
void* operator new[](size_t bytes) {
  return spccl::testing::Allocate(bytes, __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace spccl::testing {

constexpr int kMostAllocations = 2000;

// Of each test.
template <typename Base>
class RefusedMemoryTest : public Base {
 protected:
  // Runs `body` with each of this thread's allocations refused in turn, until it makes no more.
  // What `body` gives is told of whether one was refused.
  static void RefuseEach(const std::function<void()>& body) {
    for (int number = 0; number < kMostAllocations; ++number) {
      SCOPED_TRACE(number);
      s_refused = -1;
      body();
      ASSERT_GE(s_refused, 0) << "body refuses nothing";
      if (::testing::Test::HasFailure() || s_refused == 0) return;
      s_number = number + 1;
    }
    FAIL() << "more allocations than can be";
  }

  // The result of `call`, of whose allocations one is refused: if it does not reach that, nothing
  // is left to be refused in it.
  template <typename Call>
  static spcclResult_t Refusing(Call call) {
    t_left = s_number;
    const spcclResult_t result = call();
    s_refused = t_left < 0 ? 1 : 0;
    t_left = -1;
    EXPECT_THAT(result, ::testing::AnyOf(spcclSuccess, spcclSystemError))
        << spcclGetLastError(nullptr);
    return result;
  }

  void SetUp() override { s_number = 0; }
  void TearDown() override { t_left = g_threads_left = -1; }

  static inline int64_t s_number = 0;
  static inline int s_refused = -1;
};

}  // namespace spccl::testing
