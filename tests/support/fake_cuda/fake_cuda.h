// What the fake CUDA has beyond the driver's functions, for tests only.
//
// libspccl_fake_cuda.so is a CUDA driver whose GPUs are shared memory and threads: what loads it
// through base/cuda/driver.h cannot tell it from a GPU's, between processes either. It obeys the
// rules of the CUDA Driver API reference, and only those: work runs asynchronously, one thread a
// stream, and memory is ordered only where CUDA orders it, which ThreadSanitizer sees. A rule that
// is broken ends the process with a line "fake CUDA: misuse: ...".
//
// A device pointer is an address of this process (as with unified addressing), and the CPU may read
// the memory there. Code under test must not rely on it: on a GPU it would crash, and so it does
// with SPCCL_FAKE_CUDA_HOST_ACCESS=0. Tests that look at memory directly do so after a wait, where
// a copy would be ordered as well.
//
// Environment, read by cuInit:
//   SPCCL_FAKE_GPUS=2             GPUs of the node
//   CUDA_VISIBLE_DEVICES=1,0      as CUDA has it: those of them that the process sees; numbers only
//   SPCCL_FAKE_GPU_BYTES=BYTES    memory of each, as far as one process sees (1 GiB)
//   SPCCL_FAKE_GPU_NO_PEERS=0-1   pairs that cannot reach each other, with commas between
//   SPCCL_FAKE_GPU_ATTRIBUTES=103=0   attributes (cuda::kDeviceAttribute...) unlike the usual;
//                                 1:103=0 of the process's device 1 only
//   SPCCL_FAKE_CUDA_GRANULARITY=BYTES  of cuMemCreate; a power of two, at least a page (2 MiB)
//   SPCCL_FAKE_CUDA_HOST_ACCESS=0 the CPU crashes where it touches device memory; kernels that
//   tests
//                                 bring find it by spcclFakeReach() or spcclFakeHere()
//   SPCCL_FAKE_CUDA_MISUSE=error  misuse returns the documented error instead of ending the process
//   SPCCL_FAKE_CUDA_FAIL=cuMemAlloc_v2:3:2   the third call of it fails with error 2; with commas
//   SPCCL_FAKE_CUDA_STUCK=N       the process's Nth operation of a stream never ends
//   SPCCL_FAKE_CUDA_DELAY_US=N    every operation of a stream begins up to so much later, at random
//
// Not there: anything that spccl does not call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/abi.h"

extern "C" {

// Enqueues `function(argument)` as a kernel: on the stream's thread, after what was enqueued
// before. Captured, it runs at every launch of the graph. `drop(argument)` is called once, when it
// will run no more; may be null. The stream's context must be current, as for a real launch.
spccl::cuda::Result spcclFakeLaunch(spccl::cuda::Stream stream, void (*function)(void*),
                                    void* argument, void (*drop)(void*));

// Within a kernel: checks that the GPU that it runs on reaches [pointer, pointer + bytes), and
// returns where the CPU finds it. nullptr: it does not, which has been reported as misuse, and
// broke the context. 0 bytes are always reached.
void* spcclFakeReach(spccl::cuda::DevicePtr pointer, size_t bytes);

// Where the CPU finds what a device pointer names, or will, without a check; host memory is where
// it is. For those who check by spcclFakeReach() later.
void* spcclFakeHere(spccl::cuda::DevicePtr pointer);

// The device that the kernel runs on, or -1 outside kernels.
int spcclFakeKernelDevice();

// From now on, the `nth` call (1: the next) of a driver's function, by its symbol, returns `error`.
void spcclFakeFail(const char* symbol, unsigned nth, spccl::cuda::Result error);

// As if a kernel had crashed: every later call that uses the device's context returns `error`, and
// its streams do nothing more.
void spcclFakeBreakDevice(spccl::cuda::Device device, spccl::cuda::Result error);

// From now on host functions of all streams run one at a time (1), as a driver may do it, or each
// on its stream's thread (0, at first).
void spcclFakeOneHostFunctionAtATime(int on);
// Those that have begun so far.
uint64_t spcclFakeHostFunctions();

// Rules broken so far, where that does not end the process.
uint64_t spcclFakeMisuses();

// What the process holds: memory blocks (device memory, imported and mapped), registered host
// memory, streams and events that have not been destroyed. For tests of leaks.
struct spcclFakeHoldings {
  uint64_t allocations, imports, mappings, handles, reservations, host, streams, events, graphs;
};
void spcclFakeCount(spcclFakeHoldings* holdings);

}  // extern "C"
