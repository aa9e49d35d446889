// Element types, with NCCL's codes. The code is what travels in frames and slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spccl {

enum class DType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
inline constexpr int kDTypeCount = 10;

constexpr bool IsValidDType(uint32_t code) {
  return code < kDTypeCount;
}

constexpr size_t SizeOf(DType dtype) {
  constexpr uint8_t kSizes[kDTypeCount] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<int>(dtype)];
}

constexpr bool IsFloat(DType dtype) {
  return dtype >= DType::kFloat16;
}

// The bits of an element that tell zero from nonzero: all but the sign of a float. Testing bits
// rather than comparing floats keeps subnormals whatever the caller's denormals-are-zero mode.
constexpr uint64_t MagnitudeMask(DType dtype) {
  const uint64_t ones = ~uint64_t{0} >> (64 - 8 * SizeOf(dtype));
  return IsFloat(dtype) ? ones >> 1 : ones;
}

constexpr std::string_view NameOf(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"int8",    "uint8",   "int32",   "uint32",
                                                    "int64",   "uint64",  "float16", "float32",
                                                    "float64", "bfloat16"};
  return kNames[static_cast<int>(dtype)];
}

constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  for (int code = 0; code < kDTypeCount; ++code) {
    if (NameOf(static_cast<DType>(code)) == name) return static_cast<DType>(code);
  }
  return std::nullopt;
}

}  // namespace spccl
