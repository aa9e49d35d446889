#include "daemon/unique_ids.h"

#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

// The layout of an id: magic, boot id, secret; zeros up to the end.
constexpr uint64_t kMagic = 0x3144495543435053;  // "SPCCUID1"
constexpr size_t kBootIdAt = 8, kSecretAt = 16, kSecretBytes = 16;

uint64_t WordAt(const UniqueIdBytes& id, size_t offset) {
  uint64_t word;
  std::memcpy(&word, id.data() + offset, sizeof word);
  return word;
}

}  // namespace

absl::StatusOr<UniqueIdBytes> UniqueIds::Issue(uid_t uid) {
  UniqueIdBytes id{};
  std::memcpy(id.data(), &kMagic, sizeof kMagic);
  std::memcpy(id.data() + kBootIdAt, &boot_id_, sizeof boot_id_);
  if (::getrandom(id.data() + kSecretAt, kSecretBytes, 0) != kSecretBytes) {
    return ErrnoStatus(errno, "getrandom");
  }
  std::deque<UniqueIdBytes>& kept = by_age_[uid];
  if (kept.size() == kKeptPerUid) {
    entries_.erase(kept.front());
    kept.pop_front();
  }
  kept.push_back(id);
  entries_.emplace(id, Entry{.uid = uid, .comm_id = 0, .used_up = absl::OkStatus()});
  return id;
}

absl::StatusOr<uint64_t> UniqueIds::Find(const UniqueIdBytes& id, uid_t uid) const {
  if (WordAt(id, 0) != kMagic) {
    return absl::InvalidArgumentError("the unique id is not one of spcclGetUniqueId's");
  }
  if (WordAt(id, kBootIdAt) != boot_id_) {
    return absl::FailedPreconditionError(
        "the unique id was made by another spccld, or before this one was restarted");
  }
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.uid != uid) {
    return absl::FailedPreconditionError(
        absl::StrCat("the unique id is not known to this spccld for uid ", uid));
  }
  SPCCL_RETURN_IF_ERROR(found->second.used_up);
  return found->second.comm_id;
}

void UniqueIds::SetForming(const UniqueIdBytes& id, uint64_t comm_id) {
  const auto found = entries_.find(id);
  if (found != entries_.end()) found->second.comm_id = comm_id;
}

void UniqueIds::UseUp(const UniqueIdBytes& id, absl::Status why) {
  const auto found = entries_.find(id);
  if (found != entries_.end()) found->second.used_up = std::move(why);
}

}  // namespace spccl::daemon
