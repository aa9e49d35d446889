// spcclCommSetCodec: what a caller wishes, as the daemon reads it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective_call.h"
#include "client/include/spccl/spccl.h"

namespace spccl::client {

// Texts of policy/settings.h and policy/lossy.h.
struct CodecWish {
  std::string codec;  // empty: a lossy one leaves it as it is
  std::string lossy;
  bool is_lossy = false;
};

// InvalidArgument: a code that is none, or a bound that the codec needs and that is none. `options`
// may be null.
absl::StatusOr<CodecWish> WishOf(uint32_t codec, const spcclCodecOptions* options);

// FailedPrecondition where a lossy codec cannot carry the call.
absl::Status CheckLossyCarries(const CollectiveCall& call);

}  // namespace spccl::client
