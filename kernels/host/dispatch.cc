#include "kernels/host/dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

#if defined(__x86_64__)
bool HasAvx2() {
  // F16C has no name of its own for older compilers; every processor with AVX2 has it, and the
  // check of its bit costs nothing.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("popcnt");
}

#ifndef SPCCL_NO_AVX512
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif
#endif

// A page: the processor's own prefetching stops at each page's end, and works on every page anew.
// AMD's goes on, and loses more to what is asked for far ahead (docs/kernels.md has figures).
uintptr_t PrefetchAheadHere() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) return 256;
#endif
  return 4096;
}

Targets Detect() {
  __atomic_store_n(&prefetch_ahead, PrefetchAheadHere(), __ATOMIC_RELAXED);
  Targets targets;
#if defined(__x86_64__)
  // Both look at what the operating system keeps of the registers, too.
#ifndef SPCCL_NO_AVX512
  if (HasAvx512()) {
    if (__builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vbmi")) {
      targets.Add(kAvx512Vbmi2Table);
    }
    targets.Add(kAvx512Table);
  }
#endif
  if (HasAvx2()) targets.Add(kAvx2Table);
#elif defined(__aarch64__)
  targets.Add(kNeonTable);  // part of every AArch64
#endif
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

uintptr_t prefetch_ahead = 0;

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
