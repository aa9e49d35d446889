// A caller's or an operator's wish for lossy sends. Pure data, with its one text form: what session
// requests, control messages and the settings' file carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/mix.h"
#include "collective/op.h"
#include "collective/phase.h"
#include "kernels/format.h"
#include "kernels/lossy.h"

namespace spccl::policy {

// Off unless somebody asks: there is no default that is on.
struct Lossy {
  Format format = Format::kDense;  // a lossy one; kDense: all sends are exact
  ErrorBound bound = {};           // errorbound
  uint64_t seed = 0;               // QSGD
  bool on() const { return format != Format::kDense; }
  bool operator==(const Lossy&) const = default;
};

// "off", "errorbound:absolute=0.001", "errorbound:relative=0.0001", "qsgd4:seed=7".
std::string TextOf(const Lossy& lossy);

// The reverse; a seed may be left out. What is wrong otherwise is put into *complaint: "the bound
// is nan, expected a positive, finite number".
std::optional<Lossy> LossyFromText(std::string_view text, std::string* complaint);

// The seed of one operation's draws: of another operation, or with another seed, they are others.
// `seed` is hashed first: consecutive ones must not give the same draws some operations later.
constexpr uint64_t SeedOf(uint64_t seed, uint64_t operation) {
  return Mix(Mix(0, seed), operation);
}

// Why a lossy format cannot be used for the operation, or "": its dtype is not float32 or float64,
// or its reduction's result is not within a bound of its inputs' (a product).
std::string_view WhyExact(const OpDesc& op);

// Whether sends of the phase are lossy. errorbound: all. QSGD: final values of an all-reduce, which
// are sent once (SparCML's dense phase): what is random once stays without bias, and reproducible.
bool AppliesTo(const Lossy& lossy, const OpDesc& op, Phase phase);

}  // namespace spccl::policy
