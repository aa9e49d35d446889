// How fast frames travel between two hosts. Run by tests/collective/transport/ucx/bench.sh.
//
//   fabric_bench serve PORT
//   fabric_bench connect ADDRESS PORT [--frame BYTES] [--ms MILLISECONDS] [--workers N]
//                                     [--spin NS] [--rendezvous 0|1]
//
// Prints a line: frame bytes, Gbit/s one way, Gbit/s of both ways together, the
// processor time of both hosts in each (processors), and the one-way time of
// a small frame in microseconds (half a round trip, median).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/clock.h"
#include "base/status.h"
#include "tests/collective/transport/ucx/fabric_support.h"

namespace spccl::transport::ucx {
namespace {

struct BenchOptions {
  uint64_t frame_bytes = 256 << 10;
  uint64_t milliseconds = 1000;
  uint64_t workers = 2;
  uint64_t spin_ns = 50'000;
  uint64_t rendezvous = 0;
};

void WriteAll(int fd, const void* data, size_t size) {
  SPCCL_CHECK(::send(fd, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}
void ReadAll(int fd, void* data, size_t size) {
  SPCCL_CHECK(::recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size));
}

int Meet(bool serve, const char* address, int port) {
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (serve) {
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    SPCCL_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)) == 0);
    SPCCL_CHECK(::listen(fd, 1) == 0);
    return ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
  }
  SPCCL_CHECK(::inet_pton(AF_INET, address, &where.sin_addr) == 1);
  SPCCL_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)) == 0);
  return fd;
}

// Sends `window` frames at first, then one for each that arrives; the other side does the same.
class Bench : public Sink {
 public:
  Bench(Transport* transport, uint32_t self, bool echo)
      : transport_(transport), self_(self), echo_(echo) {}
  void OnFrame(const Tag& tag, Frame frame) override {
    const std::lock_guard lock(mutex_);
    bytes_ += frame.size_bytes();
    ++frames_;
    if (echo_)
      (void)transport_->Send({.from = self_, .to = 1 - self_, .lane = tag.lane}, std::move(frame));
    changed_.notify_all();
  }
  void OnPeerFailed(uint32_t rank, absl::Status reason) override {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }
  // Waits until so many frames have arrived; false if the peer is gone.
  bool Await(uint64_t frames) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || frames_ >= frames; });
    return !failed_;
  }
  uint64_t frames() {
    const std::lock_guard lock(mutex_);
    return frames_;
  }

 private:
  Transport* const transport_;
  const uint32_t self_;
  const bool echo_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t bytes_ = 0, frames_ = 0;
  bool failed_ = false;
};

constexpr uint64_t kWindow = 16, kLanes = 8;

struct Side {
  int fd = -1;
  uint32_t self = 0;
  Communicator* communicator = nullptr;

  std::unique_ptr<Transport> Open(uint64_t sequence) const {
    auto opened = communicator->OpenOperation(Operation(sequence));
    SPCCL_CHECK(opened.ok());
    return *std::move(opened);
  }
  void Barrier() const {
    char byte = 1;
    WriteAll(fd, &byte, 1);
    ReadAll(fd, &byte, 1);
  }
};

double CpuSeconds() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Rate {
  double gbps = 0;         // of what came here
  double cpu_seconds = 0;  // of this process, a second
};

// Frames go round: the connecting side starts `window`, both send back what comes. With
// `one_way` the serving side answers with small ones.
Rate Throughput(const Side& side, const BenchOptions& settings, uint64_t sequence, bool one_way) {
  const auto transport = side.Open(sequence);
  class Pump : public Sink {
   public:
    void OnFrame(const Tag& tag, Frame frame) override {
      got += frame.size_bytes();
      const uint64_t bytes = reply_bytes == 0 ? frame.size_bytes() : reply_bytes;
      if (!stop.load()) Send(tag.lane, bytes);
    }
    void OnPeerFailed(uint32_t rank, absl::Status reason) override { stop = true; }
    void Send(uint64_t lane, uint64_t bytes) {
      Frame frame = FramePool::Shared().Take(bytes);
      frame.set_size_bytes(bytes);
      (void)transport->Send({.from = self, .to = 1 - self, .lane = lane}, std::move(frame));
    }
    Transport* transport;
    uint32_t self;
    uint64_t reply_bytes = 0;
    std::atomic<uint64_t> got{0};
    std::atomic<bool> stop{false};
  } pump;
  pump.transport = transport.get();
  pump.self = side.self;
  if (one_way) pump.reply_bytes = side.self == 0 ? settings.frame_bytes : 64;
  transport->Start(&pump);
  side.Barrier();
  if (side.self == 0) {
    for (uint64_t lane = 0; lane < (one_way ? 1 : 2) * kWindow; ++lane) {
      pump.Send(lane % kLanes, settings.frame_bytes);
    }
  }
  ::usleep(200'000);  // slow start
  const uint64_t before = pump.got;
  const double cpu = CpuSeconds();
  const int64_t begin = MonotonicNanos();
  ::usleep(settings.milliseconds * 1000);
  const double seconds = static_cast<double>(MonotonicNanos() - begin) * 1e-9;
  const uint64_t bytes = pump.got - before;
  const Rate rate = {static_cast<double>(bytes) * 8e-9 / seconds, (CpuSeconds() - cpu) / seconds};
  side.Barrier();
  pump.stop = true;
  transport->Stop();
  side.Barrier();
  return rate;
}

double Latency(const Side& side, uint64_t sequence) {
  const auto transport = side.Open(sequence);
  Bench bench(transport.get(), side.self, side.self == 1);
  transport->Start(&bench);
  side.Barrier();
  std::vector<int64_t> rounds;
  if (side.self == 0) {
    for (uint64_t round = 0; round < 2000; ++round) {
      const int64_t start = MonotonicNanos();
      (void)transport->Send({.from = 0, .to = 1}, MakeFrame(64, round));
      if (!bench.Await(round + 1)) break;
      rounds.push_back(MonotonicNanos() - start);
    }
  }
  side.Barrier();
  transport->Stop();
  if (rounds.empty()) return 0;
  std::nth_element(rounds.begin(), rounds.begin() + rounds.size() / 2, rounds.end());
  return static_cast<double>(rounds[rounds.size() / 2]) * 0.5e-3;
}

int Run(bool serve, const char* address, int port, BenchOptions settings) {
  Side side;
  side.fd = Meet(serve, address, port);
  side.self = serve ? 1 : 0;
  if (serve) {
    ReadAll(side.fd, &settings, sizeof(settings));
  } else {
    WriteAll(side.fd, &settings, sizeof(settings));
  }
  auto fabric = Fabric::Create({.workers = static_cast<uint32_t>(settings.workers),
                                .most_spin_ns = static_cast<int64_t>(settings.spin_ns),
                                .rendezvous_over_tcp = settings.rendezvous != 0});
  SPCCL_CHECK(fabric.ok());
  const Offer own = (*fabric)->MakeOffer();
  std::string bytes = FormatOffer(own);
  uint32_t size = static_cast<uint32_t>(bytes.size());
  WriteAll(side.fd, &size, sizeof(size));
  WriteAll(side.fd, bytes.data(), size);
  ReadAll(side.fd, &size, sizeof(size));
  bytes.resize(size);
  ReadAll(side.fd, bytes.data(), size);
  const auto peer = ParseOffer(bytes);
  SPCCL_CHECK(peer.ok());
  Event up;
  auto link =
      (*fabric)->Connect({.name = "peer", .own = own, .peer = *peer, .on_up = [&] { up.Set(); }});
  SPCCL_CHECK(link.ok() && up.Await());
  std::vector<std::shared_ptr<Link>> links(2);
  links[1 - side.self] = *link;
  auto communicator = (*fabric)->OpenCommunicator({Key128{1, 1}, links});
  SPCCL_CHECK(communicator.ok());
  side.communicator = communicator->get();
  side.Barrier();
  const double latency_us = Latency(side, 1);
  const Rate here[2] = {Throughput(side, settings, 2, true), Throughput(side, settings, 3, false)};
  Rate there[2];
  if (serve) {
    WriteAll(side.fd, here, sizeof(here));
  } else {
    ReadAll(side.fd, there, sizeof(there));
    const double both = here[1].gbps + there[1].gbps;
    std::printf(
        "%s workers %lu frame %lu one_way_gbps %.3f cpus %.2f both_gbps %.3f cpus %.2f "
        "latency_us %.1f\n",
        (*link)->DescribeRoute().c_str(), settings.workers, settings.frame_bytes, there[0].gbps,
        here[0].cpu_seconds + there[0].cpu_seconds, both,
        here[1].cpu_seconds + there[1].cpu_seconds, latency_us);
  }
  side.Barrier();
  return 0;
}

}  // namespace
}  // namespace spccl::transport::ucx

int main(int argc, char** argv) {
  using spccl::transport::ucx::Run;
  spccl::transport::ucx::BenchOptions settings;
  std::map<std::string, uint64_t*> options = {{"--frame", &settings.frame_bytes},
                                              {"--ms", &settings.milliseconds},
                                              {"--workers", &settings.workers},
                                              {"--spin", &settings.spin_ns},
                                              {"--rendezvous", &settings.rendezvous}};
  const std::string mode = argc > 1 ? argv[1] : "";
  const int fixed = mode == "serve" ? 3 : 4;
  if ((mode != "serve" && mode != "connect") || argc < fixed || (argc - fixed) % 2 != 0) {
    std::fprintf(stderr, "see the head of fabric_bench.cc\n");
    return 1;
  }
  for (int at = fixed; at < argc; at += 2) {
    const auto option = options.find(argv[at]);
    if (option == options.end()) return 1;
    *option->second = std::strtoull(argv[at + 1], nullptr, 10);
  }
  return Run(mode == "serve", argv[2], std::atoi(argv[fixed - 1]), settings);
}
