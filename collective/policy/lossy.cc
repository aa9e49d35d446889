#include "collective/policy/lossy.h"

#include <charconv>

namespace spccl::policy {
namespace {

constexpr std::string_view kAbsolute = "absolute=";
constexpr std::string_view kRelative = "relative=";
constexpr std::string_view kSeed = "seed=";

template <class T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string Shown(double value) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

std::optional<Lossy> Complain(std::string* complaint, std::string text) {
  *complaint = std::move(text);
  return std::nullopt;
}

std::optional<Lossy> WithBound(std::string_view text, std::string* complaint) {
  const bool relative = text.starts_with(kRelative);
  if (!relative && !text.starts_with(kAbsolute)) {
    return Complain(complaint, "errorbound needs a bound: absolute=X or relative=X");
  }
  const std::string_view number = text.substr(kAbsolute.size());
  const std::optional<double> value = Number<double>(number);
  const ErrorBound bound{value.value_or(0), relative};
  if (!value.has_value() || !IsValid(bound)) {
    return Complain(complaint, "the bound is " + std::string(number) +
                                   ", expected a positive, finite number" +
                                   (relative ? " below 1" : ""));
  }
  return Lossy{.format = Format::kErrorBound, .bound = bound};
}

std::optional<Lossy> WithSeed(Format format, std::string_view text, std::string* complaint) {
  if (text.empty()) return Lossy{.format = format};
  if (!text.starts_with(kSeed)) {
    return Complain(complaint, "found " + std::string(text) + ", expected seed=N");
  }
  const std::optional<uint64_t> seed = Number<uint64_t>(text.substr(kSeed.size()));
  if (!seed.has_value()) {
    return Complain(complaint, "the seed is " + std::string(text.substr(kSeed.size())) +
                                   ", expected a whole number below 2^64");
  }
  return Lossy{.format = format, .seed = *seed};
}

}  // namespace

static_assert(kAbsolute.size() == kRelative.size());

std::string TextOf(const Lossy& lossy) {
  if (!lossy.on()) return "off";
  const std::string name(NameOf(lossy.format));
  if (lossy.format != Format::kErrorBound) return name + ":seed=" + std::to_string(lossy.seed);
  return name + ":" + std::string(lossy.bound.relative ? kRelative : kAbsolute) +
         Shown(lossy.bound.value);
}

std::optional<Lossy> LossyFromText(std::string_view text, std::string* complaint) {
  if (text == "off") return Lossy{};
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const std::optional<Format> format = FormatFromName(name);
  if (!format.has_value() || !IsLossy(*format)) {
    return Complain(complaint, "found " + std::string(name) +
                                   ", expected off, errorbound, qsgd2, qsgd4 or qsgd8");
  }
  return *format == Format::kErrorBound ? WithBound(rest, complaint)
                                        : WithSeed(*format, rest, complaint);
}

std::string_view WhyExact(const OpDesc& op) {
  if (!LossyCarries(op.dtype)) return "lossy sends are of float32 and float64";
  if (Reduces(op.kind) && op.redop == RedOp::kProd) {
    return "no bound of the factors bounds a product";
  }
  return "";
}

bool AppliesTo(const Lossy& lossy, const OpDesc& op, Phase phase) {
  if (!lossy.on() || !WhyExact(op).empty()) return false;
  if (lossy.format == Format::kErrorBound) return true;
  return op.kind == OpKind::kAllReduce && phase == Phase::kAllGather;
}

}  // namespace spccl::policy
