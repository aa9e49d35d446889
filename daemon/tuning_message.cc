#include "daemon/tuning_message.h"

#include <span>
#include <string>

#include "absl/strings/str_cat.h"

namespace spccl::daemon {
namespace {

// The runtime takes no larger slices; a peer need not be believed.
constexpr uint64_t kLargestSliceBytes = uint64_t{1} << 30;

absl::Status Wrong(absl::string_view field) {
  return absl::InvalidArgumentError(absl::StrCat("a tuning with an impossible ", field));
}

}  // namespace

v1::Tuning ToMessage(const policy::Tuning& tuning) {
  v1::Tuning message;
  message.set_algorithm(std::string(policy::NameOf(tuning.algorithm)));
  message.set_codec(std::string(policy::NameOf(tuning.codec)));
  message.set_slice_bytes(tuning.slice_bytes);
  for (const double cost : policy::ToArray(tuning.costs)) message.add_costs(cost);
  for (const double density : tuning.densities) message.add_densities(density);
  return message;
}

absl::StatusOr<policy::Tuning> FromMessage(const v1::Tuning& message) {
  const auto algorithm = policy::AlgorithmFromName(message.algorithm());
  if (!algorithm) return Wrong("algorithm");
  const auto codec = policy::CodecFromName(message.codec());
  if (!codec) return Wrong("codec");
  if (message.slice_bytes() > kLargestSliceBytes) return Wrong("slice size");
  const auto span = [](const auto& values) {
    return std::span<const double>(values.data(), static_cast<size_t>(values.size()));
  };
  const auto costs = policy::CostsFrom(span(message.costs()));
  if (!costs) return Wrong("constant of the cost model");
  const auto densities = policy::DensitiesFrom(span(message.densities()));
  if (!densities) return Wrong("density");
  return policy::Tuning{.algorithm = *algorithm,
                        .codec = *codec,
                        .slice_bytes = message.slice_bytes(),
                        .costs = *costs,
                        .densities = *densities};
}

}  // namespace spccl::daemon
