// An NCCL for tests: the functions that spccl uses, in a shared library to be loaded in NCCL's
// place, for ranks that are threads of one process or of several on this machine.
//
// It moves bytes on streams that are the test's, or the fake CUDA's. It obeys NCCL's rules and
// reports who does not, on stderr and by violations(), and ends the world's communicators with an
// error; so it does with what hangs with NCCL (a send and a receive of different sizes, groups in
// different orders). With SPCCL_FAKE_NCCL_VIOLATION=abort in the environment the process that finds
// a violation ends.
//
// Ranks of other processes come in by the id of a world, which names a socket of the process that
// made it: that one hands on what the others say, and has to live as long as the world. When a
// process with ranks of a world ends before the world does, the other communicators report
// ncclRemoteError; what they have on streams ends when they are aborted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collective/transport/nccl/abi.h"

namespace spccl {

// Thread-safe.
class FakeNccl {
 public:
  struct Options {
    uint64_t seed = 0;  // of how many times a call has to be asked for until it is through
    // How a host function gets on a stream: it runs when all that is before it is through, and
    // what is behind it waits; memory is then the host's. Null, as without Reset: streams and
    // memory are those of the fake CUDA that the process has loaded.
    void (*enqueue)(cuda::Stream stream, void (*function)(void*), void* argument) = nullptr;
    int version = 22809;
  };
  // Once before each test. No communicator may be alive.
  virtual void Reset(const Options& options) = 0;

  // From now on communicators that are being initialised stay so.
  virtual void HoldInit(bool hold) = 0;
  // The communicators of this rank report it from now on.
  virtual void FailRank(int rank, transport::nccl::Result error) = 0;
  // The rank has asked for its state and was told an error. Waits for that, for a minute at most.
  virtual bool AwaitTold(int rank) = 0;
  // Its GPU does nothing any more; nobody is told.
  virtual void StallRank(int rank) = 0;

  // From now on what is received differs from what was sent in this byte, where it has it.
  virtual void CorruptByte(size_t at) = 0;

  // What was done against the rules, in words.
  virtual std::vector<std::string> violations() = 0;
  virtual size_t live_communicators() = 0;
  // Groups that were launched, sends in them, and the most sends of one group of one rank.
  virtual uint64_t groups() = 0;
  virtual uint64_t sends() = 0;
  virtual uint64_t most_sends_a_group() = 0;

 protected:
  ~FakeNccl() = default;
};

}  // namespace spccl

// What the library exports beside NCCL's functions.
extern "C" spccl::FakeNccl* fake_nccl();
