#include "collective/transport/ucx/context.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "ucs/debug/debug.h"
#include "ucs/debug/log_def.h"

namespace spccl::transport::ucx {
namespace {

ucs_log_func_rc_t LogLine(const char* file, unsigned line, const char* function,
                          ucs_log_level_t level, const ucs_log_component_config_t* component,
                          const char* format, va_list arguments) {
  char text[1024];
  std::vsnprintf(text, sizeof(text), format, arguments);
  const LogLevel ours = level <= UCS_LOG_LEVEL_ERROR  ? LogLevel::kError
                        : level == UCS_LOG_LEVEL_WARN ? LogLevel::kWarning
                        : level <= UCS_LOG_LEVEL_INFO ? LogLevel::kInfo
                                                      : LogLevel::kDebug;
  Log(ours, "ucx", text);
  return UCS_LOG_FUNC_RC_STOP;
}

void SetUpProcess() {
  static std::once_flag once;
  std::call_once(once, [] {
    // The settings of single transports are read from the environment only.
    for (const auto& [name, value] : DefaultSettings()) {
      ::setenv(absl::StrCat("UCX_", name).c_str(), value.c_str(), /*overwrite=*/0);
    }
    ucs_log_push_handler(LogLine);
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
  });
}

absl::StatusCode CodeOf(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
      return absl::StatusCode::kResourceExhausted;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::StatusCode::kInvalidArgument;
    case UCS_ERR_CANCELED:
      return absl::StatusCode::kCancelled;
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_REJECTED:
    case UCS_ERR_IO_ERROR:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

const Settings& DefaultSettings() {
  static const Settings* const settings = new Settings{
      // A dead peer's connection is reset; the daemons' heartbeat tells of one that is unplugged or
      // frozen. TCP's own keep-alive and UCX's must not: if a connection breaks while UCX looks
      // after it, UCX 1.13 puts a buffer back that it does not have (see docs/adr/0006).
      {"TCP_KEEPIDLE", "inf"},
      {"KEEPALIVE_INTERVAL", "inf"},
      // Connecting to a host that does not answer must not hold up the thread that all share.
      {"TCP_CONN_NB", "y"},
      // UCX 1.13 aborts the process (uct_iface.h, "comp->count > 0") if a peer dies in the middle
      // of a zero-copy send over TCP: see docs/adr/0006.
      {"ZCOPY_THRESH", "inf"},
      // So everything is copied into segments, each sent by a call of its own: 8 KiB, the default,
      // are a lot of calls. They have to be smaller than what the other side receives at once.
      {"TCP_TX_SEG_SIZE", "60K"},
      {"TCP_RX_SEG_SIZE", "64K"},
  };
  return *settings;
}

absl::Status UcxStatus(ucs_status_t status, std::string_view what) {
  if (status == UCS_OK) return absl::OkStatus();
  return {CodeOf(status), absl::StrCat(std::string(what), ": ", ucs_status_string(status))};
}

absl::StatusOr<std::unique_ptr<Context>> Context::Create(const Settings& settings) {
  SetUpProcess();
  ucp_config_t* config;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return UcxStatus(status, "reading UCX's settings");
  }
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner(config,
                                                                           ucp_config_release);
  for (const auto& [name, value] : settings) {
    if (const ucs_status_t status = ucp_config_modify(config, name.c_str(), value.c_str());
        status != UCS_OK) {
      return UcxStatus(status, absl::StrCat("UCX setting ", name, "=", value));
    }
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "spccl";
  ucp_context_h context;
  if (const ucs_status_t status = ucp_init(&params, config, &context); status != UCS_OK) {
    return UcxStatus(status, "starting UCX");
  }
  return std::unique_ptr<Context>(new Context(context));
}

Context::~Context() {
  ucp_cleanup(context_);
}

}  // namespace spccl::transport::ucx
