// By what the jobs that send over a link share it.
#pragma once

#include <atomic>
#include <cstdint>

namespace spccl::transport {

// One a job, held by all its communicators; jobs are told apart by it. The weight may change at any
// time, from 1 on: relaxed, it orders nothing.
struct LinkShare {
  std::atomic<uint32_t> weight{1};
};

}  // namespace spccl::transport
