// What a folder of samples was measured with, beside them: so that the same command, or one that
// measures more, goes on with the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spccl::tune {

struct Record {
  std::optional<std::vector<std::string>> arguments{};  // of spccl-perf: over which daemons
  std::vector<uint32_t> channels_of{};  // the numbers of channels that it was chosen of
  std::optional<uint32_t> channels{};   // the number that plans are measured with, if it was chosen
};

// What `path` says; nothing if it is not there. InvalidArgument: it is no such file.
absl::StatusOr<Record> ReadRecord(const std::string& path);
// In one step, so that whatever ends the program leaves the old or the new.
absl::Status WriteRecord(const std::string& path, const Record& record);

}  // namespace spccl::tune
