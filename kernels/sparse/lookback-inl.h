// Prefix sums over the tiles of one launch in a single pass: decoupled look-back, after Merrill and
// Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (NVIDIA, 2016).
//
// A tile publishes its own count, adds up what the tiles before it have published until it meets
// one that knows its whole prefix, and publishes its own prefix. Each word that is published holds
// all that it says, so no order between it and other memory is needed: every access is relaxed.
#pragma once

#include "kernels/sparse/tile-inl.h"

namespace spccl::sparse {

// Memory of a launch's look-back, zero before its first use and left alone between launches; one
// launch at a time uses it. Launches tell their words from those of launches before by an epoch,
// which is kept here too: the memory need not be cleared, and a launch may be replayed from a
// graph. Epochs wrap after 2^32 launches, before which the owner clears it.
struct LookBack {
  uint64_t* turns;   // low half: tiles given out in this launch; high half: the epoch
  uint64_t* states;  // a word a tile: epoch (32 bits), kind (2), value (30)
};

struct Turn {
  uint32_t tile;
  uint32_t epoch;
};

inline constexpr uint32_t kStateOwn = 1u << 30;     // the tile's count
inline constexpr uint32_t kStatePrefix = 2u << 30;  // and that of all tiles before
inline constexpr uint32_t kStateValue = kStateOwn - 1;

// By one lane: the next tile. Tiles are given out in order, so that all tiles before this one are
// being worked on by blocks that run: a wait for them ends, in whatever order blocks are started.
// `takers`: how many turns the launch takes in all, some perhaps past the last tile.
template <SimtLane L>
SPCCL_DEVICE Turn TakeTurn(L& lane, const LookBack& look_back, uint32_t takers) {
  const uint64_t turn = lane.FetchAdd(look_back.turns, 1);
  const uint32_t tile = static_cast<uint32_t>(turn);
  const uint32_t epoch = static_cast<uint32_t>(turn >> 32);
  // The last: nobody takes another before the next launch.
  if (tile + 1 == takers) {
    lane.StoreRelaxed(look_back.turns, static_cast<uint64_t>(epoch + 1) << 32);
  }
  return {tile, epoch};
}

template <SimtLane L>
SPCCL_DEVICE void Publish(L& lane, const LookBack& look_back, Turn turn, uint32_t kind,
                          uint32_t value) {
  lane.StoreRelaxed(look_back.states + turn.tile,
                    static_cast<uint64_t>(turn.epoch) << 32 | kind | value);
}

// By one lane, as soon as the tile's count is known.
template <SimtLane L>
SPCCL_DEVICE void PublishCount(L& lane, const LookBack& look_back, Turn turn, uint32_t count) {
  Publish(lane, look_back, turn, turn.tile == 0 ? kStatePrefix : kStateOwn, count);
}

// By a warp, after PublishCount(): the counts of all tiles before, to every lane; publishes the
// prefix.
template <SimtLane L>
SPCCL_DEVICE uint32_t PrefixBefore(L& lane, const LookBack& look_back, Turn turn, uint32_t count) {
  if (turn.tile == 0) return 0;
  uint32_t sum = 0;
  // Lane l reads the l-th tile back; before the first tile there is a prefix of zero.
  for (uint32_t last = turn.tile;; last -= kWarpLanes) {
    uint32_t state = kStatePrefix;
    if (lane.Lane() < last) {
      const uint64_t* const word = look_back.states + (last - 1 - lane.Lane());
      uint64_t seen = lane.LoadRelaxed(word);
      while (seen >> 32 != turn.epoch || (static_cast<uint32_t>(seen) & ~kStateValue) == 0) {
        lane.Pause();
        seen = lane.LoadRelaxed(word);
      }
      state = static_cast<uint32_t>(seen);
    }
    const uint32_t prefixes = lane.Ballot(kAllLanes, (state & kStatePrefix) != 0);
    const uint32_t nearest = prefixes == 0 ? kWarpLanes - 1 : LowestBit(prefixes);
    uint32_t part = lane.Lane() <= nearest ? state & kStateValue : 0;
    SPCCL_UNROLL
    for (uint32_t d = 1; d < kWarpLanes; d *= 2) part += lane.ShuffleXor(kAllLanes, part, d);
    sum += part;
    if (prefixes != 0) break;
  }
  if (lane.Lane() == 0) Publish(lane, look_back, turn, kStatePrefix, sum + count);
  return sum;
}

}  // namespace spccl::sparse
