// How fast the two paths of large all-reduces within a node are, by what operations have taken, and
// so which share goes over the host. docs/adr/0022-multipath.md
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/dtype.h"

namespace spccl::runtime {

// Of one node. Thread-safe.
class PathRates {
 public:
  // Operations that are alike, and run one after the other: what they have taken, latencies and
  // all, says what the next one takes.
  struct Kind {
    uint64_t communicator = 0;
    std::vector<int> gpus = {};  // that its ranks use, ascending
    uint32_t ranks = 0;
    DType dtype = DType::kFloat32;
    uint64_t bytes = 0;  // of the buffer; kinds are of the power of two below

    std::strong_ordering operator<=>(const Kind&) const = default;
  };
  // How an operation went. No bytes, no time: the path was not used.
  struct Times {
    uint64_t device_bytes = 0, host_bytes = 0;
    int64_t device_ns = 0, host_ns = 0;
    bool dense = true;   // nothing was compressed on the GPUs' links
    bool warms = false;  // the host had less memory than the next one will have
  };

  static constexpr uint64_t kLeastBytes = uint64_t{32} << 20;
  // Where the host does not pay, or had no memory, one of so many tries it again; and where it
  // does, one of so many leaves it alone.
  static constexpr uint32_t kTryEvery = 256;
  // What may be compressed is taken for dense after so many that were not.
  static constexpr uint32_t kDenseInARow = 4;
  // A split has to have gained so much, by so many of its operations.
  static constexpr double kLeastGain = 1.05;
  static constexpr uint32_t kJudgedBy = 4;

  struct Options {
    // Of the bytes of every operation, whatever was measured; 0: none. Empty: by measurement.
    std::optional<double> share;
    uint64_t least_bytes = kLeastBytes;  // smaller ones go over the GPUs alone
    uint32_t dense_in_a_row = kDenseInARow;
  };
  PathRates() = default;
  explicit PathRates(const Options& options) : options_(options) {}

  // Whether the operation may have a share that goes over the host, now or later: Note is then to
  // be called when it has gone well.
  bool Covers(uint64_t bytes) const { return options_.share != 0 && bytes >= options_.least_bytes; }
  // Bytes that go over the host, in whole slices, less than all. `dense`: it is known that nothing
  // will be compressed; else it is taken for dense if the last ones of its kind were.
  uint64_t HostBytes(Kind kind, uint64_t slice_bytes, bool dense);
  void Note(Kind kind, const Times& times);

 private:
  // The mean time of what was measured, the newer the heavier.
  struct Rate {
    double ns_per_byte = 0;
    uint32_t count = 0;  // 0: not measured
    void Add(uint64_t bytes, int64_t ns);
    double bytes_per_second() const { return 1e9 / ns_per_byte; }
  };
  struct Known {
    Rate alone;         // the GPUs' links, while the host has no part
    Rate device, host;  // each, while both are at work
    Rate split;         // of all bytes, where both paths ended at about the same time
    uint32_t dense_in_a_row = 0;
    uint32_t since_host = kTryEvery;  // operations that left the host alone
    uint32_t since_alone = 0;         // and that did not
    uint32_t warmed = 0;              // tries that say nothing, since the last one that did
    bool tries = false;               // the last one's share was no split, but a try
    uint64_t slice_bytes = 1;         // the last one's
    uint64_t used = 0;                // when it was last noted

    bool Balanced(const Times& times) const;
  };

  // Requires mutex_.
  static uint64_t Measured(Known* known, uint64_t bytes, uint64_t slice_bytes);
  Known& KnownOf(Kind kind);

  const Options options_;
  std::mutex mutex_;
  std::map<Kind, Known> known_;
  uint64_t noted_ = 0;
};

}  // namespace spccl::runtime
