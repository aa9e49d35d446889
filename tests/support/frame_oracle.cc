#include "tests/support/frame_oracle.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace spccl::oracle {
namespace {

constexpr uint64_t kTile = 4096;

uint32_t Crc(const uint8_t* data, size_t size) {
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < size; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

uint64_t GetLittle(const uint8_t* from, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(from[i]) << (8 * i);
  return value;
}

void PutLittle(Bytes& to, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) to.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

void Pad(Bytes& to) {
  while (to.size() % 16 != 0) to.push_back(0);
}

// The element that bit `b` of word `w` of tile `t` stands for.
uint64_t ElementOf(Format format, uint64_t t, uint64_t w, uint64_t b) {
  return t * kTile + (format == Format::kPici ? 64 * w + b : 64 * b + w);
}

// A float as a 16-bit type with `fraction_bits` of fraction and a smallest exponent of
// `lowest_exponent`: rounded in double, where every step is exact.
uint16_t Narrow(float value, int fraction_bits, int lowest_exponent, int highest_exponent) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity =
      static_cast<uint16_t>((highest_exponent - lowest_exponent + 2) << fraction_bits);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | (infinity >> 1) | 1);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(magnitude), lowest_exponent);
  const double units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  // units * 2^(exponent - fraction_bits); a carry runs into the exponent field by itself.
  const double encoded =
      units + std::ldexp(static_cast<double>(exponent - lowest_exponent), fraction_bits);
  return static_cast<uint16_t>(sign |
                               (encoded >= infinity ? infinity : static_cast<uint16_t>(encoded)));
}

float Widen(uint16_t bits, int fraction_bits, int lowest_exponent, int highest_exponent) {
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int field = (bits & 0x7FFF) >> fraction_bits;
  float magnitude;
  if (field == highest_exponent - lowest_exponent + 2) {
    magnitude = fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                              : std::numeric_limits<float>::infinity();
  } else if (field == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), lowest_exponent - fraction_bits);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + (1 << fraction_bits)),
                           field - 1 + lowest_exponent - fraction_bits);
  }
  return (bits & 0x8000) ? -magnitude : magnitude;
}

template <class T>
T Get(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// a op b, in the accumulator's type; integers wrap.
template <class A>
A Combine(RedOp op, A a, A b) {
  switch (op) {
    case RedOp::kSum:
    case RedOp::kAvg:
      if constexpr (std::is_floating_point_v<A>) {
        return a + b;
      } else {
        return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      }
    case RedOp::kProd:
      if constexpr (std::is_floating_point_v<A>) {
        return a * b;
      } else {
        return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      }
    case RedOp::kMax:
      if (a != a) return b;
      return b > a ? b : a;
    case RedOp::kMin:
      if (a != a) return b;
      return b < a ? b : a;
  }
  return a;
}

// Reads element i of `dtype` as the accumulator type A, and writes one back.
template <class A>
A Read(DType dtype, const uint8_t* base, uint64_t i) {
  const uint8_t* at = base + i * SizeOf(dtype);
  switch (dtype) {
    case DType::kInt8:
      return static_cast<A>(Get<int8_t>(at));
    case DType::kUint8:
      return static_cast<A>(Get<uint8_t>(at));
    case DType::kInt32:
      return static_cast<A>(Get<int32_t>(at));
    case DType::kUint32:
      return static_cast<A>(Get<uint32_t>(at));
    case DType::kInt64:
      return static_cast<A>(Get<int64_t>(at));
    case DType::kUint64:
      return static_cast<A>(Get<uint64_t>(at));
    case DType::kFloat16:
      return static_cast<A>(FromFloat16(Get<uint16_t>(at)));
    case DType::kBfloat16:
      return static_cast<A>(FromBfloat16(Get<uint16_t>(at)));
    case DType::kFloat32:
      return static_cast<A>(Get<float>(at));
    case DType::kFloat64:
      return static_cast<A>(Get<double>(at));
  }
  return A{};
}

template <class A>
void Write(DType dtype, uint8_t* base, uint64_t i, A value) {
  uint8_t* at = base + i * SizeOf(dtype);
  if (dtype == DType::kFloat16 || dtype == DType::kBfloat16) {
    const uint16_t bits = dtype == DType::kFloat16 ? ToFloat16(static_cast<float>(value))
                                                   : ToBfloat16(static_cast<float>(value));
    std::memcpy(at, &bits, sizeof(bits));
  } else if constexpr (std::is_floating_point_v<A>) {
    std::memcpy(at, &value, sizeof(value));
  } else {
    const uint64_t bits = static_cast<uint64_t>(value);  // the low bytes: little-endian
    std::memcpy(at, &bits, SizeOf(dtype));
  }
}

template <class A>
Bytes ReduceAs(DType dtype, RedOp op, const std::vector<const uint8_t*>& inputs,
               uint64_t elements) {
  Bytes result(elements * SizeOf(dtype));
  for (uint64_t i = 0; i < elements; ++i) {
    A value = Read<A>(dtype, inputs[0], i);
    for (size_t r = 1; r < inputs.size(); ++r) {
      value = Combine<A>(op, value, Read<A>(dtype, inputs[r], i));
    }
    if (op == RedOp::kAvg) value = static_cast<A>(value / static_cast<A>(inputs.size()));
    Write<A>(dtype, result.data(), i, value);
  }
  return result;
}

template <class F>
auto WithAccumulator(DType accumulator, F function) {
  switch (accumulator) {
    case DType::kInt8:
      return function(int8_t{});
    case DType::kUint8:
      return function(uint8_t{});
    case DType::kInt32:
      return function(int32_t{});
    case DType::kUint32:
      return function(uint32_t{});
    case DType::kInt64:
      return function(int64_t{});
    case DType::kUint64:
      return function(uint64_t{});
    case DType::kFloat64:
      return function(double{});
    default:
      return function(float{});
  }
}

// gap: how many low bits of a position are kept apart.
int GapShift(uint64_t elements, uint64_t nnz) {
  int shift = 28;
  while (shift > 0 && 2 * nnz * (uint64_t{1} << shift) > 3 * elements) --shift;
  return shift;
}

Bytes FromBits(const std::vector<bool>& bits) {
  Bytes bytes((bits.size() + 7) / 8);
  for (size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | 1 << (i % 8));
  }
  return bytes;
}

bool BitOf(const uint8_t* bytes, uint64_t at) {
  return (bytes[at / 8] >> (at % 8) & 1) != 0;
}

std::vector<uint64_t> GapPositions(const uint8_t* frame, uint64_t bitmap_offset, uint64_t elements,
                                   uint64_t nnz) {
  const int shift = GapShift(elements, nnz);
  const uint64_t buckets = (elements + (uint64_t{1} << shift) - 1) >> shift;
  const uint64_t low = bitmap_offset + (nnz + buckets + 127) / 128 * 16;
  std::vector<uint64_t> positions;
  uint64_t bucket = 0;
  for (uint64_t at = 0; positions.size() < nnz; ++at) {
    if (!BitOf(frame + bitmap_offset, at)) {
      ++bucket;
      continue;
    }
    uint64_t position = bucket << shift;
    for (int bit = 0; bit < shift; ++bit) {
      const uint64_t place = positions.size() * static_cast<uint64_t>(shift) + bit;
      position |= static_cast<uint64_t>(BitOf(frame + low, place)) << bit;
    }
    positions.push_back(position);
  }
  return positions;
}

struct Parsed {
  Format format;
  DType dtype;
  uint64_t elements;
  std::vector<uint64_t> stored;  // positions, in the order of the values
  const uint8_t* values;
};

Parsed Parse(const Bytes& frame) {
  Parsed parsed;
  parsed.format = static_cast<Format>(frame[5]);
  parsed.dtype = static_cast<DType>(frame[6]);
  parsed.elements = GetLittle(&frame[8], 8);
  const uint64_t nnz = GetLittle(&frame[16], 8);
  const uint64_t bitmap = GetLittle(&frame[32], 4);
  const uint64_t index = GetLittle(&frame[36], 4);
  parsed.values = frame.data() + GetLittle(&frame[40], 4);
  if (parsed.format == Format::kDense) {
    for (uint64_t i = 0; i < parsed.elements; ++i) parsed.stored.push_back(i);
  } else if (parsed.format == Format::kCoo) {
    for (uint64_t k = 0; k < nnz; ++k) {
      parsed.stored.push_back(GetLittle(frame.data() + index + 4 * k, 4));
    }
  } else if (parsed.format == Format::kGap) {
    parsed.stored = GapPositions(frame.data(), bitmap, parsed.elements, nnz);
  } else {
    for (uint64_t t = 0; t < (parsed.elements + kTile - 1) / kTile; ++t) {
      for (uint64_t w = 0; w < 64; ++w) {
        const uint64_t word = GetLittle(frame.data() + bitmap + 8 * (64 * t + w), 8);
        for (uint64_t b = 0; b < 64; ++b) {
          if ((word >> b) & 1) parsed.stored.push_back(ElementOf(parsed.format, t, w, b));
        }
      }
    }
  }
  return parsed;
}

// Appends index, bitmap and low bits of the positions in `stored`.
void EncodeGap(const std::vector<uint64_t>& stored, uint64_t elements, Bytes& body,
               uint64_t& bitmap_offset) {
  const int shift = GapShift(elements, stored.size());
  std::vector<bool> bitmap, low;
  size_t next = 0;
  for (uint64_t bucket = 0; bucket << shift < elements; ++bucket) {
    if (bucket % 64 == 0) PutLittle(body, next, 4);
    for (; next < stored.size() && stored[next] >> shift == bucket; ++next) {
      bitmap.push_back(true);
      for (int bit = 0; bit < shift; ++bit) low.push_back((stored[next] >> bit & 1) != 0);
    }
    bitmap.push_back(false);
  }
  Pad(body);
  bitmap_offset = 48 + body.size();
  const Bytes sections[] = {FromBits(bitmap), FromBits(low)};
  body.insert(body.end(), sections[0].begin(), sections[0].end());
  Pad(body);
  body.insert(body.end(), sections[1].begin(), sections[1].end());
  PutLittle(body, 0, 8);
}

// Appends bitmap and index; fills `stored` with the positions in the order of the values.
void EncodeTiles(Format format, DType dtype, const uint8_t* dense, uint64_t elements, Bytes& body,
                 std::vector<uint64_t>& stored, uint64_t& index_offset) {
  Bytes index;
  for (uint64_t t = 0; t < (elements + kTile - 1) / kTile; ++t) {
    PutLittle(index, stored.size(), 4);
    for (uint64_t w = 0; w < 64; ++w) {
      uint64_t word = 0;
      for (uint64_t b = 0; b < 64; ++b) {
        const uint64_t at = ElementOf(format, t, w, b);
        if (at < elements && IsNonzero(dtype, dense + at * SizeOf(dtype))) {
          word |= uint64_t{1} << b;
          stored.push_back(at);
        }
      }
      PutLittle(body, word, 8);
    }
  }
  index_offset = 48 + body.size();
  body.insert(body.end(), index.begin(), index.end());
}

}  // namespace

float FromFloat16(uint16_t bits) {
  return Widen(bits, 10, -14, 15);
}
float FromBfloat16(uint16_t bits) {
  return Widen(bits, 7, -126, 127);
}
uint16_t ToFloat16(float value) {
  return Narrow(value, 10, -14, 15);
}
uint16_t ToBfloat16(float value) {
  return Narrow(value, 7, -126, 127);
}

bool IsNonzero(DType dtype, const uint8_t* element) {
  if (IsFloat(dtype)) return !(Read<double>(dtype, element, 0) == 0.0);
  return GetLittle(element, SizeOf(dtype)) != 0;
}

Bytes EncodeFrame(Format format, DType dtype, const uint8_t* dense, uint64_t elements) {
  Bytes body;
  std::vector<uint64_t> stored;
  uint64_t bitmap_offset = 0;
  uint64_t index_offset = 0;
  if (format == Format::kDense) {
    for (uint64_t i = 0; i < elements; ++i) stored.push_back(i);
  } else if (format == Format::kCoo) {
    index_offset = 48;
    for (uint64_t i = 0; i < elements; ++i) {
      if (!IsNonzero(dtype, dense + i * SizeOf(dtype))) continue;
      stored.push_back(i);
      PutLittle(body, i, 4);
    }
  } else if (format == Format::kGap) {
    index_offset = 48;
    for (uint64_t i = 0; i < elements; ++i) {
      if (IsNonzero(dtype, dense + i * SizeOf(dtype))) stored.push_back(i);
    }
    EncodeGap(stored, elements, body, bitmap_offset);
  } else {
    bitmap_offset = 48;
    EncodeTiles(format, dtype, dense, elements, body, stored, index_offset);
  }
  Pad(body);
  const uint64_t values_offset = 48 + body.size();
  for (const uint64_t at : stored) {
    const uint8_t* element = dense + at * SizeOf(dtype);
    body.insert(body.end(), element, element + SizeOf(dtype));
  }
  Bytes frame;
  PutLittle(frame, 0x46435053, 4);
  PutLittle(frame, 1, 1);
  PutLittle(frame, static_cast<uint64_t>(format), 1);
  PutLittle(frame, static_cast<uint64_t>(dtype), 1);
  PutLittle(frame, 0, 1);
  PutLittle(frame, elements, 8);
  PutLittle(frame, stored.size(), 8);
  PutLittle(frame, body.size(), 8);
  PutLittle(frame, bitmap_offset, 4);
  PutLittle(frame, index_offset, 4);
  PutLittle(frame, values_offset, 4);
  PutLittle(frame, Crc(frame.data(), frame.size()), 4);
  frame.insert(frame.end(), body.begin(), body.end());
  return frame;
}

Bytes DecodeFrame(const Bytes& frame) {
  const Parsed parsed = Parse(frame);
  const size_t size = SizeOf(parsed.dtype);
  Bytes dense(parsed.elements * size);
  for (size_t k = 0; k < parsed.stored.size(); ++k) {
    for (size_t b = 0; b < size; ++b) {
      dense[parsed.stored[k] * size + b] = parsed.values[k * size + b];
    }
  }
  return dense;
}

std::vector<bool> StoredElements(const Bytes& frame) {
  const Parsed parsed = Parse(frame);
  std::vector<bool> stored(parsed.elements);
  for (const uint64_t at : parsed.stored) stored[at] = true;
  return stored;
}

void AddFrame(const Bytes& frame, DType accumulator_dtype, Bytes& accumulator) {
  const Parsed parsed = Parse(frame);
  const DType made_in =
      SizeOf(accumulator_dtype) == 2 ? DType::kFloat32 : accumulator_dtype;  // then rounded
  WithAccumulator(made_in, [&](auto zero) {
    using A = decltype(zero);
    for (size_t k = 0; k < parsed.stored.size(); ++k) {
      const A old = Read<A>(accumulator_dtype, accumulator.data(), parsed.stored[k]);
      const A value = Read<A>(parsed.dtype, parsed.values, k);
      Write<A>(accumulator_dtype, accumulator.data(), parsed.stored[k],
               Combine<A>(RedOp::kSum, old, value));
    }
  });
}

Bytes Reduce(DType dtype, RedOp op, const std::vector<const uint8_t*>& inputs, uint64_t elements) {
  return WithAccumulator(AccumulatorOf(dtype, op), [&](auto zero) {
    return ReduceAs<decltype(zero)>(dtype, op, inputs, elements);
  });
}

bool SameElement(DType dtype, const uint8_t* a, const uint8_t* b) {
  if (std::memcmp(a, b, SizeOf(dtype)) == 0) return true;
  if (!IsFloat(dtype)) return false;
  return std::isnan(Read<double>(dtype, a, 0)) && std::isnan(Read<double>(dtype, b, 0));
}

uint64_t FirstDifference(DType dtype, const uint8_t* a, const uint8_t* b, uint64_t elements) {
  for (uint64_t i = 0; i < elements; ++i) {
    if (!SameElement(dtype, a + i * SizeOf(dtype), b + i * SizeOf(dtype))) return i;
  }
  return elements;
}

}  // namespace spccl::oracle
