// UCX, set up for the daemon: settings, log lines, and the context that workers are made from.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ucp/api/ucp.h"

namespace spccl::transport::ucx {

using Settings = std::vector<std::pair<std::string, std::string>>;  // UCX's names, without "UCX_"

// "ucp_ep_create: Destination is unreachable". UCX's codes become ours.
absl::Status UcxStatus(ucs_status_t status, std::string_view what);

// Owner of a ucp_context_h. Its workers and everything made of them must be gone before it.
class Context {
 public:
  // UCX as found and as the environment says (UCX_NAME=value), with `settings` over both.
  //
  // The first call sets up the process: it puts DefaultSettings() into the environment where they
  // are not there (so call it before threads that read the environment start), sends what UCX logs
  // to base/log.h, and turns UCX's handlers of SIGSEGV and the like off.
  static absl::StatusOr<std::unique_ptr<Context>> Create(const Settings& settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ucp_context_h get() const { return context_; }

 private:
  explicit Context(ucp_context_h context) : context_(context) {}
  const ucp_context_h context_;
};

// What differs from UCX's own defaults, and why: see context.cc.
const Settings& DefaultSettings();

}  // namespace spccl::transport::ucx
