// Prometheus' text format (version 0.0.4), written. Pure; knows nothing of spccl.
//
// Names follow OpenMetrics: counters end in _total, units are base units and part of the name
// (_seconds, _bytes, _ratio).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/metrics/histogram.h"

namespace spccl::daemon::metrics {

inline constexpr std::string_view kExpositionContentType =
    "text/plain; version=0.0.4; charset=utf-8";

enum class Type : uint8_t { kCounter, kGauge, kHistogram };

// "counter"
std::string_view NameOf(Type type);

// One metric with all its series.
struct Family {
  std::string_view name;
  Type type;
  std::vector<std::string_view> labels;  // their names, in the order in which samples give values
  std::string_view help;
};

class Exposition {
 public:
  // The samples that follow are this family's, until the next Begin. Each family once. The family
  // must live until then.
  void Begin(const Family& family);

  // `labels`: a value for each of the family's names; no two samples of a family may have the same.
  // Whatever is in them, the text stays valid: what is not UTF-8, and control characters but the
  // line feed, become U+FFFD.
  void Sample(const std::vector<std::string_view>& labels, uint64_t value);
  void Sample(const std::vector<std::string_view>& labels, double value);
  void Sample(const std::vector<std::string_view>& labels, const Histogram& histogram);

  const std::string& text() const { return text_; }

 private:
  // NAME{LABELS} and a space. `bound`: the value of the label "le"; empty: there is none.
  void Line(std::string_view suffix, const std::vector<std::string_view>& labels,
            std::string_view bound);

  const Family* family_ = nullptr;
  std::string text_;
};

}  // namespace spccl::daemon::metrics
