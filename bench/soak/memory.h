// Buffers of a process of the soak, of every kind that a program may use, with guards around what
// is handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "bench/soak/first_failure.h"
#include "bench/soak/script.h"

namespace spccl::bench {

class SoakMemory {
 public:
  enum class Kind : uint8_t { kShared, kRegistered, kOrdinary };

  struct Block {
    Kind kind = Kind::kOrdinary;
    std::byte* base = nullptr;
    size_t bytes = 0;
    void* handle = nullptr;  // of a registered one
  };
  // What an operation works on: `bytes` at `data`, within a block that stays the memory's own.
  struct Region {
    std::list<Block>::iterator block;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  SoakMemory(uint64_t seed, FirstFailure* failure) : dice_(seed), failure_(failure) {}
  // Calls nothing of the library's: what is left goes with the process.
  ~SoakMemory() = default;
  SoakMemory(const SoakMemory&) = delete;
  SoakMemory& operator=(const SoakMemory&) = delete;

  // Registered blocks are registered with this communicator; set it before Take(), and to null once
  // it is gone, and the registrations with it.
  void set_registrar(spcclComm_t registrar) { registrar_ = registrar; }

  // So many bytes, aligned to `alignment` (a power of two up to 8) and mostly to no more than that,
  // filled with what no result has. False: it failed.
  bool Take(size_t bytes, size_t alignment, Region* region);
  // Whether nothing was written beside the region.
  static bool Guarded(const Region& region);
  // Its block may be used again, or goes.
  bool Give(const Region& region);
  // All blocks go, also those that were not given back.
  bool Clear();

 private:
  bool Make(size_t bytes);  // the first of taken_
  bool Free(Block& block);

  Dice dice_;
  FirstFailure* const failure_;  // borrowed
  spcclComm_t registrar_ = nullptr;
  std::list<Block> taken_, kept_;
};

}  // namespace spccl::bench
