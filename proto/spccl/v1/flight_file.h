// A flight record as a file: what a daemon keeps of a communicator that has failed, and what
// `spcclctl trace --file` reads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::flight {

// What such a file is named by; what is between begins with the time, so that names sort by age.
inline constexpr char kFilePrefix[] = "flight-", kFileSuffix[] = ".spcclflight";
bool IsFileName(std::string_view name);

// What a record may have at most. The largest that the configuration allows fits, with a thousand
// ranks on a node: 4,096 operations with the time of every rank, and what spans are sent.
inline constexpr size_t kMostRecordBytes = size_t{64} << 20;
// What a reader allows for: the record, and a file's header or an answer's other fields.
inline constexpr size_t kMostReadBytes = kMostRecordBytes + 1024;
// ResourceExhausted, with what to do: the record is larger.
absl::Status CheckSize(const v1::FlightRecord& record);

// "SPCCLFLT", a version and a checksum of the rest, 4 bytes each in little-endian order; then the
// record.
std::string FormatFile(const v1::FlightRecord& record);

// DataLoss: it is not such a file, of a version that is not known, or damaged.
absl::StatusOr<v1::FlightRecord> ParseFile(std::string_view content);

}  // namespace spccl::flight
