// What ThreadSanitizer is told: nothing of what the fake does for itself (its lock would order what
// CUDA does not), and of every order that CUDA promises.
//
// The driver's functions and the streams' threads are Inside, but for where they run the tests'
// code and touch the tests' memory. Promise() and Rely() may be called from either.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace spccl::fake_cuda {

inline thread_local bool is_inside = false;

inline void SetInside(bool inside) {
  if (inside == is_inside) return;
  is_inside = inside;
#if defined(__SANITIZE_THREAD__)
  if (inside) {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  } else {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
#endif
}

template <bool kInside>
class [[nodiscard]] Side {
 public:
  Side() : before_(is_inside) { SetInside(kInside); }
  ~Side() { SetInside(before_); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

 private:
  bool before_;
};
using Inside = Side<true>;
using Outside = Side<false>;

// What this thread has done so far happens before what a thread does that relies on the key later.
inline void Promise([[maybe_unused]] char& key) {
#if defined(__SANITIZE_THREAD__)
  const Outside outside;
  __tsan_release(&key);
#endif
}
inline void Rely([[maybe_unused]] char& key) {
#if defined(__SANITIZE_THREAD__)
  const Outside outside;
  __tsan_acquire(&key);
#endif
}

}  // namespace spccl::fake_cuda
