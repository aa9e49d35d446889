#include "kernels/simt/fibre_stacks.h"

#include <boost/context/protected_fixedsize_stack.hpp>

namespace spccl::simt {
namespace {

// Kernel bodies keep little on the stack, sanitizers add to it.
constexpr size_t kStackBytes = 128 << 10;

#if defined(SPCCL_FIBRE_TSAN)
constexpr bool kInOnePiece = true;
#else
constexpr bool kInOnePiece = false;
#endif

}  // namespace

FibreStacks::FibreStacks(uint32_t count) {
  const uint32_t pieces = kInOnePiece ? 1 : count;
  boost::context::protected_fixedsize_stack allocator(kStackBytes * (kInOnePiece ? count : 1));
  while (pieces_.size() < pieces) pieces_.push_back(allocator.allocate());
}

FibreStacks::~FibreStacks() {
  boost::context::protected_fixedsize_stack allocator;
  for (boost::context::stack_context& piece : pieces_) allocator.deallocate(piece);
}

std::span<char> FibreStacks::at(uint32_t i) const {
  const boost::context::stack_context& piece = pieces_[kInOnePiece ? 0 : i];
  char* const top = static_cast<char*>(piece.sp) - (kInOnePiece ? i * kStackBytes : 0);
  return {top - kStackBytes, kStackBytes};
}

}  // namespace spccl::simt
