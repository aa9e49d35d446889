// The flight records that are kept on disk: in a folder that only the daemon's user enters, so many
// files and bytes at most, the oldest removed first.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::daemon {

struct FlightFilesOptions {
  std::string folder;  // made where it is missing
  uint32_t files = 32;
  uint64_t bytes = uint64_t{64} << 20;
};

// One writer; readers at any time: a file is there whole or not at all.
class FlightFiles {
 public:
  // Removes what is too much, and what a crash has left half written. A folder that others may
  // enter is closed to them (0700). FailedPrecondition: it is another user's, a link or no folder.
  static absl::StatusOr<FlightFiles> Open(FlightFilesOptions options);

  // Keeps the record, of a communicator that failed at unix_ns; returns the file's path.
  // ResourceExhausted: it is larger than all files may be, or than any record.
  absl::StatusOr<std::string> Keep(const v1::FlightRecord& record);

  // The newest record of the communicator of the daemon with this boot id. NotFound: none is kept.
  absl::StatusOr<v1::FlightRecord> Find(const std::string& boot_id, uint64_t comm_id) const;

 private:
  explicit FlightFiles(FlightFilesOptions options) : options_(std::move(options)) {}
  // Removes the oldest until `more_bytes` in one more file fit.
  absl::Status MakeRoom(uint64_t more_bytes) const;

  FlightFilesOptions options_;
};

}  // namespace spccl::daemon
