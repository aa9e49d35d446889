// One fibre: runs a function on a stack of its own, a step at a time, on Boost.Context. Tells
// AddressSanitizer and ThreadSanitizer of every switch; to the latter without ordering memory, so
// that two fibres race unless they synchronise by themselves.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace spccl::simt {

// Not thread-safe; every call comes from the thread that made it. May be destroyed only when its
// function has returned or has never started.
class Fibre {
 public:
  // `function` runs on `stack` from the first Resume() on; when it returns, the fibre is finished.
  Fibre(std::span<char> stack, std::function<void()> function);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // From outside: runs the function until it calls Suspend() or returns.
  void Resume();
  // From inside: back to whoever called Resume().
  void Suspend();
  bool finished() const { return finished_; }

 private:
  void BeginSwitchIn();
  void EndSwitchIn();
  void BeginSwitchOut(bool for_good);
  void EndSwitchOut();

  std::function<void()> function_;
  bool finished_ = false;
  boost::context::fiber inside_;   // where the function stands; empty while it runs
  boost::context::fiber outside_;  // where Resume() stands; empty while the function does not run
  // What the sanitizers know the two stacks by; unused without them.
  std::span<char> stack_;
  [[maybe_unused]] const void* outside_bottom_ = nullptr;
  [[maybe_unused]] size_t outside_bytes_ = 0;
  [[maybe_unused]] void* inside_fake_ = nullptr;
  [[maybe_unused]] void* outside_fake_ = nullptr;
  [[maybe_unused]] void* inside_tsan_ = nullptr;
  [[maybe_unused]] void* outside_tsan_ = nullptr;
};

}  // namespace spccl::simt
