// A UCX program that is no daemon: it sends what it likes.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "base/clock.h"
#include "collective/transport/ucx/context.h"
#include "collective/transport/ucx/wire.h"

namespace spccl::transport::ucx {

class RawPeer {
 public:
  RawPeer() : context_(*Context::Create({{"TLS", "tcp"}})) {
    ucp_worker_params_t params = {};
    EXPECT_EQ(ucp_worker_create(context_->get(), &params, &worker_), UCS_OK);
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    handler.id = kActiveMessageId;
    handler.cb = [](void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
      return UCS_OK;
    };
    EXPECT_EQ(ucp_worker_set_am_recv_handler(worker_, &handler), UCS_OK);
    ucp_address_t* address;
    size_t size;
    EXPECT_EQ(ucp_worker_get_address(worker_, &address, &size), UCS_OK);
    address_.assign(reinterpret_cast<const char*>(address), size);
    ucp_worker_release_address(worker_, address);
  }
  ~RawPeer() {
    if (endpoint_ != nullptr) {
      ucp_request_param_t param = {};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      Finish(ucp_ep_close_nbx(endpoint_, &param));
    }
    ucp_worker_destroy(worker_);
  }

  const std::string& address() const { return address_; }

  void Connect(const std::string& address) {
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    EXPECT_EQ(ucp_ep_create(worker_, &params, &endpoint_), UCS_OK);
  }

  // True once the message has left, or was taken or refused where it is a rendezvous.
  bool Send(std::span<const std::byte> header, std::span<const std::byte> data,
            bool rendezvous = false) {
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
    return Finish(ucp_am_send_nbx(endpoint_, kActiveMessageId, header.data(), header.size(),
                                  data.data(), data.size(), &param));
  }

  void Progress() {
    while (ucp_worker_progress(worker_) != 0) {
    }
  }

 private:
  bool Finish(void* request) {
    if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request) == UCS_OK;
    const int64_t deadline = MonotonicNanos() + 10'000'000'000;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && MonotonicNanos() < deadline) {
      ucp_worker_progress(worker_);
    }
    const ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status == UCS_OK;
  }

  const std::unique_ptr<Context> context_;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  std::string address_;
};

}  // namespace spccl::transport::ucx
