// What was measured to be fastest: a table that all nodes of a communicator look up alike. Pure.
//
// A table is data, without the classifier that it was made by (bench/tune): nodes that have the
// same table choose the same, whatever their compilers and libraries. Its rows are sizes and its
// columns densities, in classes that are found by comparisons and products with powers of two
// alone.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/op.h"
#include "collective/policy/settings.h"

namespace spccl::policy {

// How an operation runs.
struct Pick {
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: nothing is known
  uint64_t slice_bytes = 0;                // 0: as policy/slice.h has it
  bool operator==(const Pick&) const = default;
};

inline constexpr uint64_t kLeastSliceBytes = uint64_t{4} << 10;
inline constexpr uint64_t kMostSliceBytes = uint64_t{1} << 30;

// "split", or with a slice size "split/262144".
std::string NameOf(const Pick& pick);
// Nothing unless the algorithm is one between nodes, and the slice size possible.
std::optional<Pick> PickFromName(std::string_view name);

// 2 log2(bytes), rounded; 0 for no bytes.
uint32_t SizeClass(uint64_t bytes);
// A size in the middle of the class, whose class is that again from 2 on.
uint64_t BytesOfSizeClass(uint32_t size_class);
inline constexpr uint32_t kSizeClasses = 128;

// -log2(density), rounded; kDensityClasses - 1 at most.
uint32_t DensityClass(double density);
inline constexpr uint32_t kDensityClasses = 16;

// Of an operation, as sizes are counted here: of an all-gather the whole result, of a
// reduce-scatter and a scatter the whole input, else the buffer.
uint64_t TotalBytes(const OpDesc& op, uint32_t ranks);

// Of one kind of operation.
struct PlanGrid {
  uint32_t first_size = 0;  // the size class of the first row; a row for each class from there on
  uint32_t densities = 0;  // columns, from density class 0 on; the last is for all that are sparser
  std::vector<Pick> picks;  // row by row
  bool operator==(const PlanGrid&) const = default;
};

struct PlanTable {
  std::array<PlanGrid, kOpKindCount> grids;  // by OpKind
  bool operator==(const PlanTable&) const = default;

  // kAuto where the table knows nothing: smaller or larger than its rows.
  Pick Find(OpKind kind, uint64_t bytes, double density) const;
};

// Tables for communicators of several shapes: what a model's file says (daemon/plan_models.h).
struct PlanModel {
  struct Shape {
    uint32_t nodes, most_ranks;  // most_ranks: on one node
    auto operator<=>(const Shape&) const = default;
  };
  std::map<Shape, PlanTable> tables;
  uint32_t channels = 0;  // threads of a daemon that were found best; 0: not known
};

}  // namespace spccl::policy
