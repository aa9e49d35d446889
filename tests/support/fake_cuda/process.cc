#include "tests/support/fake_cuda/process.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace spccl::fake_cuda {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): a driver is made of its names

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}
uint64_t Number(const char* name, uint64_t otherwise) {
  const std::string text = Variable(name);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 0);
}
std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}
int ToInt(const std::string& text) {
  return static_cast<int>(std::strtol(text.c_str(), nullptr, 0));
}

Settings ReadSettings() {
  Settings settings;
  const int gpus = static_cast<int>(Number("SPCCL_FAKE_GPUS", 2));
  if (std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) {
    for (int gpu = 0; gpu < gpus; ++gpu) settings.visible.push_back(gpu);
  } else {
    for (const std::string& gpu : Split(Variable("CUDA_VISIBLE_DEVICES"), ',')) {
      if (ToInt(gpu) < 0 || ToInt(gpu) >= gpus) break;  // as CUDA: nor those behind it
      settings.visible.push_back(ToInt(gpu));
    }
  }
  settings.bytes = Number("SPCCL_FAKE_GPU_BYTES", uint64_t{1} << 30);
  settings.granularity = Number("SPCCL_FAKE_CUDA_GRANULARITY", uint64_t{2} << 20);
  settings.host_access = Variable("SPCCL_FAKE_CUDA_HOST_ACCESS") != "0";
  settings.delay_us = Number("SPCCL_FAKE_CUDA_DELAY_US", 0);
  settings.stuck = Number("SPCCL_FAKE_CUDA_STUCK", 0);
  for (const std::string& pair : Split(Variable("SPCCL_FAKE_GPU_NO_PEERS"), ',')) {
    const auto ends = Split(pair, '-');
    if (ends.size() == 2) settings.no_peers.emplace_back(ToInt(ends[0]), ToInt(ends[1]));
  }
  for (const std::string& one : Split(Variable("SPCCL_FAKE_GPU_ATTRIBUTES"), ',')) {
    const auto sides = Split(one, '=');
    if (sides.size() != 2) continue;
    const auto of = Split(sides[0], ':');
    const int device = of.size() == 2 ? ToInt(of[0]) : kAnyDevice;
    settings.attributes[{device, ToInt(of.back())}] = ToInt(sides[1]);
  }
  return settings;
}

Result Start(Process& state) {
  state.settings = ReadSettings();
  if (state.settings.visible.empty()) return kErrorNoDevice;
  for (size_t device = 0; device < state.settings.visible.size(); ++device) {
    state.contexts.push_back(std::make_unique<ContextHandle>());
    state.contexts.back()->device = static_cast<int>(device);
  }
  for (const std::string& one : Split(Variable("SPCCL_FAKE_CUDA_FAIL"), ',')) {
    const auto parts = Split(one, ':');
    if (parts.size() != 3) continue;
    state.injected.emplace(parts[0],
                           Injected{static_cast<unsigned>(ToInt(parts[1])), ToInt(parts[2])});
  }
  state.pid = ::getpid();
  state.initialised = true;
  return kSuccess;
}

// The error that a test wants this call to end with.
Result TakeInjected(const char* symbol) {
  Process& state = process();
  Result result = kSuccess;
  auto [at, end] = state.injected.equal_range(symbol);
  while (at != end) {
    const auto one = at++;
    if (--one->second.calls_left > 0) continue;
    result = one->second.error;
    state.injected.erase(one);
  }
  return result;
}

}  // namespace

Process& process() {
  static Process* const state = new Process;
  return *state;
}

ThreadState& this_thread() {
  static thread_local ThreadState state;
  return state;
}

Result Misuse(Result code, const std::string& rule) {
  const char* const mode = std::getenv("SPCCL_FAKE_CUDA_MISUSE");
  std::fprintf(stderr, "fake CUDA: misuse: %s\n", rule.c_str());
  process().misuses.fetch_add(1);
  if (mode == nullptr || std::string(mode) != "error") std::abort();
  return code;
}

Context Current() {
  const auto& stack = this_thread().current;
  return stack.empty() ? nullptr : stack.back();
}

Result CheckFork(const char* symbol) {
  const pid_t owner = process().pid.load();
  if (owner == 0 || owner == ::getpid()) return kSuccess;
  return Misuse(kErrorNotInitialized,
                std::string(symbol) + " called in a process forked after cuInit");
}

Result Enter(const char* symbol, Needs needs) {
  Process& state = process();
  if (this_thread().running != nullptr) {
    return Misuse(kErrorNotPermitted,
                  std::string(symbol) + " called by a host function or a kernel: they may not");
  }
  if (needs == Needs::kNothing) return TakeInjected(symbol);
  if (!state.initialised) return kErrorNotInitialized;
  if (needs == Needs::kContext) {
    const Context current = Current();
    if (current == nullptr) return kErrorInvalidContext;
    if (current->retained == 0) return kErrorContextIsDestroyed;
    if (const Result broken = current->broken.load(); broken != kSuccess) return broken;
  }
  return TakeInjected(symbol);
}

bool CanReachPeer(int device, int owner) {
  const Settings& settings = process().settings;
  const int one = settings.visible[device], other = settings.visible[owner];
  for (const auto& [a, b] : settings.no_peers) {
    if ((a == one && b == other) || (a == other && b == one)) return false;
  }
  return true;
}

}  // namespace spccl::fake_cuda

namespace spccl::cuda {

using fake_cuda::process;

SPCCL_FAKE_EXPORT Result cuInit(unsigned flags) {
  return fake_cuda::Call("cuInit", fake_cuda::Needs::kNothing, [&](fake_cuda::Lock&) {
    if (flags != 0) return kErrorInvalidValue;
    fake_cuda::Process& state = process();
    return state.initialised ? kSuccess : fake_cuda::Start(state);
  });
}

}  // namespace spccl::cuda

SPCCL_FAKE_EXPORT void spcclFakeFail(const char* symbol, unsigned nth, spccl::cuda::Result error) {
  const spccl::fake_cuda::Inside inside;
  spccl::fake_cuda::Process& state = spccl::fake_cuda::process();
  const spccl::fake_cuda::Lock lock(state.mutex);
  state.injected.emplace(symbol, spccl::fake_cuda::Injected{nth, error});
}

SPCCL_FAKE_EXPORT uint64_t spcclFakeMisuses() {
  return spccl::fake_cuda::process().misuses.load();
}
