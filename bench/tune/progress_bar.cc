#include "bench/tune/progress_bar.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"

namespace spccl::tune {
namespace {

constexpr size_t kWidth = 24;

// Of the step that has begun and all after it, by those that ran.
std::string TimeLeft(int64_t elapsed_ns, size_t ran, size_t left) {
  if (ran == 0) return "";
  const double seconds =
      static_cast<double>(elapsed_ns) * 1e-9 / static_cast<double>(ran) * static_cast<double>(left);
  return seconds < 90 ? absl::StrFormat(", about %.0f s left", seconds)
                      : absl::StrFormat(", about %.0f min left", seconds / 60);
}

}  // namespace

ProgressBar::ProgressBar(std::string title, size_t steps)
    : title_(std::move(title)),
      steps_(steps),
      terminal_(::isatty(STDERR_FILENO) == 1),
      began_ns_(MonotonicNanos()) {}

ProgressBar::~ProgressBar() {
  if (terminal_ && done_ > skipped_) std::fputs("\n", stderr);
}

void ProgressBar::Skip() {
  ++skipped_;
  ++done_;
}

void ProgressBar::Begin(const std::string& step) {
  step_ = step;
  Draw();
}

void ProgressBar::End() {
  ++done_;
  if (terminal_) Draw();
}

void ProgressBar::Say(const std::string& line) {
  std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\033[K" : "", line.c_str());
}

void ProgressBar::Draw() const {
  const std::string left = TimeLeft(MonotonicNanos() - began_ns_, done_ - skipped_, steps_ - done_);
  if (terminal_) {
    const size_t full = steps_ == 0 ? kWidth : kWidth * done_ / steps_;
    std::fprintf(stderr, "\r\033[K%s [%s%s] %zu of %zu%s: %s", title_.c_str(),
                 std::string(full, '#').c_str(), std::string(kWidth - full, '.').c_str(), done_,
                 steps_, left.c_str(), step_.c_str());
  } else {
    std::fprintf(stderr, "%s %zu of %zu%s: %s\n", title_.c_str(), done_ + 1, steps_, left.c_str(),
                 step_.c_str());
  }
  std::fflush(stderr);
}

}  // namespace spccl::tune
