// Runs a fuzzer's entry over files, and over a fixed number of mutations of each, where libFuzzer
// is not at hand: what was once found stays found in every build.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
constexpr int kMutations = 40;

void Run(const Bytes& bytes) {
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// Flips a few bits, writes an extreme, or cuts the end off.
void Mutate(Bytes& bytes, std::mt19937_64& rng) {
  if (bytes.empty()) return;
  const size_t at = rng() % (rng() % 2 == 0 ? std::min<size_t>(bytes.size(), 128) : bytes.size());
  switch (rng() % 4) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      bytes[at] = rng() % 2 == 0 ? 0xFF : 0x00;
      break;
    default:
      bytes[at] ^= static_cast<uint8_t>(1 << (rng() % 8));
      break;
  }
}

void Replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const Bytes seed(std::istreambuf_iterator<char>(file), {});
  Run(seed);
  std::mt19937_64 rng(seed.size() + 1);
  for (int i = 0; i < kMutations; ++i) {
    Bytes bytes = seed;
    for (uint64_t changes = 1 + rng() % 3; changes > 0; --changes) Mutate(bytes, rng);
    Run(bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::set<std::filesystem::path> paths;  // in order, so that every run is the same
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) paths.insert(entry.path());
    }
  }
  Run({});
  for (const auto& path : paths) Replay(path);
  std::printf("%zu seeds, %d mutations of each\n", paths.size(), kMutations);
  return paths.empty() && argc > 1 ? 1 : 0;
}
