// The stacks of a machine's fibres, which the kernel gives in one piece: of its own each, they and
// what ThreadSanitizer makes for each are five mappings, and some twenty machines of hundreds of
// fibres meet the limit of those that a process may have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spccl::simt {

// Not thread-safe. Outlives the fibres that use them.
class FibreStacks {
 public:
  explicit FibreStacks(uint32_t count);
  ~FibreStacks();
  FibreStacks(const FibreStacks&) = delete;
  FibreStacks& operator=(const FibreStacks&) = delete;

  // Stack `i`. Without ThreadSanitizer it has a page below it that may not be touched.
  std::span<char> at(uint32_t i) const;

 private:
  size_t bytes_;
  char* memory_;
};

}  // namespace spccl::simt
