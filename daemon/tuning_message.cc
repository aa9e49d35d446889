#include "daemon/tuning_message.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

using policy::Pick;
using policy::PlanGrid;
using policy::PlanTable;

// A cell is a byte, and 0 stands for none.
constexpr int kMostPicks = 255;

absl::Status Wrong(absl::string_view field) {
  return absl::InvalidArgumentError(absl::StrCat("a tuning with an impossible ", field));
}

void FillTable(const PlanTable& table, v1::Tuning* message) {
  std::vector<Pick> picks;
  for (size_t kind = 0; kind < table.grids.size(); ++kind) {
    const PlanGrid& from = table.grids[kind];
    if (from.picks.empty()) continue;
    v1::PlanGrid& grid = *message->add_grids();
    grid.set_operation(std::string(NameOf(static_cast<OpKind>(kind))));
    grid.set_first_size(from.first_size);
    grid.set_densities(from.densities);
    for (const Pick& pick : from.picks) {
      size_t at = std::find(picks.begin(), picks.end(), pick) - picks.begin();
      if (pick == Pick{} || at == kMostPicks) {
        grid.mutable_cells()->push_back(0);
        continue;
      }
      if (at == picks.size()) picks.push_back(pick);
      grid.mutable_cells()->push_back(static_cast<char>(at + 1));
    }
  }
  for (const Pick& pick : picks) message->add_picks(policy::NameOf(pick));
}

// Of the message's picks those that the cells name.
absl::Status ReadCells(const v1::PlanGrid& from, OpKind kind, const std::vector<Pick>& picks,
                       PlanGrid* grid) {
  const bool fits = from.densities() > 0 && from.densities() <= policy::kDensityClasses &&
                    from.cells().size() % from.densities() == 0 &&
                    from.cells().size() <= policy::kSizeClasses * policy::kDensityClasses &&
                    from.first_size() < policy::kSizeClasses;
  if (!fits) return Wrong("table of plans");
  grid->first_size = from.first_size();
  grid->densities = from.densities();
  for (const char cell : from.cells()) {
    const size_t at = static_cast<unsigned char>(cell);
    if (at > picks.size()) return Wrong("cell of a table of plans");
    grid->picks.push_back(at == 0 ? Pick{} : picks[at - 1]);
    if (at != 0 && !policy::HasPlan(picks[at - 1].algorithm, kind)) return Wrong("plan in a table");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const PlanTable>> TableFrom(const v1::Tuning& message) {
  if (message.grids().empty()) return nullptr;
  std::vector<Pick> picks;
  for (const std::string& name : message.picks()) {
    const auto pick = policy::PickFromName(name);
    if (!pick) return Wrong("plan in a table");
    picks.push_back(*pick);
  }
  auto table = std::make_shared<PlanTable>();
  for (const v1::PlanGrid& grid : message.grids()) {
    int code = 0;
    while (code < kOpKindCount && NameOf(static_cast<OpKind>(code)) != grid.operation()) ++code;
    if (code == kOpKindCount || !table->grids[code].picks.empty()) return Wrong("table of plans");
    SPCCL_RETURN_IF_ERROR(ReadCells(grid, static_cast<OpKind>(code), picks, &table->grids[code]));
  }
  return table;
}

}  // namespace

v1::Tuning ToMessage(const policy::Tuning& tuning) {
  v1::Tuning message;
  message.set_algorithm(std::string(policy::NameOf(tuning.algorithm)));
  message.set_codec(std::string(policy::NameOf(tuning.codec)));
  message.set_slice_bytes(tuning.slice_bytes);
  for (const double cost : policy::ToArray(tuning.costs)) message.add_costs(cost);
  for (const double density : tuning.densities) message.add_densities(density);
  if (tuning.table != nullptr) FillTable(*tuning.table, &message);
  return message;
}

absl::StatusOr<policy::Tuning> FromMessage(const v1::Tuning& message) {
  const auto algorithm = policy::AlgorithmFromName(message.algorithm());
  if (!algorithm) return Wrong("algorithm");
  const auto codec = policy::CodecFromName(message.codec());
  if (!codec) return Wrong("codec");
  // The runtime takes no larger slices; a peer need not be believed.
  if (message.slice_bytes() > policy::kMostSliceBytes) return Wrong("slice size");
  const auto span = [](const auto& values) {
    return std::span<const double>(values.data(), static_cast<size_t>(values.size()));
  };
  const auto costs = policy::CostsFrom(span(message.costs()));
  if (!costs) return Wrong("constant of the cost model");
  const auto densities = policy::DensitiesFrom(span(message.densities()));
  if (!densities) return Wrong("density");
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<const PlanTable> table, TableFrom(message));
  return policy::Tuning{.algorithm = *algorithm,
                        .codec = *codec,
                        .slice_bytes = message.slice_bytes(),
                        .costs = *costs,
                        .densities = *densities,
                        .table = std::move(table)};
}

}  // namespace spccl::daemon
