// Waiting on a 32-bit word that several processes map.
//
// The word lives in memory that another process may write: what it holds is a hint to look again,
// never a bound or an index.
#pragma once

#include <atomic>
#include <cstdint>

namespace spccl {

// Blocks while *word == expected, until woken or until timeout_ns has passed (negative: no limit).
// May return early for no reason. Returns false only when the time ran out.
bool FutexWait(std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns);

// Wakes every waiter of the word, in any process.
void FutexWakeAll(std::atomic<uint32_t>* word);

}  // namespace spccl
