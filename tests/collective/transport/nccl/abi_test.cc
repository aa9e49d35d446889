// Compares what collective/transport/nccl/abi.h says of NCCL with its own header, where that is
// found.
#include "collective/transport/nccl/abi.h"

#include <gtest/gtest.h>

#include <type_traits>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

namespace spccl::transport::nccl {
namespace {

static_assert(kSuccess == ncclSuccess && kUnhandledCudaError == ncclUnhandledCudaError &&
              kSystemError == ncclSystemError && kInternalError == ncclInternalError &&
              kInvalidArgument == ncclInvalidArgument && kInvalidUsage == ncclInvalidUsage &&
              kRemoteError == ncclRemoteError && kInProgress == ncclInProgress);
static_assert(sizeof(Result) == sizeof(ncclResult_t) && sizeof(DataType) == sizeof(ncclDataType_t));
static_assert(kUint8 == ncclUint8);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && kUniqueIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(kConfigUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(VersionCode(2, 28, 9) == NCCL_VERSION(2, 28, 9));

// Ours is how it begins.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
#define SPCCL_SAME_FIELD(OURS, THEIRS)                                      \
  static_assert(offsetof(Config, OURS) == offsetof(ncclConfig_t, THEIRS) && \
                sizeof(Config::OURS) == sizeof(ncclConfig_t::THEIRS))
SPCCL_SAME_FIELD(size, size);
SPCCL_SAME_FIELD(magic, magic);
SPCCL_SAME_FIELD(version, version);
SPCCL_SAME_FIELD(blocking, blocking);
SPCCL_SAME_FIELD(cga_cluster_size, cgaClusterSize);
SPCCL_SAME_FIELD(min_ctas, minCTAs);
SPCCL_SAME_FIELD(max_ctas, maxCTAs);
SPCCL_SAME_FIELD(net_name, netName);
SPCCL_SAME_FIELD(split_share, splitShare);

// Ours for theirs.
template <typename T>
struct Ours {
  using Type = T;
};
template <>
struct Ours<ncclResult_t> {
  using Type = Result;
};
template <>
struct Ours<ncclDataType_t> {
  using Type = DataType;
};
template <>
struct Ours<ncclUniqueId> {
  using Type = UniqueId;
};
template <>
struct Ours<ncclConfig_t> {
  using Type = Config;
};
template <>
struct Ours<ncclComm> {
  using Type = std::remove_pointer_t<Comm>;
};
template <>
struct Ours<CUstream_st> {
  using Type = std::remove_pointer_t<cuda::Stream>;
};
template <typename T>
struct Ours<T*> {
  using Type = typename Ours<T>::Type*;
};
template <typename R, typename... A>
struct Ours<R(A...)> {
  using Type = typename Ours<R>::Type(typename Ours<A>::Type...);
};

#define SPCCL_SAME_FUNCTION(RETURNS, NAME, SYMBOL, PARAMETERS) \
  static_assert(std::is_same_v<RETURNS PARAMETERS, Ours<decltype(::SYMBOL)>::Type>, #SYMBOL);
SPCCL_NCCL_FUNCTIONS(SPCCL_SAME_FUNCTION)

TEST(NcclAbiTest, IsThatOfItsHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(Config().magic, theirs.magic);
  EXPECT_EQ(Config().blocking, theirs.blocking);
  EXPECT_LE(Config().version, theirs.version);
}

}  // namespace
}  // namespace spccl::transport::nccl

#else

TEST(NcclAbiTest, IsThatOfItsHeader) {
  GTEST_SKIP() << "there is no nccl.h here";
}

#endif
