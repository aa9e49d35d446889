// Copies of large memory through slots that stay in the caches.
#pragma once

#include <cstddef>

namespace spccl::client {

// As memcpy, from memory that is in no cache, on small pages: it is fetched ahead from several
// pages at once, where the processor would begin anew with each. A fifth to a half faster than
// memcpy for slices of 256 KiB of 64 MiB.
void CopyAhead(void* to, const void* from, size_t bytes);

// Whether the processor stores a whole line at once (AVX-512).
bool HasWideStores();

// As memcpy, but writes past the caches where the processor can: memory that is overwritten whole
// is not read first, and what else the caches hold stays. Complete and ordered when it returns.
// `wide`: in stores of a whole line, which only HasWideStores() allows.
void CopyPastCaches(void* to, const void* from, size_t bytes, bool wide = HasWideStores());

}  // namespace spccl::client
