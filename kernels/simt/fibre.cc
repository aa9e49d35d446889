// Compiled without -fsanitize=thread (see CMakeLists.txt): ThreadSanitizer must see what kernels
// do, not what the machine under them does between two lanes.
#include "kernels/simt/fibre.h"

#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SPCCL_FIBRE_TSAN)  // set by CMakeLists.txt
#include <sanitizer/tsan_interface.h>
#endif

namespace spccl::simt {
namespace {

// The machine frees the stack, not Boost.
struct Borrowed {
  void deallocate(boost::context::stack_context& /*stack*/) {}
};

}  // namespace

Fibre::Fibre(std::span<char> stack, std::function<void()> function)
    : function_(std::move(function)), stack_(stack) {
  char* const top = stack.data() + stack.size();
  boost::context::stack_context context;
  context.sp = top;
  context.size = stack.size();
  inside_ = boost::context::fiber(std::allocator_arg,
                                  boost::context::preallocated(top, stack.size(), context),
                                  Borrowed(), [this](boost::context::fiber&& outside) {
                                    outside_ = std::move(outside);
                                    EndSwitchIn();
                                    function_();
                                    finished_ = true;
                                    BeginSwitchOut(true);
                                    return std::move(outside_);
                                  });
#if defined(SPCCL_FIBRE_TSAN)
  inside_tsan_ = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
#if defined(SPCCL_FIBRE_TSAN)
  __tsan_destroy_fiber(inside_tsan_);
#endif
}

void Fibre::Resume() {
  BeginSwitchIn();
  inside_ = std::move(inside_).resume();
  EndSwitchOut();
}

void Fibre::Suspend() {
  BeginSwitchOut(false);
  outside_ = std::move(outside_).resume();
  EndSwitchIn();
}

void Fibre::BeginSwitchIn() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&outside_fake_, stack_.data(), stack_.size());
#endif
#if defined(SPCCL_FIBRE_TSAN)
  outside_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(inside_tsan_, __tsan_switch_to_fiber_no_sync);
#endif
}

void Fibre::EndSwitchIn() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(inside_fake_, &outside_bottom_, &outside_bytes_);
#endif
}

void Fibre::BeginSwitchOut(bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &inside_fake_, outside_bottom_,
                                 outside_bytes_);
#endif
#if defined(SPCCL_FIBRE_TSAN)
  __tsan_switch_to_fiber(outside_tsan_, __tsan_switch_to_fiber_no_sync);
#endif
}

void Fibre::EndSwitchOut() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(outside_fake_, nullptr, nullptr);
#endif
}

}  // namespace spccl::simt
