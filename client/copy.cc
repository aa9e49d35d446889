#include "client/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace spccl::client {
namespace {

constexpr size_t kLine = 64;

// A page and a few lines: by the time that the copy gets there, the page's address is known and its
// first lines are here.
constexpr size_t kAheadBytes = 4096 + 4 * kLine;

}  // namespace

void CopyAhead(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  size_t at = 0;
  for (; at + kLine <= bytes; at += kLine) {
    // An address past the end is no access. As a number: it may be no pointer into the object.
    __builtin_prefetch(
        reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(in) + at + kAheadBytes));
    std::memcpy(out + at, in + at, kLine);
  }
  std::memcpy(out + at, in + at, bytes - at);
}

#ifdef __SSE2__  // every x86-64
void CopyPastCaches(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(out) % kLine);
  std::memcpy(out, in, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (size_t part = at; part < at + kLine; part += sizeof(__m128i)) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + part));
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + part), value);
    }
  }
  std::memcpy(out + at, in + at, bytes - at);
  _mm_sfence();  // before whatever tells others that the copy is there
}
#else
void CopyPastCaches(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace spccl::client
