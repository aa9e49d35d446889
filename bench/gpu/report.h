// What gpu-codec-bench found, as rows: arithmetic, table, JSON lines, and the judgement. Knows
// nothing of CUDA.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace spccl::gpu_bench {

// One operation on `bytes` bytes of dense elements. Times are medians in seconds, all of them of
// one interleaved run; 0: not measured.
struct Row {
  std::string operation;  // encode, decode, reduce-into, fused
  std::string format;
  std::string dtype;
  double sparsity = 0;
  uint64_t bytes = 0;
  uint64_t frame_bytes = 0;
  uint64_t moved_bytes = 0;  // MovedBytes()
  double seconds = 0;
  double copy_seconds = 0;      // of a device copy of `bytes` bytes
  double cub_seconds = 0;       // of the same done with CUB's DeviceSelect
  double cusparse_seconds = 0;  // of the same done with cuSPARSE
};

// The bytes that the operation cannot help but read and write. `density`: of the nonzeros;
// `out_frame_bytes`: of the frame that a fused hop makes.
uint64_t MovedBytes(const std::string& operation, uint64_t bytes, uint64_t element_bytes,
                    double density, uint64_t frame_bytes, uint64_t out_frame_bytes);

// Dense bytes a second, in 10^9.
double GbpsOf(const Row& row);
// The time that moving the bytes takes at the copy's bandwidth, over the time it took: at most 1
// but for what caches do.
double FloorFraction(const Row& row);
// How many times as fast as the faster of the two rivals; 0 where neither was measured.
double RivalRatio(const Row& row);

// One target, and whether it is reached. What was not measured reaches none.
struct Verdict {
  std::string what;
  double found = 0;
  double wanted = 0;
  bool measured = true;
  bool passed() const { return measured && found >= wanted; }
};

// The targets for an H100, on what was measured of float32 at 99% zeros in the largest size: encode
// and decode 0.80 of the floor, fused 0.75, reduce-into 0.6; each 1.5 times the faster rival;
// linear Pici 1.3 times the column form.
std::vector<Verdict> Judge(const std::vector<Row>& rows);

// Whether a GPU of this name is what the targets are for: a whole H100. All of them are ratios of
// one run, but of what hangs on how fast a card's memory is beside its processors and caches: one
// with faster memory (an H200), or an instance of MIG, may miss them with nothing wrong.
bool IsTargetCard(std::string_view device);

// What the rows lack: nothing, or how many of them cuSPARSE was not measured for.
std::string MissingRivals(const std::vector<Row>& rows);

void PrintTable(const std::vector<Row>& rows, std::ostream& out);
void PrintJson(const std::string& device, const Row& row, std::ostream& out);
// Returns whether all passed; the last line begins with PASS or FAIL. On another card than the
// targets' they are told, and only what was not measured fails.
bool PrintVerdicts(const std::vector<Verdict>& verdicts, std::string_view device,
                   std::ostream& out);

// The middle one; of an even number, the lower of the two.
double MedianOf(std::vector<float> values);

}  // namespace spccl::gpu_bench
