#include "daemon/metrics/http_server.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <list>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "boost/asio/basic_socket_acceptor.hpp"
#include "boost/asio/generic/stream_protocol.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/address.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/basic_stream.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/string_body.hpp"
#include "boost/beast/http/write.hpp"
#include "proto/shm/socket.h"

namespace spccl::daemon::metrics {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;  // UNIX sockets and TCP alike
using Stream = beast::basic_stream<Protocol>;
using Acceptor = asio::basic_socket_acceptor<Protocol>;

// How long, and how many bytes, a client may go on sending what nobody reads after its answer.
constexpr std::chrono::seconds kLinger(1);
constexpr size_t kLingerBytes = 64 * 1024;
// After a failed accept(), most likely for want of descriptors.
constexpr std::chrono::milliseconds kAcceptPause(100);

}  // namespace

// The server's thread and what it owns.
class HttpServer::Loop {
 public:
  Loop(HttpOptions options, Handler handler)
      : options_(std::move(options)), handler_(std::move(handler)), acceptor_(io_), pause_(io_) {}
  absl::Status Start(UniqueFd listener);
  ~Loop();

 private:
  class Connection;
  using Connections = std::list<std::shared_ptr<Connection>>;

  void Accept();
  void Admit(Protocol::socket socket);

  const HttpOptions options_;
  const Handler handler_;
  HttpSample sample_;
  asio::io_context io_{1};
  Acceptor acceptor_;
  asio::steady_timer pause_;
  Connections connections_, strangers_;  // oldest first
  bool told_ = false;                    // that connections cannot be accepted
  std::thread thread_;
};

// Reads one request, answers, waits for the client to close. The loop's list keeps it; when it is
// done it takes itself out.
class HttpServer::Loop::Connection : public std::enable_shared_from_this<Connection> {
 public:
  // In `all` from Begin() to its end; `admitted`: it gets more than a refusal.
  Connection(Loop* loop, Connections* all, bool admitted, Stream stream)
      : loop_(loop),
        all_(all),
        admitted_(admitted),
        stream_(std::move(stream)),
        buffer_(loop->options_.request_bytes) {
    parser_.header_limit(static_cast<uint32_t>(loop->options_.request_bytes));
  }

  void Begin() {
    place_ = all_->insert(all_->end(), shared_from_this());
    stream_.expires_after(std::chrono::nanoseconds(loop_->options_.request_ns));
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](error_code error, size_t) { self->OnRequest(error); });
  }
  // Ends it; what it waits for ends with an error.
  void Close() { stream_.close(); }

 private:
  void OnRequest(error_code error);
  HttpAnswer AnswerTo(const http::request<http::empty_body>& request);
  void Send(HttpAnswer answer, bool head_only);
  void OnSent(error_code error);
  void Linger();
  void End(bool answered) {
    if (!answered) ++loop_->sample_.dropped;
    all_->erase(place_);  // whoever called this holds a reference
  }

  Loop* const loop_;
  Connections* const all_;
  const bool admitted_;
  Connections::iterator place_;
  Stream stream_;
  beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  std::array<char, 4096> rest_;
  size_t rest_bytes_ = 0;
};

void HttpServer::Loop::Connection::OnRequest(error_code error) {
  if (!error) {
    const auto& request = parser_.get();
    return Send(AnswerTo(request), request.method() == http::verb::head);
  }
  // What is no request at all gets an answer, so that a person sees why; who is gone or too slow
  // gets none.
  const bool is_malformed =
      error.category() == http::make_error_code(http::error::end_of_stream).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message;
  if (!is_malformed) return End(/*answered=*/false);
  const bool is_large = error == http::error::header_limit || error == http::error::buffer_overflow;
  Send({.status = is_large ? 431 : 400, .body = absl::StrCat(error.message(), "\n")}, false);
}

HttpAnswer HttpServer::Loop::Connection::AnswerTo(const http::request<http::empty_body>& request) {
  if (!admitted_) return {.status = 403, .body = "not yours to see\n"};
  const std::string_view target(request.target().data(), request.target().size());
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    response_.set(http::field::allow, "GET, HEAD");
    return {.status = 405, .body = "GET and HEAD only\n"};
  }
  std::optional<HttpAnswer> answer =
      loop_->handler_(target.substr(0, target.find('?')), loop_->sample_);
  return answer ? *std::move(answer) : HttpAnswer{.status = 404, .body = "no such path\n"};
}

void HttpServer::Loop::Connection::Send(HttpAnswer answer, bool head_only) {
  ++loop_->sample_.answers[answer.status];
  response_.version(11);
  response_.result(static_cast<unsigned>(answer.status));
  response_.set(http::field::content_type, answer.content_type);
  response_.set(http::field::cache_control, "no-store");
  response_.keep_alive(false);
  response_.content_length(answer.body.size());
  if (!head_only) response_.body() = std::move(answer.body);
  stream_.expires_after(std::chrono::nanoseconds(loop_->options_.answer_ns));
  http::async_write(stream_, response_,
                    [self = shared_from_this()](error_code error, size_t) { self->OnSent(error); });
}

void HttpServer::Loop::Connection::OnSent(error_code error) {
  if (error) return End(/*answered=*/false);
  // Closing a TCP socket with bytes unread would take the answer away from the client: it gets the
  // end of the stream first, and a moment to close.
  stream_.socket().shutdown(asio::socket_base::shutdown_send, error);
  stream_.expires_after(kLinger);
  Linger();
}

void HttpServer::Loop::Connection::Linger() {
  stream_.async_read_some(asio::buffer(rest_),
                          [self = shared_from_this()](error_code error, size_t bytes) {
                            self->rest_bytes_ += bytes;
                            if (error || self->rest_bytes_ > kLingerBytes) return self->End(true);
                            self->Linger();
                          });
}

absl::Status HttpServer::Loop::Start(UniqueFd listener) {
  sockaddr_storage address;
  socklen_t bytes = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  error_code error;
  acceptor_.assign(Protocol(address.ss_family, 0), listener.get(), error);
  if (error) return absl::InternalError(absl::StrCat("watch a listener: ", error.message()));
  listener.Release();
  Accept();
  // Signals are for the program's main thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { io_.run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread_.native_handle(), "spccl-metrics");
  return absl::OkStatus();
}

HttpServer::Loop::~Loop() {
  asio::post(io_, [this] {
    acceptor_.close();
    pause_.cancel();
    for (const Connections* all : {&connections_, &strangers_}) {
      for (const auto& connection : *all) connection->Close();
    }
  });
  if (thread_.joinable()) thread_.join();
}

void HttpServer::Loop::Accept() {
  acceptor_.async_accept([this](error_code error, Protocol::socket socket) {
    if (!acceptor_.is_open()) return;
    if (!error) {
      told_ = false;
      Admit(std::move(socket));
      return Accept();
    }
    if (error == asio::error::connection_aborted) return Accept();
    if (!std::exchange(told_, true)) {
      Log(LogLevel::kWarning, "metrics", "cannot accept connections",
          {{"reason", error.message()}});
    }
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](error_code cancelled) {
      if (!cancelled) Accept();
    });
  });
}

void HttpServer::Loop::Admit(Protocol::socket socket) {
  const bool admitted =
      !options_.address.is_unix || !options_.admits || options_.admits(socket.native_handle());
  Connections& all = admitted ? connections_ : strangers_;
  if (all.size() >= options_.connections) all.front()->Close();
  std::make_shared<Connection>(this, &all, admitted, Stream(std::move(socket)))->Begin();
}

namespace {

absl::StatusOr<UniqueFd> ListenTcp(const ListenAddress& address) {
  error_code error;
  const auto ip = asio::ip::make_address(address.host, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("not an IP address: ", address.host));
  const asio::ip::tcp::endpoint endpoint(ip, address.port);
  UniqueFd fd(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (ip.is_v6()) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  const std::string where = absl::StrCat(address.host, " port ", address.port);
  if (::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
    return ErrnoStatus(errno, absl::StrCat("bind ", where));
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) return ErrnoStatus(errno, absl::StrCat("listen ", where));
  return fd;
}

// With the port that the system chose.
absl::StatusOr<std::string> AddressOf(const ListenAddress& address, int listener) {
  if (address.is_unix) return absl::StrCat("unix:", address.path);
  asio::ip::tcp::endpoint endpoint;
  socklen_t bytes = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(listener, endpoint.data(), &bytes) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  endpoint.resize(bytes);
  const std::string host = endpoint.address().is_v6()
                               ? absl::StrCat("[", endpoint.address().to_string(), "]")
                               : endpoint.address().to_string();
  return absl::StrCat(host, ":", endpoint.port());
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(HttpOptions options,
                                                               Handler handler) {
  const ListenAddress& address = options.address;
  SPCCL_ASSIGN_OR_RETURN(UniqueFd listener, address.is_unix
                                                ? shm::ListenUnix(address.path, SOCK_STREAM, 0666)
                                                : ListenTcp(address));
  SPCCL_ASSIGN_OR_RETURN(std::string name, AddressOf(address, listener.get()));
  shm::SocketFile file;
  if (address.is_unix) file = shm::SocketFile(address.path);
  auto loop = std::make_unique<Loop>(std::move(options), std::move(handler));
  SPCCL_RETURN_IF_ERROR(loop->Start(std::move(listener)));
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(file), std::move(name), std::move(loop)));
}

HttpServer::HttpServer(shm::SocketFile file, std::string address, std::unique_ptr<Loop> loop)
    : file_(std::move(file)), address_(std::move(address)), loop_(std::move(loop)) {}

HttpServer::~HttpServer() {
  loop_.reset();
  RemoveSocket();
}

void HttpServer::RemoveSocket() const {
  file_.Remove();
}

}  // namespace spccl::daemon::metrics
