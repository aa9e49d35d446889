// A small HTTP/1.1 server for texts that programs read: GET and HEAD, one request a connection.
//
// What a client may cost is bounded: bytes of a request, connections at once, and the time from
// connecting to the end of the answer. Where there are too many connections, the oldest gives way:
// whoever holds connections open keeps nobody out; those who are refused anyway give way to each
// other only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/metrics/listen_address.h"
#include "daemon/metrics/sample.h"
#include "proto/shm/socket.h"

namespace spccl::daemon::metrics {

struct HttpOptions {
  ListenAddress address;  // a UNIX socket's path must be there
  // Whether whoever is at the other end of a UNIX socket may ask; others get a 403. Empty:
  // everybody may. Anybody may connect.
  std::function<bool(int socket)> admits;
  size_t request_bytes = 8192;  // the most that a request line and headers may take
  size_t connections = 64;
  int64_t request_ns = 5'000'000'000;  // from connecting to the end of the request
  int64_t answer_ns = 5'000'000'000;   // from there to the end of the answer
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  // The answer for a path ("/metrics", without a query); nothing: there is no such path. `so_far`:
  // what the server has done before. Called on the server's one thread, so while it runs nobody
  // else is served.
  using Handler =
      std::function<std::optional<HttpAnswer>(std::string_view path, const HttpSample& so_far)>;

  // Listens and serves. A stale socket file is replaced; AlreadyExists: somebody listens there.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(HttpOptions options, Handler handler);
  // Closes all connections and removes the socket file.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Removes the socket file, also for a process that ends here and now.
  void RemoveSocket() const;

  // Where it listens: "unix:/run/spccl/metrics.sock", "127.0.0.1:9464".
  const std::string& address() const { return address_; }

 private:
  class Loop;  // all that knows Beast

  HttpServer(shm::SocketFile file, std::string address, std::unique_ptr<Loop> loop);

  const shm::SocketFile file_;  // none where it listens at a port
  const std::string address_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace spccl::daemon::metrics
