// /metrics and /healthz: what the daemon answers to Prometheus and to whoever asks how it does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/metrics/http_server.h"
#include "daemon/metrics/sample.h"
#include "daemon/progress.h"

namespace spccl::daemon::metrics {

// Where the numbers come from. All are called on the server's thread.
struct Source {
  std::string version, codec_target;
  std::function<absl::StatusOr<CoreSample>()> core;  // may wait, but within a deadline
  std::function<Progress()> progress;                // never waits
};

// The handler for HttpServer. /metrics: the metrics; where the core does not answer, what is known
// without it. However often somebody asks, the core is asked at most once in `fresh_ns`; in between
// the last text is the answer. /healthz: 200 while work that is due moves, else 503 with the
// reason.
HttpServer::Handler MakeEndpoint(Source source, int64_t fresh_ns = 100'000'000);

}  // namespace spccl::daemon::metrics
