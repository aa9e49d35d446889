// Groups of this host, by name.
#pragma once

#include <grp.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace spccl {

// As getgrnam_r(3), which fails with ERANGE where a group's members do not fit the buffer. Tests
// have others.
using GroupLookup = std::function<int(const char*, group*, char*, size_t, group**)>;

// The number of the group of that name, however many members it has (up to 16 MiB of names);
// nullopt: there is none.
absl::StatusOr<std::optional<gid_t>> FindGroup(const std::string& name,
                                               const GroupLookup& lookup = ::getgrnam_r);

}  // namespace spccl
