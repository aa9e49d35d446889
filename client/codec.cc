#include "client/codec.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace spccl::client {
namespace {

constexpr const char* kNames[spcclNumCodecs] = {
    "auto", "dense", "pici", "pici-column", "coo", "gap", "errorbound", "qsgd2", "qsgd4", "qsgd8"};

// So that the number that is read is this one.
std::string Exactly(double value) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

absl::StatusOr<CodecWish> WithBound(const spcclCodecOptions* options) {
  if (options == nullptr) {
    return absl::InvalidArgumentError("options is NULL, and errorbound needs a bound");
  }
  const bool relative = options->relative != 0;
  if (!std::isfinite(options->bound) || options->bound <= 0 || (relative && options->bound >= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("options->bound is ", Exactly(options->bound),
                                                   ", expected a positive, finite number",
                                                   relative ? " below 1" : ""));
  }
  return CodecWish{.codec = "",
                   .lossy = absl::StrCat("errorbound:", relative ? "relative=" : "absolute=",
                                         Exactly(options->bound)),
                   .is_lossy = true};
}

}  // namespace

absl::StatusOr<CodecWish> WishOf(uint32_t codec, const spcclCodecOptions* options) {
  if (codec >= spcclNumCodecs) {
    return absl::InvalidArgumentError(absl::StrCat("codec is ", static_cast<int32_t>(codec),
                                                   ", not one of 0 to ",
                                                   static_cast<int>(spcclNumCodecs) - 1));
  }
  if (codec == spcclCodecErrorBound) return WithBound(options);
  if (codec < spcclCodecErrorBound) return CodecWish{.codec = kNames[codec], .lossy = "off"};
  const unsigned long long seed = options == nullptr ? 0 : options->seed;
  return CodecWish{
      .codec = "", .lossy = absl::StrCat(kNames[codec], ":seed=", seed), .is_lossy = true};
}

absl::Status CheckLossyCarries(const CollectiveCall& call) {
  if (call.dtype != spcclFloat32 && call.dtype != spcclFloat64) {
    return absl::FailedPreconditionError(
        absl::StrCat("the communicator's codec is lossy (spcclCommSetCodec), which is for float32 "
                     "and float64; datatype is ",
                     call.dtype, ": set an exact codec for this operation"));
  }
  const bool reduces = call.op == OpCode::kReduceScatter || call.op == OpCode::kAllReduce;
  if (reduces && call.redop == spcclProd) {
    return absl::FailedPreconditionError(
        "the communicator's codec is lossy (spcclCommSetCodec), and no bound of its factors bounds "
        "a product: set an exact codec for this operation");
  }
  return absl::OkStatus();
}

}  // namespace spccl::client
