// Worker's connections: see worker.cc for what travels on them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collective/transport/ucx/worker.h"

namespace spccl::transport::ucx {
namespace {

constexpr int64_t kLookAtStuckNs = 20'000'000;

}  // namespace

absl::StatusOr<std::shared_ptr<Endpoint>> Worker::Connect(const std::string& address,
                                                          const Key128& link,
                                                          std::shared_ptr<SendWindow> window) {
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->link = link;
  endpoint->window = std::move(window);
  endpoint->worker = this;
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnError;
  params.err_handler.arg = endpoint.get();
  const std::lock_guard lock(mutex_);
  if (const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint->handle);
      status != UCS_OK) {
    return UcxStatus(status, "connecting to a peer over UCX");
  }
  endpoints_.insert(endpoint);
  parts_.Admit(link);
  return endpoint;
}

void Worker::Close(const std::shared_ptr<Endpoint>& endpoint) {
  {
    const std::lock_guard lock(mutex_);
    CloseLocked(endpoint.get());
  }
  ucp_worker_signal(worker_);
}

void Worker::CloseLocked(Endpoint* endpoint) {
  if (endpoint->handle == nullptr) return;
  parts_.Forget(endpoint->link);
  closed_.push_back(std::exchange(endpoint->handle, nullptr));
  stuck_->Begin();
  next_end_ns_ = 0;
}

void Worker::EndClosedLocked(int64_t now_ns, int64_t patience_ns) {
  next_end_ns_ = now_ns + kLookAtStuckNs;
  if (!stuck_->Clear(now_ns, patience_ns)) return;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (const ucp_ep_h handle : std::exchange(closed_, {})) {
    void* const request = ucp_ep_close_nbx(handle, &param);
    if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  }
}

std::string Worker::DescribeRoute(const Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  return RouteLocked(endpoint);
}

void Worker::ChooseProtocol(Endpoint* endpoint) {
  const std::lock_guard lock(mutex_);
  const std::string route = absl::StrCat(",", RouteLocked(*endpoint));
  bool only_tcp = route.size() > 1;
  for (size_t at = route.find(','); at != std::string::npos; at = route.find(',', at + 1)) {
    only_tcp = only_tcp && route.compare(at, 5, ",tcp/") == 0;
  }
  endpoint->eager = only_tcp && !options_.rendezvous_over_tcp;
}

std::string Worker::RouteLocked(const Endpoint& endpoint) {
  if (endpoint.handle == nullptr) return "";
  char* text = nullptr;
  size_t size = 0;
  FILE* const file = ::open_memstream(&text, &size);
  if (file == nullptr) return "";
  ucp_ep_print_info(endpoint.handle, file);
  std::fclose(file);
  // Lines such as "#    lane[0]:  2:tcp/eth0.0 md[1] -> ..."
  std::string route;
  for (char* line = std::strstr(text, "lane["); line != nullptr;
       line = std::strstr(line, "lane[")) {
    line += 5;
    char name[128];
    if (std::sscanf(line, "%*u]: %*u:%127[^ .\n]", name) != 1) continue;
    if (absl::StrCat(",", route, ",").find(absl::StrCat(",", name, ",")) != std::string::npos) {
      continue;
    }
    absl::StrAppend(&route, route.empty() ? "" : ",", name);
  }
  std::free(text);
  return route;
}

}  // namespace spccl::transport::ucx
