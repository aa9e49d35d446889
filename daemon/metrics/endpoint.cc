#include "daemon/metrics/endpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "daemon/metrics/exposition.h"

namespace spccl::daemon::metrics {
namespace {

class Endpoint {
 public:
  Endpoint(Source source, int64_t fresh_ns) : source_(std::move(source)), fresh_ns_(fresh_ns) {}

  std::optional<HttpAnswer> Answer(std::string_view path, const HttpSample& so_far) {
    if (path == "/metrics") return Metrics(so_far);
    if (path == "/healthz") return Health();
    return std::nullopt;
  }

 private:
  HttpAnswer Metrics(const HttpSample& so_far) {
    const int64_t now_ns = MonotonicNanos();
    if (text_.empty() || now_ns - read_ns_ >= fresh_ns_) {
      absl::StatusOr<CoreSample> core = source_.core();
      Sample sample{.version = source_.version,
                    .codec_target = source_.codec_target,
                    .progress = source_.progress(),
                    .core = std::nullopt,
                    .http = so_far,
                    .process = ReadProcess()};
      if (core.ok()) sample.core = *std::move(core);
      text_ = Render(sample);
      read_ns_ = MonotonicNanos();
    }
    return {.content_type = std::string(kExpositionContentType), .body = text_};
  }

  HttpAnswer Health() {
    const Progress progress = source_.progress();
    if (progress.healthy) return {.body = "ok\n"};
    return {.status = 503, .body = absl::StrCat(progress.detail, "\n")};
  }

  const Source source_;
  const int64_t fresh_ns_;
  std::string text_;
  int64_t read_ns_ = 0;
};

}  // namespace

HttpServer::Handler MakeEndpoint(Source source, int64_t fresh_ns) {
  return [endpoint = std::make_shared<Endpoint>(std::move(source), fresh_ns)](
             std::string_view path, const HttpSample& so_far) {
    return endpoint->Answer(path, so_far);
  };
}

}  // namespace spccl::daemon::metrics
