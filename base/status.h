// Small additions to absl::Status: propagation macros, errno, and checks of our own invariants.
//
// absl::Status is for what a client, a peer or the system can cause. SPCCL_CHECK (check.h) is for
// our own invariants only: a failed check ends the process.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"  // IWYU pragma: export

namespace spccl {

// A status that names what was tried and the errno it failed with, e.g. "open /run/x: No such
// file". The code follows the errno (ENOENT -> NotFound, EACCES -> PermissionDenied, ...).
absl::Status ErrnoStatus(int error_number, std::string_view what);

// `status` with `context` and ": " before its message; OK stays OK, and payloads stay.
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace spccl

#define SPCCL_RETURN_IF_ERROR(expression)                                 \
  do {                                                                    \
    if (absl::Status spccl_status_ = (expression); !spccl_status_.ok()) { \
      return spccl_status_;                                               \
    }                                                                     \
  } while (false)

#define SPCCL_CONCAT_INNER_(a, b) a##b
#define SPCCL_CONCAT_(a, b) SPCCL_CONCAT_INNER_(a, b)
#define SPCCL_ASSIGN_OR_RETURN(target, expression) \
  SPCCL_ASSIGN_OR_RETURN_IMPL_(SPCCL_CONCAT_(spccl_statusor_, __LINE__), target, expression)
#define SPCCL_ASSIGN_OR_RETURN_IMPL_(temporary, target, expression) \
  auto temporary = (expression);                                    \
  if (!temporary.ok()) return std::move(temporary).status();        \
  target = std::move(temporary).value()
