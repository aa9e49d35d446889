// Between the core's structs and the messages of spccl.v1. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "daemon/control.h"
#include "daemon/settings_store.h"
#include "proto/spccl/v1/control.pb.h"

namespace spccl::daemon {

// Sixteen hexadecimal digits.
std::string BootIdText(uint64_t boot_id);

// InvalidArgument: no scope is set.
absl::StatusOr<Scope> FromProto(const v1::Scope& scope);
// InvalidArgument: an unknown algorithm or codec, or nothing is set. The store checks thresholds.
absl::StatusOr<policy::Overrides> FromProto(const v1::Settings& settings);
absl::StatusOr<SettingsPart> FromProto(v1::SettingsPart part);

// The store checks the values.
JobShareOverrides FromProto(const v1::JobShare& share);
v1::JobShare ToProto(const JobShare& share);

v1::Settings ToProto(const policy::Overrides& overrides);
v1::Settings ToProto(const policy::Settings& settings);
v1::Job ToProto(const JobInfo& job);
v1::Comm ToProto(const CommInfo& comm);
v1::Buffer ToProto(const BufferInfo& buffer);
v1::Event ToProto(const Event& event);
// Of what is in the snapshot.
v1::Status StatusOf(const Snapshot& snapshot, bool administrator);

}  // namespace spccl::daemon
