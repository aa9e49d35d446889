#include "kernels/host/dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <string_view>

#include "kernels/host/codec.h"

namespace spccl::host {
namespace {

// Available targets, best first.
struct Targets {
  std::array<const KernelTable*, 4> tables{};
  std::array<std::string_view, 4> names{};
  size_t count = 0;

  void Add(const KernelTable& table) {
    tables[count] = &table;
    names[count] = table.name;
    ++count;
  }
};

Targets Detect() {
  Targets targets;
  targets.Add(kPlainTable);
  return targets;
}

// For those that list and choose; the codecs themselves never come here, as the first use of a
// static may wait for another thread.
const Targets& AllTargets() {
  static const Targets targets = Detect();
  return targets;
}

// Null until the first use; afterwards always a table of AllTargets(). Relaxed is enough: the
// tables are constant data, so whichever pointer a thread sees is as good as another.
std::atomic<const KernelTable*> current{nullptr};

}  // namespace

const KernelTable& CurrentTable() {
  const KernelTable* table = current.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = Detect().tables[0];
    current.store(table, std::memory_order_relaxed);
  }
  return *table;
}

}  // namespace spccl::host

namespace spccl {

std::span<const std::string_view> AvailableTargets() {
  const host::Targets& targets = host::AllTargets();
  return std::span(targets.names.data(), targets.count);
}

bool ForceTarget(std::string_view name) {
  const host::Targets& targets = host::AllTargets();
  if (name.empty()) name = targets.names[0];
  for (size_t i = 0; i < targets.count; ++i) {
    if (targets.names[i] != name) continue;
    host::current.store(targets.tables[i], std::memory_order_relaxed);
    return true;
  }
  return false;
}

std::string_view CurrentTarget() {
  return host::CurrentTable().name;
}

}  // namespace spccl
