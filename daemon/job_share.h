// What a job gets of what all jobs of a node share, and what it may take: docs/operations.md,
// "Share a node". Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace spccl::daemon {

struct JobShare {
  uint64_t weight = 1;  // against the other jobs': of channel threads' time, and of links' bytes
  // Quotas; 0: none.
  uint64_t max_buffer_bytes = 0;  // registered, of all its processes
  uint64_t max_communicators = 0;
  uint64_t max_operations = 0;  // called by some rank here and not ended
  uint64_t max_channels = 0;    // channel threads at once

  bool operator==(const JobShare&) const = default;
};

// What is set for a job by itself.
struct JobShareOverrides {
  std::optional<uint64_t> weight = {}, max_buffer_bytes = {}, max_communicators = {},
                          max_operations = {}, max_channels = {};

  bool operator==(const JobShareOverrides&) const = default;
};

struct JobShareField {
  std::string_view name;  // in the configuration ("jobs.weight"), the settings file and messages
  std::string_view help;
  uint64_t JobShare::*value;
  std::optional<uint64_t> JobShareOverrides::*override_;
  uint64_t least, most;
};

inline constexpr uint64_t kMostJobWeight = 1000;
inline constexpr uint64_t kMostQuota = std::numeric_limits<int64_t>::max();

inline constexpr JobShareField kJobShareFields[] = {
    {"weight", "Share of a job against the others', of channel threads' time and links' bytes",
     &JobShare::weight, &JobShareOverrides::weight, 1, kMostJobWeight},
    {"max_buffer_bytes", "Most registered bytes of a job; 0: no quota", &JobShare::max_buffer_bytes,
     &JobShareOverrides::max_buffer_bytes, 0, kMostQuota},
    {"max_communicators", "Most communicators of a job; 0: no quota", &JobShare::max_communicators,
     &JobShareOverrides::max_communicators, 0, 1'000'000},
    {"max_operations", "Most operations of a job that are called and not ended; 0: no quota",
     &JobShare::max_operations, &JobShareOverrides::max_operations, 0, 1'000'000},
    {"max_channels", "Most channel threads that work for a job at once; 0: all",
     &JobShare::max_channels, &JobShareOverrides::max_channels, 0, 64},
};

inline JobShare Apply(JobShare share, const JobShareOverrides& overrides) {
  for (const JobShareField& field : kJobShareFields) {
    share.*field.value = (overrides.*field.override_).value_or(share.*field.value);
  }
  return share;
}

inline JobShareOverrides Merged(JobShareOverrides base, const JobShareOverrides& overrides) {
  for (const JobShareField& field : kJobShareFields) {
    const std::optional<uint64_t>& value = overrides.*field.override_;
    if (value.has_value()) base.*field.override_ = value;
  }
  return base;
}

// "weight=2 max_operations=8"
std::string Describe(const JobShareOverrides& overrides);
// What is out of its range, and what was expected; empty: nothing.
std::string WrongIn(const JobShareOverrides& overrides);

}  // namespace spccl::daemon
