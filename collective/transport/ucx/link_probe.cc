// How fast a link is: Link's probes. A shaper lets a burst through at once and TCP begins slowly,
// so the earlier half of what arrives is not timed; and who receives knows when it arrived, while
// who sends knows only when it was handed over. A receiving thread that does not run for a moment
// sees what came meanwhile late and all at once: the median of many spans does not mind. Probes
// count in the window of what is unsent, so they hold up other frames no longer than frames do, and
// not in the allowance for early ones.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "collective/transport/ucx/link.h"

namespace spccl::transport::ucx {
namespace {

// A slow link is measured by fewer probes than may be sent: by as many as make an eighth of them
// take this long, which is long beside what a thread may have to wait for its core.
constexpr uint64_t kLeastProbes = 64;
constexpr uint64_t kEnoughNs = 7'500'000;

// How long an eighth of these arrivals took: the median of all spans of that length in their later
// half, of which any one moment is in a third. 16 arrivals at least, and a multiple of it, so that
// spans are of even length: two connections often end a probe each at the same time.
int64_t EighthNs(std::span<const int64_t> arrived_ns) {
  const size_t eighth = arrived_ns.size() / 8;
  std::vector<int64_t> spans;
  for (size_t i = arrived_ns.size() / 2; i + eighth < arrived_ns.size(); ++i) {
    spans.push_back(arrived_ns[i + eighth] - arrived_ns[i]);
  }
  const auto median = spans.begin() + static_cast<ptrdiff_t>(spans.size() / 2);
  std::nth_element(spans.begin(), median, spans.end());
  return *median;
}

}  // namespace

void Link::Measure(std::function<void()> done) {
  bool begins = false;
  {
    std::unique_lock lock(mutex_);
    if (!status_.ok()) return;
    if (probing_.over) {
      lock.unlock();
      return done();
    }
    probing_.done.push_back(std::move(done));
    begins = !std::exchange(probing_.begun, true);
    if (begins) {
      probing_.content = FramePool::Shared().Take(kProbeBytes);
      // What the pool's buffers held before is nobody else's business.
      std::memset(probing_.content.data(), 0, kProbeBytes);
      probing_.content.set_size_bytes(kProbeBytes);
    }
  }
  // Not by the caller, whom copying them would keep.
  if (begins) options_.workers[0]->Post([self = shared_from_this()] { self->SendProbes(); });
}

void Link::SendProbes() {
  for (;;) {
    Message message{.kind = MessageKind::kProbe};
    Frame frame;
    {
      const std::lock_guard lock(mutex_);
      if (!probing_.content.valid() || !window_->HasRoom()) return;
      frame = probing_.content.Share();
      message.stream = static_cast<uint8_t>(probing_.sent % endpoints_.size());
      message.frame_bytes = frame.size_bytes();
      if (++probing_.sent == kProbes) probing_.content = Frame();
    }
    SendNow(message, std::move(frame));
  }
}

absl::Status Link::OnProbe() {
  Message answer{.kind = MessageKind::kProbed};
  {
    const std::lock_guard lock(mutex_);
    const uint64_t arrived = probing_.arrived;
    if (arrived == kProbes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name(), " sent more than the ", kProbes, " probes that it may"));
    }
    probing_.arrived_ns[arrived] = MonotonicNanos();
    answer.sequence = ++probing_.arrived;
    if (answer.sequence % kProbesAnAnswer != 0) return absl::OkStatus();
    const int64_t eighth_ns = EighthNs(std::span(probing_.arrived_ns).first(probing_.arrived));
    answer.index = static_cast<uint64_t>(std::max<int64_t>(1, eighth_ns));
  }
  SendNow(answer, Frame());
  return absl::OkStatus();
}

absl::Status Link::OnProbed(uint64_t arrived, uint64_t eighth_ns) {
  std::vector<std::function<void()>> done;
  Frame unsent;
  {
    const std::lock_guard lock(mutex_);
    if (arrived > probing_.sent) {
      return absl::DataLossError(
          absl::StrCat(name(), " says that ", arrived, " probes have arrived, of ", probing_.sent));
    }
    // Overtaken by a later one, or of probes that were under way when enough was known.
    if (arrived <= probing_.answered || probing_.over) return absl::OkStatus();
    probing_.answered = arrived;
    const auto bytes = static_cast<double>(arrived) / 8 * kProbeBytes;
    probing_.bytes_per_second = bytes / (static_cast<double>(eighth_ns) * 1e-9);
    probing_.over = arrived == kProbes || (arrived >= kLeastProbes && eighth_ns >= kEnoughNs);
    if (probing_.over) {
      unsent = std::move(probing_.content);
      done.swap(probing_.done);
    }
  }
  for (const std::function<void()>& tell : done) tell();
  return absl::OkStatus();
}

}  // namespace spccl::transport::ucx
