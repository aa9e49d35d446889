// Handles of the C API: numbers dressed as pointers, each given out once in a process's life.
//
// A handle that was destroyed, belongs to the parent process or never was one is told apart and
// refused; nothing is read through it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace spccl::client {

enum class HandleKind : uintptr_t { kComm = 1, kStream = 2, kRegistration = 3 };

// Thread-safe.
template <typename T>
class HandleTable {
 public:
  // `what` names the kind of handle in messages. Numbers start at `first`: what a parent process
  // gave out before fork() lies below.
  HandleTable(HandleKind kind, const char* what, uint64_t first)
      : kind_(kind), what_(what), first_(first), next_(first) {}

  void* Add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    const uint64_t number = next_++;
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<void*>(number * kStep + static_cast<uintptr_t>(kind_));
  }

  absl::StatusOr<std::shared_ptr<T>> Find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(NumberOf(handle));
    if (!IsOfKind(handle) || found == objects_.end()) return WhyNot(handle);
    return found->second;
  }

  // Whether it was given out, here or by the parent process, and maybe taken back since.
  bool IsOne(const void* handle) const {
    const std::lock_guard lock(mutex_);
    return WasGivenOut(handle);
  }

  // Takes the object out; of several callers one gets it.
  absl::StatusOr<std::shared_ptr<T>> Remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(NumberOf(handle));
    if (!IsOfKind(handle) || found == objects_.end()) return WhyNot(handle);
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Takes out all that `matches`, which may end what it is asked about: it is asked once. Needs no
  // memory.
  template <typename Predicate>
  void RemoveIf(Predicate matches) {
    Objects removed;  // outlives the lock: their ends may take time
    const std::lock_guard lock(mutex_);
    for (auto next = objects_.begin(); next != objects_.end();) {
      const auto entry = next++;
      if (matches(*entry->second)) removed.insert(removed.end(), objects_.extract(entry));
    }
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return objects_.size();
  }

  // Where a child process's table starts.
  uint64_t next() const { return next_; }

 private:
  // A map whose nodes can be moved to another one without memory.
  using Objects = std::map<uint64_t, std::shared_ptr<T>>;

  static constexpr uintptr_t kStep = 16;  // leaves the low bits for the kind

  static uint64_t NumberOf(const void* handle) {
    return reinterpret_cast<uintptr_t>(handle) / kStep;
  }
  bool IsOfKind(const void* handle) const {
    return reinterpret_cast<uintptr_t>(handle) % kStep == static_cast<uintptr_t>(kind_);
  }

  bool WasGivenOut(const void* handle) const {
    return IsOfKind(handle) && NumberOf(handle) != 0 && NumberOf(handle) < next_;
  }

  absl::Status WhyNot(const void* handle) const {
    if (handle == nullptr) return absl::InvalidArgumentError(absl::StrCat(what_, " is NULL"));
    if (!WasGivenOut(handle)) return absl::InvalidArgumentError(absl::StrCat("not a ", what_));
    if (NumberOf(handle) < first_) {
      return absl::FailedPreconditionError(
          absl::StrCat("the ", what_, " was made by the parent process, before fork()"));
    }
    return absl::FailedPreconditionError(absl::StrCat("the ", what_, " was destroyed"));
  }

  const HandleKind kind_;
  const char* const what_;
  const uint64_t first_;
  mutable std::mutex mutex_;
  uint64_t next_;
  Objects objects_;
};

}  // namespace spccl::client
