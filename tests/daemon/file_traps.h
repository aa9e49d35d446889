// What stands in front of the C library's rename(2) and fsync(2), for tests of what comes of a disk
// that fails, or of a death in between.
#pragma once

#include <atomic>

namespace spccl::testing {

// What the next rename(2) or fsync(2) of this process does instead of its work.
// kFailAfter: it works, and all after it fail. kFailFolder: of folders only.
// kHold: it counts in g_held, and waits until the trap is another.
enum class Trap { kNone, kDie, kFail, kFailAfter, kFailFolder, kHold };
extern std::atomic<Trap> g_rename_trap, g_fsync_trap;
extern std::atomic<int> g_held;
inline constexpr int kDiedInTrap = 42;

}  // namespace spccl::testing
