// The stacks of a machine's fibres. Each has a page below it that may not be touched; not under
// ThreadSanitizer, for which they are one piece: of its own, a stack and what the sanitizer makes
// for it are five mappings, and some twenty machines of hundreds of fibres meet the limit of those
// that a process may have.
#pragma once

#include <boost/context/stack_context.hpp>
#include <cstdint>
#include <span>
#include <vector>

namespace spccl::simt {

// Not thread-safe. Outlives the fibres that use them.
class FibreStacks {
 public:
  explicit FibreStacks(uint32_t count);
  ~FibreStacks();
  FibreStacks(const FibreStacks&) = delete;
  FibreStacks& operator=(const FibreStacks&) = delete;

  std::span<char> at(uint32_t i) const;

 private:
  std::vector<boost::context::stack_context> pieces_;
};

}  // namespace spccl::simt
