// Who may see and change what, of the control services. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/control.h"
#include "daemon/settings_store.h"

namespace spccl::daemon {

// Who calls, by the kernel's word.
struct Caller {
  uid_t uid;
  bool administrator;  // root, the daemon's own user, or a member of the admin group
};

// The caller behind a call's peer address ("fd:7").
using CallerResolver = std::function<absl::StatusOr<Caller>(const std::string& peer)>;

inline bool MaySee(const Caller& caller, uid_t owner) {
  return caller.administrator || caller.uid == owner;
}

// What the snapshot holds that the caller may see; the core's sums become those of what is left.
Snapshot VisibleTo(const Caller& caller, Snapshot all);

// Whether the caller may change the scope. PermissionDenied for others' scopes and, in the same
// words, for those that do not exist; NotFound is for administrators, of communicators only: an
// administrator may set what a job will run with before it comes. A user may not, as of names for
// jobs there is no end.
absl::Status MayChange(const Caller& caller, const Snapshot& all, const Scope& scope);
// The same for taking back what was set; a user may also of a job of its own that is not there now.
absl::Status MayReset(const Caller& caller, const Snapshot& all, const Scope& scope);
// What to say of a communicator that the caller may not see, or that is not there.
absl::Status NoSuchComm(const Caller& caller, uint64_t comm_id);
// As MayReset(), for reading a scope's settings; the global ones may be read by all.
absl::Status MayRead(const Caller& caller, const Snapshot& all, const Scope& scope);
// PermissionDenied unless the caller is an administrator.
absl::Status MustAdminister(const Caller& caller, const char* what);

// Bounds the calls that each user has in progress, as each holds a thread. Thread-safe.
class CallLimit {
 public:
  static constexpr int kCallsPerUser = 32;
  // One call of one user, until destroyed. The limit must outlive it.
  class Slot {
   public:
    Slot(CallLimit* limit, uid_t uid) : limit_(limit), uid_(uid) {}
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot();

   private:
    CallLimit* const limit_;
    const uid_t uid_;
  };
  // Null: the user has too many calls in progress.
  std::unique_ptr<Slot> Enter(uid_t uid);

 private:
  std::mutex mutex_;
  std::map<uid_t, int> calls_;
};

}  // namespace spccl::daemon
