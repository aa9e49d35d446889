// How fast the two paths of large all-reduces within a node are, by what operations have taken, and
// so which share goes over the host. docs/adr/0022-multipath.md
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace spccl::runtime {

// Of one node. Thread-safe.
class PathRates {
 public:
  // Operations that are alike: what they have taken, latencies and all, says what the next one
  // takes.
  struct Kind {
    std::vector<int> gpus;  // that its ranks use, ascending
    uint64_t bytes = 0;     // of the buffer; kinds are of the power of two below

    std::strong_ordering operator<=>(const Kind&) const = default;
  };
  // How an operation went. No bytes, no time: the path was not used.
  struct Times {
    uint64_t device_bytes = 0, host_bytes = 0;
    int64_t device_ns = 0, host_ns = 0;
    bool dense = true;  // nothing was compressed on the GPUs' links
  };

  // Smaller ones go over the GPUs alone.
  static constexpr uint64_t kLeastBytes = uint64_t{32} << 20;
  // Where the host does not pay, or had no memory, one of so many tries it again.
  static constexpr uint32_t kTryEvery = 256;

  // `share`: of the bytes of every operation, whatever was measured and however small it is; 0:
  // none. Empty: by measurement.
  explicit PathRates(std::optional<double> share = std::nullopt) : share_(share) {}

  // Whether the operation may have a share that goes over the host, now or later: Note is then to
  // be called when it has gone well.
  bool Covers(uint64_t bytes) const { return share_ ? *share_ > 0 : bytes >= kLeastBytes; }
  // Bytes that go over the host, in whole slices, less than all. `dense`: it is known that nothing
  // will be compressed; else it is taken for dense if the last one of its kind was.
  uint64_t HostBytes(Kind kind, uint64_t slice_bytes, bool dense);
  void Note(Kind kind, const Times& times);

 private:
  // A mean of what was measured, the newer the heavier.
  struct Rate {
    double bytes_per_second = 0;  // 0: not measured
    uint32_t count = 0;
    void Add(uint64_t bytes, int64_t ns);
  };
  struct Known {
    Rate device, host;
    bool dense = false;               // the last one
    uint32_t since_host = kTryEvery;  // operations that left the host alone
  };

  const std::optional<double> share_;
  std::mutex mutex_;
  std::map<Kind, Known> known_;
};

}  // namespace spccl::runtime
