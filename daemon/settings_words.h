// What one scope says, as values and as text of the settings file. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/toml.h"
#include "collective/policy/settings.h"
#include "daemon/job_share.h"

namespace spccl::daemon {

// InvalidArgument: a value is out of its range.
absl::Status CheckValues(const policy::Overrides& overrides);

policy::Overrides Merged(policy::Overrides base, const policy::Overrides& overrides);

// Whether something is set in both.
bool Overlap(const policy::Overrides& a, const policy::Overrides& b);

// What is set, as the configuration names it: "algorithm=ring thresholds.pici.intra=0.5".
std::string Describe(const policy::Overrides& overrides);

// What is set, as lines of the file.
void AppendOverrides(const policy::Overrides& overrides, std::string* text);
void AppendShare(const JobShareOverrides& share, std::string* text);

// Sets what a line of the file says; the message where it says nothing that there is. `share`: of
// jobs only, else null.
std::optional<std::string> SetWord(const std::string& name, const TomlValue& value,
                                   policy::Overrides* overrides, JobShareOverrides* share);

}  // namespace spccl::daemon
