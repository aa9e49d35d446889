#include "base/find_group.h"

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl {
namespace {

constexpr size_t kUsualBytes = 16 * 1024, kMostBytes = 16 * 1024 * 1024;

}  // namespace

absl::StatusOr<std::optional<gid_t>> FindGroup(const std::string& name, const GroupLookup& lookup) {
  std::vector<char> buffer(kUsualBytes);
  for (;;) {
    group entry;
    group* found = nullptr;
    const int error = lookup(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (error == 0) return found == nullptr ? std::nullopt : std::optional(found->gr_gid);
    if (error == EINTR) continue;
    if (error != ERANGE || buffer.size() >= kMostBytes) {
      return ErrnoStatus(error, absl::StrCat("look up the group ", name));
    }
    buffer.resize(2 * buffer.size());
  }
}

}  // namespace spccl
