#include "daemon/metrics/exposition.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/view.h"

namespace spccl::daemon::metrics {
namespace {

// `quoted`: as a label's value, else as a help text.
void AppendEscaped(std::string_view value, bool quoted, std::string* text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  while (!value.empty()) {
    const size_t bytes = Utf8Length(value);
    const char first = value[0];
    if (first == '\n') {
      text->append("\\n");
    } else if (first == '\\' || (quoted && first == '"')) {
      text->append({'\\', first});
    } else if (bytes == 0 || static_cast<unsigned char>(first) < 0x20 || first == 0x7F) {
      text->append(kReplacement);
    } else {
      text->append(value.substr(0, bytes));
    }
    value.remove_prefix(bytes == 0 ? 1 : bytes);
  }
}

std::string Show(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

}  // namespace

std::string_view NameOf(Type type) {
  constexpr std::string_view kNames[] = {"counter", "gauge", "histogram"};
  return kNames[static_cast<int>(type)];
}

void Exposition::Begin(const Family& family) {
  family_ = &family;
  absl::StrAppend(&text_, "# HELP ", View(family.name), " ");
  AppendEscaped(family.help, /*quoted=*/false, &text_);
  absl::StrAppend(&text_, "\n# TYPE ", View(family.name), " ", View(NameOf(family.type)), "\n");
}

void Exposition::Line(std::string_view suffix, const std::vector<std::string_view>& labels,
                      std::string_view bound) {
  SPCCL_CHECK(family_ != nullptr && labels.size() == family_->labels.size());
  absl::StrAppend(&text_, View(family_->name), View(suffix));
  const char* separator = "{";
  const auto append = [&](std::string_view name, std::string_view value) {
    absl::StrAppend(&text_, std::exchange(separator, ","), View(name), "=\"");
    AppendEscaped(value, /*quoted=*/true, &text_);
    text_.push_back('"');
  };
  for (size_t i = 0; i < labels.size(); ++i) append(family_->labels[i], labels[i]);
  if (!bound.empty()) append("le", bound);
  text_.append(*separator == ',' ? "} " : " ");
}

void Exposition::Sample(const std::vector<std::string_view>& labels, uint64_t value) {
  Line("", labels, "");
  absl::StrAppend(&text_, value, "\n");
}

void Exposition::Sample(const std::vector<std::string_view>& labels, double value) {
  Line("", labels, "");
  absl::StrAppend(&text_, Show(value), "\n");
}

void Exposition::Sample(const std::vector<std::string_view>& labels, const Histogram& histogram) {
  uint64_t below = 0;
  const size_t bounds = histogram.bounds().size();
  for (size_t i = 0; i <= bounds; ++i) {
    below += histogram.count(i);
    Line("_bucket", labels, i == bounds ? "+Inf" : Show(histogram.bounds()[i]));
    absl::StrAppend(&text_, below, "\n");
  }
  Line("_sum", labels, "");
  absl::StrAppend(&text_, Show(histogram.sum()), "\n");
  Line("_count", labels, "");
  absl::StrAppend(&text_, below, "\n");
}

}  // namespace spccl::daemon::metrics
