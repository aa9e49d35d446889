#include "daemon/unique_ids.h"

#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

// The layout of an id: magic, boot id, secret, address; zeros up to the end.
constexpr uint64_t kMagic = 0x3244495543435053;  // "SPCCUID2"
constexpr size_t kBootIdAt = 8, kSecretAt = 16, kSecretBytes = 16, kAddressAt = 32;
static_assert(UniqueIds::kLongestAddress == shm::kUniqueIdBytes - kAddressAt - 1);

uint64_t WordAt(const UniqueIdBytes& id, size_t offset) {
  uint64_t word;
  std::memcpy(&word, id.data() + offset, sizeof word);
  return word;
}

}  // namespace

absl::StatusOr<UniqueIdParts> ParseUniqueId(const UniqueIdBytes& id) {
  if (WordAt(id, 0) != kMagic || id.back() != 0) {
    return absl::InvalidArgumentError("the unique id is not one of spcclGetUniqueId's");
  }
  UniqueIdParts parts;
  parts.boot_id = WordAt(id, kBootIdAt);
  std::memcpy(parts.key.data(), id.data() + kSecretAt, kSecretBytes);
  parts.address = reinterpret_cast<const char*>(id.data() + kAddressAt);
  return parts;
}

absl::StatusOr<UniqueIdBytes> UniqueIds::Issue(uid_t uid) {
  if (address_.size() > kLongestAddress) {
    return absl::FailedPreconditionError(
        absl::StrCat("this spccld's address for others, ", address_, ", is longer than ",
                     kLongestAddress, " characters and does not fit into a unique id"));
  }
  UniqueIdBytes id{};
  std::memcpy(id.data(), &kMagic, sizeof kMagic);
  std::memcpy(id.data() + kBootIdAt, &boot_id_, sizeof boot_id_);
  if (::getrandom(id.data() + kSecretAt, kSecretBytes, 0) != kSecretBytes) {
    return ErrnoStatus(errno, "getrandom");
  }
  address_.copy(reinterpret_cast<char*>(id.data() + kAddressAt), kLongestAddress);
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
  SPCCL_ASSIGN_OR_RETURN(const UniqueIdParts parts, ParseUniqueId(id));
  if (parts.boot_id != boot_id_) {
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
