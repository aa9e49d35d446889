// What a process may do with its own memory, by a descriptor of its /proc/PID/maps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spccl::runtime {

enum class Access { kRead, kWrite };

// How many bytes of a range may be accessed, from the first on, and the error number of the rest:
// EFAULT where nothing is mapped, EACCES where the mapping does not allow it, ESRCH if the memory
// is gone; 0 if there is no rest.
struct Allowance {
  size_t bytes = 0;
  int error = 0;
};

// Addresses from `start` on, below `end`.
struct AddressRange {
  uint64_t start = 0, end = 0;
};

// By a question for each mapping of the range: ENOTTY before Linux 6.11. Thread-safe.
Allowance AskMaps(int maps, Access access, uint64_t address, size_t bytes);

// The same, from the text: takes time for every mapping up to the range's end. One thread at a
// time, as the text is read in pieces, which go on where the last one of the same open file
// stopped. `*around`, if not null: the mappings that were found to allow it.
Allowance ReadMaps(int maps, Access access, uint64_t address, size_t bytes,
                   AddressRange* around = nullptr);

}  // namespace spccl::runtime
