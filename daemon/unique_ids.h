// The unique ids that this daemon has given out: a communicator can only be formed by one of them,
// once, and by the uid that asked for it. Core thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/shm/session.h"

namespace spccl::daemon {

using UniqueIdBytes = std::array<uint8_t, shm::kUniqueIdBytes>;
// What names a communicator between daemons: the secret of its unique id.
using CommKey = std::array<uint8_t, 16>;

// What an id says.
struct UniqueIdParts {
  uint64_t boot_id = 0;  // of the daemon that made it, the root of the communicator
  CommKey key{};
  std::string address;  // where other daemons reach the root; empty: they cannot
};
// InvalidArgument if it is no id of spcclGetUniqueId.
absl::StatusOr<UniqueIdParts> ParseUniqueId(const UniqueIdBytes& id);

class UniqueIds {
 public:
  // At most this many of a uid's ids are remembered; then its oldest is forgotten.
  static constexpr size_t kKeptPerUid = 4096;

  // `address`: where other daemons reach this one, see UniqueIdParts; longer ones than
  // kLongestAddress do not fit into an id and are refused.
  static constexpr size_t kLongestAddress = shm::kUniqueIdBytes - 33;
  explicit UniqueIds(uint64_t boot_id, std::string address = "")
      : boot_id_(boot_id), address_(std::move(address)) {}

  // The boot id, a random 128-bit secret and the address.
  absl::StatusOr<UniqueIdBytes> Issue(uid_t uid);

  // The communicator that forms by this id, 0 if none does yet. An error if the id is not ours (or
  // from before a restart), of another uid, or used up; then it says by what.
  absl::StatusOr<uint64_t> Find(const UniqueIdBytes& id, uid_t uid) const;
  void SetForming(const UniqueIdBytes& id, uint64_t comm_id);
  // No later rank can join by this id: it gets `why`.
  void UseUp(const UniqueIdBytes& id, absl::Status why);

 private:
  struct Entry {
    uid_t uid;
    uint64_t comm_id = 0;
    absl::Status used_up;
  };
  const uint64_t boot_id_;
  const std::string address_;
  std::map<UniqueIdBytes, Entry> entries_;
  std::map<uid_t, std::deque<UniqueIdBytes>> by_age_;
};

}  // namespace spccl::daemon
