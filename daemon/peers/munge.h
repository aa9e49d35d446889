// MUNGE credentials: who on a host of the same realm says this. Optional (SPCCL_WITH_MUNGE).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spccl::daemon::peers {

// Talks to munged; may wait for it, for some seconds at worst. One thread.
class Munge {
 public:
  // `socket`: of munged; empty: the usual one. Unimplemented: this build has no MUNGE.
  static absl::StatusOr<std::unique_ptr<Munge>> Create(const std::string& socket);
  virtual ~Munge() = default;

  // A credential that carries `payload`. Unavailable: munged does not answer.
  virtual absl::StatusOr<std::string> Encode(const std::string& payload) = 0;
  // OK if the credential carries `payload`, was made by root or by this process's user, on a host
  // of the realm, lately, and is seen for the first time. Unauthenticated: what is wrong with it.
  virtual absl::Status Verify(const std::string& credential, const std::string& payload) = 0;
};

}  // namespace spccl::daemon::peers
