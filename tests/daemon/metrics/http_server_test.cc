#include "daemon/metrics/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/daemon/metrics/http_client.h"
#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon::metrics {
namespace {

using ::spccl::testing::IsOk;
using ::spccl::testing::TempFolder;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGet[] = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr char kFine[] = "HTTP/1.1 200 OK\r\n";

HttpOptions Loopback() {
  HttpOptions options;
  options.address = {.is_unix = false, .path = "", .host = "127.0.0.1", .port = 0};
  return options;
}

// Knows /hello, /large, and /dropped, which says how many connections were.
std::unique_ptr<HttpServer> Serve(HttpOptions options) {
  auto server = HttpServer::Create(
      std::move(options),
      [](std::string_view path, const HttpSample& so_far) -> std::optional<HttpAnswer> {
        if (path == "/hello") return HttpAnswer{.body = "hello\n"};
        if (path == "/large") return HttpAnswer{.body = std::string(64 << 20, 'x')};
        if (path == "/dropped") return HttpAnswer{.body = std::to_string(so_far.dropped)};
        return std::nullopt;
      });
  EXPECT_THAT(server, IsOk());
  return server.ok() ? *std::move(server) : nullptr;
}

// Asks until the server has dropped so many connections.
void AwaitDropped(const std::string& address, uint64_t count) {
  const int64_t deadline_ns = MonotonicNanos() + 20'000'000'000;
  uint64_t dropped = 0;
  while (dropped < count && MonotonicNanos() < deadline_ns) {
    dropped = std::stoull("0" + BodyOf(Get(address, "/dropped")));
  }
  EXPECT_EQ(dropped, count);
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST(HttpServerTest, AnswersGetAndHead) {
  const auto server = Serve(Loopback());
  const std::string got = Get(server->address(), "/hello");
  EXPECT_THAT(got, AllOf(StartsWith(kFine), HasSubstr("Content-Length: 6\r\n"),
                         HasSubstr("Connection: close\r\n"), EndsWith("\r\n\r\nhello\n")));
  const std::string head = Ask(server->address(), "HEAD /hello HTTP/1.1\r\n\r\n");
  EXPECT_THAT(head, AllOf(StartsWith(kFine), HasSubstr("Content-Length: 6\r\n"),
                          EndsWith("\r\n\r\n"), Not(HasSubstr("hello"))));
  EXPECT_THAT(Get(server->address(), "/hello?a=b"), EndsWith("hello\n"));
  EXPECT_THAT(Ask(server->address(), "GET /hello HTTP/1.0\r\n\r\n"), EndsWith("hello\n"));
}

TEST(HttpServerTest, RefusesOtherPathsAndMethods) {
  const auto server = Serve(Loopback());
  for (const char* path : {"/", "/hello/", "/HELLO", "//hello", "/../hello", "http://x/hello"}) {
    EXPECT_THAT(Get(server->address(), path), StartsWith("HTTP/1.1 404 ")) << path;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"}) {
    EXPECT_THAT(Ask(server->address(), std::string(method) + " /hello HTTP/1.1\r\n\r\n"),
                AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")))
        << method;
  }
}

TEST(HttpServerTest, AUnixSocketAsksWhoCalls) {
  const TempFolder folder;
  HttpOptions options;
  options.address.path = folder.path() + "/m.sock";
  std::vector<uid_t> callers;
  bool admits = true;
  options.admits = [&](int socket) {
    ucred who;
    socklen_t bytes = sizeof who;
    EXPECT_EQ(::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes), 0);
    callers.push_back(who.uid);
    return std::exchange(admits, false);
  };
  {
    const auto server = Serve(options);
    EXPECT_EQ(server->address(), "unix:" + options.address.path);
    EXPECT_THAT(Get(server->address(), "/hello"), EndsWith("hello\n"));
    EXPECT_THAT(Get(server->address(), "/hello"),
                AllOf(StartsWith("HTTP/1.1 403 "), Not(HasSubstr("hello"))));
  }
  EXPECT_EQ(callers, (std::vector<uid_t>{::getuid(), ::getuid()}));
  EXPECT_NE(::access(options.address.path.c_str(), F_OK), 0);
}

TEST(HttpServerTest, AUnixSocketThatIsServedIsNotTaken) {
  const TempFolder folder;
  HttpOptions options;
  options.address.path = folder.path() + "/m.sock";
  const auto server = Serve(options);
  EXPECT_EQ(HttpServer::Create(options, nullptr).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Get(server->address(), "/hello"), EndsWith("hello\n"));
}

TEST(HttpServerTest, StrangersGiveWayToEachOtherOnly) {
  const TempFolder folder;
  HttpOptions options;
  options.address.path = folder.path() + "/m.sock";
  options.connections = 2;
  std::atomic<bool> admits{true};
  options.admits = [&](int) { return admits.load(); };
  const auto server = Serve(options);
  HttpConnection admitted(server->address());
  Get(server->address(), "/hello");  // the first one was accepted before
  admits = false;
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(Get(server->address(), "/hello"), StartsWith("HTTP/1.1 403 "));
  }
  EXPECT_TRUE(admitted.Send(kGet));
  EXPECT_THAT(admitted.ReadAll(), EndsWith("hello\n"));
}

TEST(HttpServerTest, APortThatIsTakenIsAnError) {
  const auto server = Serve(Loopback());
  HttpOptions options = Loopback();
  const std::string address = server->address();
  options.address.port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  const auto second = HttpServer::Create(options, nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("bind 127.0.0.1 port"));
}

TEST(HttpServerTest, ARequestMayComeInPieces) {
  const auto server = Serve(Loopback());
  HttpConnection connection(server->address());
  for (const char* c = kGet; *c != '\0'; ++c) ASSERT_TRUE(connection.Send(std::string(1, *c)));
  EXPECT_THAT(connection.ReadAll(), AllOf(StartsWith(kFine), EndsWith("hello\n")));
}

TEST(HttpServerTest, WhatFollowsTheFirstRequestIsNotAnswered) {
  const auto server = Serve(Loopback());
  std::string many;
  for (int i = 0; i < 100; ++i) many += kGet;
  const std::string answers = Ask(server->address(), many);
  EXPECT_THAT(answers, StartsWith(kFine));
  EXPECT_EQ(answers.rfind("HTTP/1.1"), 0u);
  EXPECT_THAT(Ask(server->address(),
                  "GET /hello HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + std::string(5000, 'b')),
              EndsWith("hello\n"));
}

TEST(HttpServerTest, ALongRequestIsRefused) {
  const auto server = Serve(Loopback());
  const std::string long_line = "GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n";
  const std::string long_header =
      "GET /hello HTTP/1.1\r\nX: " + std::string(100'000, 'a') + "\r\n\r\n";
  std::string many_headers = "GET /hello HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) many_headers += "A: b\r\n";
  for (const std::string& request : {long_line, long_header, many_headers}) {
    HttpConnection connection(server->address());
    connection.Send(request);  // the server may hang up before it has all
    const std::string answer = connection.ReadAll();
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 431 ")) << answer;
  }
  EXPECT_THAT(Get(server->address(), "/hello"), StartsWith(kFine));
}

TEST(HttpServerTest, WhatIsNoRequestIsRefused) {
  const auto server = Serve(Loopback());
  for (const std::string request :
       {"\r\n\r\n\r\n", "hello\r\n\r\n", "GET\r\n\r\n", "GET /hello\r\n\r\n",
        "GET /hello HTTP/9.9\r\n\r\n", "GET /hello HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /hello HTTP/1.1\r\n: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"}) {
    EXPECT_THAT(Ask(server->address(), request), StartsWith("HTTP/1.1 400 ")) << request;
  }
}

// Bytes by chance, and requests with some of them changed: each connection ends, and the server
// goes on.
TEST(HttpServerTest, SurvivesAnything) {
  HttpOptions options = Loopback();
  options.request_ns = 20'000'000;
  const auto server = Serve(options);
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::string request(random() % 3 == 0 ? "" : kGet);
    if (request.empty()) request.resize(random() % 300);
    for (size_t changes = 1 + random() % 8; changes > 0 && !request.empty(); --changes) {
      request[random() % request.size()] = static_cast<char>(random());
    }
    HttpConnection connection(server->address());
    ASSERT_TRUE(connection.connected());
    connection.Send(request);
    const std::string answer = connection.ReadAll();
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 ")) << "seed " << seed;
    if (HasFailure()) break;
  }
  // Whoever does not get a core for 20 ms is cut off, too.
  std::string answer;
  const int64_t until_ns = MonotonicNanos() + 20'000'000'000;
  while (!answer.starts_with(kFine) && MonotonicNanos() < until_ns) {
    answer = Get(server->address(), "/hello");
  }
  EXPECT_THAT(answer, StartsWith(kFine));
}

TEST(HttpServerTest, WhoSaysNothingIsCutOffAndHoldsNobodyUp) {
  HttpOptions options = Loopback();
  options.request_ns = 1'000'000'000;
  const auto server = Serve(options);
  HttpConnection silent(server->address()), slow(server->address());
  ASSERT_TRUE(slow.Send("GET /hello HTTP/1.1\r\nX: "));
  EXPECT_THAT(Get(server->address(), "/hello"), StartsWith(kFine));
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(slow.ReadAll(), "");
  AwaitDropped(server->address(), 2);
}

TEST(HttpServerTest, AByteNowAndThenDoesNotBuyTime) {
  HttpOptions options = Loopback();
  options.request_ns = 100'000'000;
  const auto server = Serve(options);
  HttpConnection slow(server->address());
  const int64_t deadline_ns = MonotonicNanos() + 10'000'000'000;
  ASSERT_TRUE(slow.Send("GET /hello HTTP/1.1\r\n"));
  // Each answered request of another client gives the slow one time for a byte more.
  while (slow.Send("a") && MonotonicNanos() < deadline_ns) Get(server->address(), "/hello");
  EXPECT_LT(MonotonicNanos(), deadline_ns);
}

TEST(HttpServerTest, WhoDoesNotReadIsCutOff) {
  HttpOptions options = Loopback();
  options.answer_ns = 100'000'000;
  const auto server = Serve(options);
  HttpConnection connection(server->address());
  ASSERT_TRUE(connection.Send("GET /large HTTP/1.1\r\n\r\n"));
  AwaitDropped(server->address(), 1);
  EXPECT_LT(connection.ReadAll().size(), 64u << 20);
}

TEST(HttpServerTest, WithTooManyConnectionsTheOldestGiveWay) {
  HttpOptions options = Loopback();
  options.connections = 8;
  options.request_ns = 60'000'000'000;
  const auto server = Serve(options);
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(std::make_unique<HttpConnection>(server->address()));
    ASSERT_TRUE(idle.back()->connected());
  }
  EXPECT_THAT(Get(server->address(), "/hello"), StartsWith(kFine));
  for (int i = 0; i < 92; ++i) EXPECT_EQ(idle[i]->ReadAll(), "") << i;
  ASSERT_TRUE(idle[99]->Send(kGet));  // among the newest: it is still there
  EXPECT_THAT(idle[99]->ReadAll(), StartsWith(kFine));
}

TEST(HttpServerTest, ThousandsOfConnectionsLeaveNothing) {
  const auto server = Serve(Loopback());
  Get(server->address(), "/hello");
  const size_t before = OpenDescriptors();
  constexpr int kRounds = 3000;
  uint64_t cut = 0;
  for (int i = 0; i < kRounds; ++i) {
    HttpConnection connection(server->address());
    ASSERT_TRUE(connection.connected());
    if (i % 3 == 1) connection.Send("GET /hel");
    if (i % 3 == 2) connection.Send(kGet);
    cut += i % 3 != 2;
  }
  AwaitDropped(server->address(), cut);
  EXPECT_THAT(Get(server->address(), "/hello"), StartsWith(kFine));
  EXPECT_LE(OpenDescriptors(), before + 2);  // of the last requests, which may still linger
}

TEST(HttpServerTest, EndsAtOnceWithConnectionsOpen) {
  HttpOptions options = Loopback();
  options.request_ns = 600'000'000'000;
  auto server = Serve(options);
  HttpConnection silent(server->address()), slow(server->address());
  ASSERT_TRUE(slow.Send("GET "));
  Get(server->address(), "/hello");  // both have been accepted
  server.reset();
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(slow.ReadAll(), "");
}

}  // namespace
}  // namespace spccl::daemon::metrics
