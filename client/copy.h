// Copies of large memory through slots that stay in the caches.
#pragma once

#include <cstddef>

namespace spccl::client {

// As memcpy, from memory that is in no cache: it is fetched ahead, also across the ends of pages,
// where the processor does not do so itself. Twice as fast as memcpy for slices of 256 KiB of 64
// MiB on small pages.
void CopyAhead(void* to, const void* from, size_t bytes);

// As memcpy, but writes past the caches where the processor can: memory that is overwritten whole
// is not read first, and what else the caches hold stays. Complete and ordered when it returns.
void CopyPastCaches(void* to, const void* from, size_t bytes);

}  // namespace spccl::client
