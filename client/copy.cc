#include "client/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace spccl::client {
namespace {

constexpr size_t kLine = 64;

// So many pages are copied side by side. Within a page the processor fetches ahead by itself, but
// it stops at the page's end and starts slowly in the next one: of several there is always one that
// has got going.
constexpr size_t kPage = 4096, kPages = 4;

}  // namespace

void CopyAhead(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  size_t at = 0;
  for (; at + kPages * kPage <= bytes; at += kPages * kPage) {
    for (size_t line = at; line < at + kPage; line += kLine) {
      for (size_t each = line; each < line + kPages * kPage; each += kPage) {
        // An address past the end is no access. As a number: it may be no pointer into the object.
        __builtin_prefetch(
            reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(in) + each + kPages * kPage));
        std::memcpy(out + each, in + each, kLine);
      }
    }
  }
  std::memcpy(out + at, in + at, bytes - at);
}

#ifdef __SSE2__  // every x86-64
namespace {

void StreamLines(char* out, const char* in, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(__m128i)) {
    const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + at), value);
  }
}

// A line never leaves the processor in parts.
__attribute__((target("avx512f"))) void StreamWholeLines(char* out, const char* in, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + at), _mm512_loadu_si512(in + at));
  }
}

}  // namespace

bool HasWideStores() {
  static const bool has = __builtin_cpu_supports("avx512f") != 0;
  return has;
}

void CopyPastCaches(void* to, const void* from, size_t bytes, bool wide) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(out) % kLine);
  const size_t lines = (bytes - head) / kLine * kLine;
  std::memcpy(out, in, head);
  (wide ? StreamWholeLines : StreamLines)(out + head, in + head, lines);
  std::memcpy(out + head + lines, in + head + lines, bytes - head - lines);
  _mm_sfence();  // before whatever tells others that the copy is there
}
#else
bool HasWideStores() {
  return false;
}

void CopyPastCaches(void* to, const void* from, size_t bytes, bool /*wide*/) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace spccl::client
