// The part of NCCL's binary interface that spccl uses, written down by name and value.
//
// NCCL is met at run time, as CUDA is (docs/adr/0019-gpus.md): no header of it is included. Where
// one is found, tests/collective/transport/nccl/abi_test.cc compares everything here with it. Names
// are nccl.h's without their prefix; the meaning is in NCCL's API reference, under the same names.
#pragma once

#include <climits>
#include <cstddef>

#include "base/cuda/abi.h"

namespace spccl::transport::nccl {

using Result = int;  // ncclResult_t
inline constexpr Result kSuccess = 0;
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

using Comm = struct CommHandle*;  // ncclComm_t

inline constexpr size_t kUniqueIdBytes = 128;
struct UniqueId {
  char internal[kUniqueIdBytes];
};

using DataType = int;  // ncclDataType_t
inline constexpr DataType kUint8 = 1;

// NCCL's numbers of versions, from 2.9 on.
constexpr int VersionCode(int major, int minor, int patch) {
  return major * 10000 + minor * 100 + patch;
}

inline constexpr int kConfigUndefined = INT_MIN;
inline constexpr unsigned kConfigMagic = 0xcafebeef;

// ncclConfig_t as of 2.18, with which every later one begins. `size` and `version` say which it is,
// and a later library takes its own defaults for what came after; NCCLX adds fields of its own
// there, which so are left alone.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = kConfigMagic;
  unsigned version = VersionCode(2, 18, 0);
  int blocking = kConfigUndefined;
  int cga_cluster_size = kConfigUndefined;
  int min_ctas = kConfigUndefined;
  int max_ctas = kConfigUndefined;
  const char* net_name = nullptr;
  int split_share = kConfigUndefined;
};
static_assert(sizeof(Config) == 48 && offsetof(Config, split_share) == 40);

// Every function of NCCL that spccl calls: what it is called here, the symbol that the library
// exports, and its parameters. RETURNS, NAME, SYMBOL, PARAMETERS.
#define SPCCL_NCCL_FUNCTIONS(F)                                                                \
  F(Result, GetVersion, ncclGetVersion, (int* version))                                        \
  F(Result, GetUniqueId, ncclGetUniqueId, (UniqueId * id))                                     \
  F(Result, CommInitRankConfig, ncclCommInitRankConfig,                                        \
    (Comm * comm, int ranks, UniqueId id, int rank, Config* config))                           \
  F(Result, CommFinalize, ncclCommFinalize, (Comm comm))                                       \
  F(Result, CommDestroy, ncclCommDestroy, (Comm comm))                                         \
  F(Result, CommAbort, ncclCommAbort, (Comm comm))                                             \
  F(Result, CommGetAsyncError, ncclCommGetAsyncError, (Comm comm, Result * error))             \
  F(const char*, GetErrorString, ncclGetErrorString, (Result result))                          \
  F(const char*, GetLastError, ncclGetLastError, (Comm comm))                                  \
  F(Result, GroupStart, ncclGroupStart, ())                                                    \
  F(Result, GroupEnd, ncclGroupEnd, ())                                                        \
  F(Result, Send, ncclSend,                                                                    \
    (const void* data, size_t count, DataType type, int peer, Comm comm, cuda::Stream stream)) \
  F(Result, Recv, ncclRecv,                                                                    \
    (void* data, size_t count, DataType type, int peer, Comm comm, cuda::Stream stream))

}  // namespace spccl::transport::nccl
