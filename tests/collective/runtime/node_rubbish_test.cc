// A peer that sends rubbish: whatever it is, the operation fails and names its sender.
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "gtest/gtest.h"
#include "kernels/format.h"
#include "tests/collective/runtime/cluster.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

using policy::Algorithm;
using policy::Codec;

// What arrives next is changed by `spoil`, at any moment of the operation: its receiver fails and
// names the sender; nobody crashes.
// Where `spoiled` says that it has changed nothing, all must succeed.
void ExpectRefused(const ClusterCase& c, uint64_t skip,
                   const std::function<void(transport::FakeNet*, uint32_t*)>& spoil,
                   const bool* spoiled = nullptr) {
  Cluster cluster(c, InputsOf(c));
  spccl::testing::ScratchMemory scratch;
  const auto run_all = [&] {
    for (uint32_t node = 0; node < c.nodes(); ++node) {
      while (cluster.box(node).calls() == 0 &&
             cluster.task(node).RunOne(scratch.span()) == Progress::kRan) {
      }
    }
  };
  run_all();
  for (uint64_t i = 0; i < skip; ++i) {
    if (!cluster.net().DeliverOne()) break;
    run_all();
  }
  uint32_t sender = UINT32_MAX;
  spoil(&cluster.net(), &sender);
  cluster.Alternate();
  if (sender == UINT32_MAX) return;  // nothing was left to spoil
  int refused = 0;
  for (uint32_t node = 0; node < c.nodes(); ++node) {
    if (cluster.box(node).calls() == 0) {
      cluster.task(node).Cancel(absl::AbortedError("another node failed"), -1);
      continue;
    }
    const OpResult result = *cluster.box(node).result();
    if (result.status.ok()) continue;
    ++refused;
    EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss) << result.status;
    EXPECT_EQ(result.culprit_rank, static_cast<int>(sender));
  }
  EXPECT_EQ(refused, spoiled == nullptr || *spoiled ? 1 : 0);
}

TEST(NodeRubbishTest, EveryWrongBitOfAHeaderIsItsSendersFault) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  for (const Algorithm algorithm : {Algorithm::kRecursiveDoubling, Algorithm::kSplit}) {
    for (size_t bit = 0; bit < sizeof(FrameHeader) * 8; ++bit) {
      ClusterCase c;
      c.algorithm = algorithm;
      c.op = {.count = 2000};
      c.node_of_rank = {0, 1, 2};
      c.seed = seed;
      SCOPED_TRACE(absl::StrCat(Describe(c), " bit ", bit));
      ExpectRefused(c, random() % 20, [&](transport::FakeNet* net, uint32_t* sender) {
        net->RetagNext([sender](transport::Tag* tag) { *sender = tag->from; });
        net->CorruptNext([bit](transport::Frame* frame) {
          frame->data()[bit / 8] ^= std::byte{1} << (bit % 8);
        });
      });
    }
  }
}

TEST(NodeRubbishTest, WrongSizesAndTagsAreTheirSendersFault) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const std::function<void(transport::Frame*)> sizes[] = {
      [](transport::Frame* frame) { frame->set_size_bytes(0); },
      [](transport::Frame* frame) { frame->set_size_bytes(47); },
      [](transport::Frame* frame) { frame->set_size_bytes(frame->size_bytes() - 1); },
      [](transport::Frame* frame) { frame->set_size_bytes(frame->size_bytes() + 1); },
  };
  const std::function<void(transport::Tag*)> tags[] = {
      [](transport::Tag* tag) { tag->chunk = UINT32_MAX; },
      [](transport::Tag* tag) {
        tag->phase = tag->phase == Phase::kAllGather ? Phase::kReduceScatter : Phase::kAllGather;
      },
      [](transport::Tag* tag) { tag->lane = UINT64_MAX; },
      [](transport::Tag* tag) { tag->lane = 1'000'000; },
      [](transport::Tag* tag) { tag->to = UINT32_MAX; },
      [](transport::Tag* tag) { tag->to = 3; },  // no participant's lowest rank
      [](transport::Tag* tag) { tag->to = tag->from; },
  };
  for (int round = 0; round < 10; ++round) {
    ClusterCase c;
    c.algorithm = round % 2 == 0 ? Algorithm::kHalvingDoubling : Algorithm::kTwoLevelRing;
    c.op = {.count = 2000};
    c.node_of_rank = {0, 1, 2, 1};
    c.seed = seed + static_cast<uint64_t>(round);
    for (const auto& size : sizes) {
      ExpectRefused(c, random() % 20, [&](transport::FakeNet* net, uint32_t* sender) {
        net->RetagNext([sender](transport::Tag* tag) { *sender = tag->from; });
        net->CorruptNext(size);
      });
    }
    for (const auto& lie : tags) {
      ExpectRefused(c, random() % 20, [&](transport::FakeNet* net, uint32_t* sender) {
        net->RetagNext([sender, &lie](transport::Tag* tag) {
          *sender = tag->from;
          lie(tag);
        });
      });
    }
  }
}

// A lie about a frame, told with a checksum that is right for it. Returns whether it says something
// else than the truth.
using Lie = std::function<bool(FrameHeader*)>;

template <class T>
std::vector<Lie> LiesAbout(T FrameHeader::*field) {
  std::vector<Lie> lies;
  const auto add = [&](std::function<T(T)> instead) {
    lies.push_back([field, instead](FrameHeader* header) {
      const T truth = std::exchange(header->*field, instead(header->*field));
      return header->*field != truth;
    });
  };
  add([](T) { return T{0}; });
  add([](T) { return T{1}; });
  add([](T truth) { return static_cast<T>(truth + 1); });
  add([](T truth) { return static_cast<T>(truth - 1); });
  add([](T truth) { return static_cast<T>(truth + 16); });  // as aligned as the truth
  add([](T) { return std::numeric_limits<T>::max(); });
  add([](T) { return static_cast<T>(std::numeric_limits<T>::max() / 2 + 1); });
  return lies;
}

// Every length, offset, count and code of the header at its extremes, and sections that are not
// what the header says: the checksum is right, so only the checks of the fields themselves can find
// it.
TEST(NodeRubbishTest, ALieWithARightChecksumIsItsSendersFault) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  std::vector<Lie> lies;
  const auto add = [&lies](std::vector<Lie> more) {
    lies.insert(lies.end(), more.begin(), more.end());
  };
  add(LiesAbout(&FrameHeader::magic));
  add(LiesAbout(&FrameHeader::version));
  add(LiesAbout(&FrameHeader::format));
  add(LiesAbout(&FrameHeader::dtype));
  add(LiesAbout(&FrameHeader::reserved));
  add(LiesAbout(&FrameHeader::element_count));
  add(LiesAbout(&FrameHeader::nnz));
  add(LiesAbout(&FrameHeader::payload_bytes));
  add(LiesAbout(&FrameHeader::bitmap_offset));
  add(LiesAbout(&FrameHeader::index_offset));
  add(LiesAbout(&FrameHeader::values_offset));
  int told = 0;
  for (const Codec codec :
       {Codec::kDense, Codec::kPici, Codec::kPiciColumn, Codec::kCoo, Codec::kGap}) {
    for (size_t lie = 0; lie < lies.size(); ++lie) {
      ClusterCase c;
      c.algorithm = lie % 2 == 0 ? Algorithm::kSplit : Algorithm::kRecursiveDoubling;
      c.op = {.count = 2000};
      c.node_of_rank = {0, 1, 2};
      c.settings.codec = codec;
      c.seed = seed;
      SCOPED_TRACE(absl::StrCat(Describe(c), " lie ", lie));
      bool is_lie = false;
      ExpectRefused(
          c, random() % 20,
          [&](transport::FakeNet* net, uint32_t* sender) {
            net->RetagNext([sender](transport::Tag* tag) { *sender = tag->from; });
            net->CorruptNext([&](transport::Frame* frame) {
              FrameHeader header;
              std::memcpy(&header, frame->data(), sizeof header);
              is_lie = lies[lie](&header);
              header.header_crc = Crc32c(&header, offsetof(FrameHeader, header_crc));
              std::memcpy(frame->data(), &header, sizeof header);
            });
          },
          &is_lie);
      told += is_lie;
    }
  }
  EXPECT_GT(told, static_cast<int>(lies.size()) * 4);  // of 5 codecs; some are true by chance
}

TEST(NodeRubbishTest, SectionsThatAreNotWhatTheHeaderSaysAreTheirSendersFault) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  int told = 0;
  for (const Codec codec : {Codec::kPici, Codec::kPiciColumn, Codec::kCoo, Codec::kGap}) {
    for (const int fill : {0x00, 0xff, 0x55}) {
      for (int round = 0; round < 5; ++round) {
        ClusterCase c;
        c.algorithm = Algorithm::kSplit;
        c.op = {.count = 20'000};
        c.node_of_rank = {0, 1, 2};
        c.settings.codec = codec;
        c.slice_bytes = 4096;
        c.seed = seed;
        SCOPED_TRACE(absl::StrCat(Describe(c), " fill ", fill));
        bool is_lie = false;
        ExpectRefused(
            c, random() % 20,
            [&](transport::FakeNet* net, uint32_t* sender) {
              net->RetagNext([sender](transport::Tag* tag) { *sender = tag->from; });
              net->CorruptNext([&](transport::Frame* frame) {
                FrameHeader header;
                std::memcpy(&header, frame->data(), sizeof header);
                const size_t sections = header.values_offset - sizeof header;
                is_lie = header.format != static_cast<uint8_t>(Format::kDense) && header.nnz > 1;
                if (is_lie) std::memset(frame->data() + sizeof header, fill, sections);
              });
            },
            &is_lie);
        told += is_lie;
      }
    }
  }
  EXPECT_GT(told, 20);
}

}  // namespace
}  // namespace spccl::runtime
