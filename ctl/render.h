// Messages as JSON, and numbers and tables for people.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "proto/spccl/v1/control.pb.h"

namespace spccl::ctl {

// Every field by its name in the .proto, also where it has its default; what may be unset and is,
// is null. 64-bit integers are numbers; an enumeration's value is its name without the
// enumeration's own, in small letters ("pici-column"), and "unspecified" is null.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

using spccl::Printable;  // text that others chose

std::string HumanBytes(double bytes);               // "1.5 GiB"
std::string HumanBitRate(double bytes_per_second);  // "941 Mbit/s", "-" for 0
std::string HumanSeconds(double seconds);           // "350 ms", "2d 3h"
std::string TimeText(int64_t unix_nanos);           // "2026-01-01T10:00:00.000Z"
std::string Percent(double part, double whole);     // "12.5%", "-" where the whole is 0
std::string Sparsity(uint64_t nnz, uint64_t of);  // as a threshold is: "0.9900"; "-" where unknown
std::string NameOf(v1::Algorithm algorithm);      // "-" where unspecified
std::string CodecOf(const v1::Settings& settings);  // with what it is lossy by
std::string NameOf(v1::Codec codec);

// Rows under aligned columns. Numbers ("#" before the heading) stand to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  void Add(std::vector<std::string> row);
  void Print(std::ostream* out) const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spccl::ctl
