// A flight record as a file: what a daemon keeps of a communicator that has failed, and what
// `spcclctl trace --file` reads.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::flight {

// What such a file is named by; what is between begins with the time, so that names sort by age.
inline constexpr char kFilePrefix[] = "flight-", kFileSuffix[] = ".spcclflight";
bool IsFileName(std::string_view name);

// "SPCCLFLT", a version and a checksum of the rest, 4 bytes each in little-endian order; then the
// record.
std::string FormatFile(const v1::FlightRecord& record);

// DataLoss: it is not such a file, of a version that is not known, or damaged.
absl::StatusOr<v1::FlightRecord> ParseFile(std::string_view content);

}  // namespace spccl::flight
