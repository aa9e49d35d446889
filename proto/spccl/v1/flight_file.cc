#include "proto/spccl/v1/flight_file.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace spccl::flight {
namespace {

constexpr std::string_view kMagic = "SPCCLFLT";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 16;

void AppendWord(uint32_t word, std::string* text) {
  for (int shift = 0; shift < 32; shift += 8) text->push_back(static_cast<char>(word >> shift));
}

uint32_t WordAt(std::string_view text, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  }
  return word;
}

}  // namespace

bool IsFileName(std::string_view name) {
  return name.starts_with(kFilePrefix) && name.ends_with(kFileSuffix);
}

absl::Status CheckSize(const v1::FlightRecord& record) {
  const size_t bytes = record.ByteSizeLong();
  if (bytes <= kMostRecordBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a flight record of ", bytes,
                                                   " bytes, expected at most ", kMostRecordBytes,
                                                   ": lower flight.operations"));
}

std::string FormatFile(const v1::FlightRecord& record) {
  const std::string body = record.SerializeAsString();
  std::string content(kMagic);
  AppendWord(kVersion, &content);
  AppendWord(Crc32c(body.data(), body.size()), &content);
  return content + body;
}

absl::StatusOr<v1::FlightRecord> ParseFile(std::string_view content) {
  if (content.size() < kHeaderBytes || content.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("not a flight record");
  }
  const uint32_t version = WordAt(content, kMagic.size());
  if (version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("a flight record of version ", version, ", expected ", kVersion));
  }
  const std::string_view body = content.substr(kHeaderBytes);
  v1::FlightRecord record;
  if (Crc32c(body.data(), body.size()) != WordAt(content, kMagic.size() + 4) ||
      !record.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::DataLossError("a damaged flight record");
  }
  return record;
}

}  // namespace spccl::flight
