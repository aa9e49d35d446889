#include "examples/image_stacking/stacking.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "bench/support/rank_team.h"
#include "client/include/spccl/spccl.h"

namespace image_stacking {
namespace {

using spccl::bench::RankTeam;

struct Codec {
  const char* name;
  spcclCodec_t code;
};
constexpr Codec kCodecs[] = {
    {"exact", spcclCodecAuto}, {"errorbound", spcclCodecErrorBound}, {"qsgd8", spcclCodecQsgd8}};

absl::Status Check(spcclResult_t result, spcclComm_t comm) {
  if (result == spcclSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(spcclGetErrorString(result), ": ", spcclGetLastError(comm)));
}

// What a rank tells of one codec; lies in memory that all processes share.
struct Told {
  double median_ms, psnr_db, nrmse, largest, checksum_spread;
};

// A rank's membership and its two images.
class Rank {
 public:
  Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    if (comm_ != nullptr) spcclCommDestroy(comm_);
    spcclMemFree(send_);
    spcclMemFree(recv_);
  }

  absl::Status Join(const Settings& settings, RankTeam& team) {
    spcclUniqueId id = {};
    if (team.rank() == 0) {
      if (absl::Status status = Check(spcclGetUniqueId(&id), nullptr); !status.ok()) return status;
    }
    if (absl::Status status = team.FromRankZero(&id, sizeof id); !status.ok()) return status;
    absl::Status status = Check(spcclCommInitRank(&comm_, team.ranks(), id, team.rank()), nullptr);
    pixels_ = settings.side * settings.side;
    for (void** buffer : {&send_, &recv_}) {
      if (status.ok()) status = Check(spcclMemAlloc(buffer, pixels_ * sizeof(float)), nullptr);
    }
    return status;
  }

  void Take(const Image& image) { std::memcpy(send_, image.data(), pixels_ * sizeof(float)); }
  Image Stack() const {
    const auto* pixels = static_cast<const float*>(recv_);
    return Image(pixels, pixels + pixels_);
  }

  absl::Status SetCodec(const Codec& codec, const Settings& settings) {
    const spcclCodecOptions options{.bound = settings.bound, .relative = 0, .seed = settings.seed};
    return Check(spcclCommSetCodec(comm_, codec.code, &options), comm_);
  }

  absl::Status Reduce() {
    return Check(spcclAllReduce(send_, recv_, pixels_, spcclFloat32, spcclAvg, comm_, nullptr),
                 comm_);
  }

 private:
  spcclComm_t comm_ = nullptr;
  size_t pixels_ = 0;
  void *send_ = nullptr, *recv_ = nullptr;
};

// Median over the repeats of the slowest rank's time.
absl::Status TimeReductions(const Settings& settings, RankTeam& team, Rank* rank, double* median) {
  std::vector<double> times;
  for (int repeat = 0; repeat <= settings.repeats; ++repeat) {
    if (absl::Status status = team.Barrier(); !status.ok()) return status;
    const auto begin = std::chrono::steady_clock::now();
    if (absl::Status status = rank->Reduce(); !status.ok()) return status;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    double slowest[] = {took.count()};
    if (absl::Status status = team.MaxOverRanks(slowest); !status.ok()) return status;
    if (repeat > 0) times.push_back(slowest[0]);  // the first one warms up
  }
  std::sort(times.begin(), times.end());
  *median = times[times.size() / 2];
  return absl::OkStatus();
}

// FNV-1a, folded into 52 bits that a double holds exactly.
double ChecksumOf(const Image& image) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float pixel : image) {
    uint32_t bits;
    std::memcpy(&bits, &pixel, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3;
  }
  return static_cast<double>(hash >> 12);
}

absl::Status StackAsRank(const Settings& settings, RankTeam& team, std::span<Told> told) {
  Rank rank;
  if (absl::Status status = rank.Join(settings, team); !status.ok()) return status;
  const Image field = Field(settings.side);
  rank.Take(Noisy(field, settings.noise, settings.seed, static_cast<uint32_t>(team.rank())));
  std::vector<double> exact;
  if (team.rank() == 0) {
    const auto ranks = static_cast<uint32_t>(team.ranks());
    exact = ExactStack(field, settings.noise, settings.seed, ranks).mean;
  }
  for (size_t i = 0; i < std::size(kCodecs); ++i) {
    if (absl::Status status = team.Barrier(); !status.ok()) return status;
    if (absl::Status status = rank.SetCodec(kCodecs[i], settings); !status.ok()) return status;
    double median = 0;
    absl::Status status = TimeReductions(settings, team, &rank, &median);
    if (!status.ok()) return status;
    const Image stack = rank.Stack();
    double highest[] = {ChecksumOf(stack), -ChecksumOf(stack)};
    if (status = team.MaxOverRanks(highest); !status.ok()) return status;
    if (team.rank() != 0) continue;
    const Quality quality = Compare(exact, stack);
    told[i] = {median, quality.psnr_db, quality.nrmse, quality.largest, highest[0] + highest[1]};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Run>> StackWithEach(const Settings& settings,
                                               const spccl::bench::Daemons& daemons) {
  auto arena = spccl::bench::SharedArena::Create(sizeof(Told) * std::size(kCodecs));
  if (!arena.ok()) return arena.status();
  const std::span told(reinterpret_cast<Told*>(arena->data()), std::size(kCodecs));
  if (!settings.algorithm.empty()) ::setenv("SPCCL_ALGO", settings.algorithm.c_str(), 1);
  const absl::Status status = spccl::bench::RunTeam(settings.ranks, [&](RankTeam& team) {
    daemons.Use(
        daemons.NodeOf(static_cast<uint32_t>(team.rank()), static_cast<uint32_t>(team.ranks())));
    return StackAsRank(settings, team, told);
  });
  if (!status.ok()) return status;
  std::vector<Run> runs;
  for (size_t i = 0; i < std::size(kCodecs); ++i) {
    runs.push_back({.codec = kCodecs[i].name,
                    .median_ms = told[i].median_ms,
                    .quality = {told[i].psnr_db, told[i].nrmse, told[i].largest},
                    .all_alike = told[i].checksum_spread == 0});
  }
  return runs;
}

}  // namespace image_stacking
