/* What clients have compiled into themselves: numbers of enumerations, layouts, types of functions.
 * Whoever changes one of these breaks every program that is out there. New values and functions go
 * behind those that are here. Compiled against the current header and against those of releases. */
#include <stddef.h>

#include "spccl/spccl.h"

#define IS(name, value) \
  _Static_assert((name) == (value), #name " has changed: clients were compiled with " #value)

IS(spcclSuccess, 0);
IS(spcclUnhandledCudaError, 1);
IS(spcclSystemError, 2);
IS(spcclInternalError, 3);
IS(spcclInvalidArgument, 4);
IS(spcclInvalidUsage, 5);
IS(spcclRemoteError, 6);
IS(spcclInProgress, 7);
_Static_assert(spcclNumResults >= 8, "results are added, never removed");

IS(spcclSum, 0);
IS(spcclProd, 1);
IS(spcclMax, 2);
IS(spcclMin, 3);
IS(spcclAvg, 4);
_Static_assert(spcclNumOps >= 5, "operations are added, never removed");

IS(spcclInt8, 0);
IS(spcclChar, 0);
IS(spcclUint8, 1);
IS(spcclInt32, 2);
IS(spcclInt, 2);
IS(spcclUint32, 3);
IS(spcclInt64, 4);
IS(spcclUint64, 5);
IS(spcclFloat16, 6);
IS(spcclHalf, 6);
IS(spcclFloat32, 7);
IS(spcclFloat, 7);
IS(spcclFloat64, 8);
IS(spcclDouble, 8);
IS(spcclBfloat16, 9);
_Static_assert(spcclNumTypes >= 10, "types are added, never removed");

IS(spcclCodecAuto, 0);
IS(spcclCodecDense, 1);
IS(spcclCodecPici, 2);
IS(spcclCodecPiciColumn, 3);
IS(spcclCodecCoo, 4);
IS(spcclCodecGap, 5);
IS(spcclCodecErrorBound, 6);
IS(spcclCodecQsgd2, 7);
IS(spcclCodecQsgd4, 8);
IS(spcclCodecQsgd8, 9);
_Static_assert(spcclNumCodecs >= 10, "codecs are added, never removed");

IS(SPCCL_UNIQUE_ID_BYTES, 128);
IS(sizeof(spcclUniqueId), 128);
IS(_Alignof(spcclUniqueId), 1); /* passed by value: its layout is the calling convention */
IS(sizeof(spcclResult_t), 4);
IS(sizeof(spcclRedOp_t), 4);
IS(sizeof(spcclDataType_t), 4);
IS(sizeof(spcclCodec_t), 4);
IS(sizeof(spcclComm_t), sizeof(void*));
IS(sizeof(spcclStream_t), sizeof(void*));
IS(sizeof(spcclCodecOptions), 24);
IS(offsetof(spcclCodecOptions, bound), 0);
IS(offsetof(spcclCodecOptions, relative), 8);
IS(offsetof(spcclCodecOptions, seed), 16);

/* An assignment that the compiler refuses where the function's type is another. */
#define TYPE(result, name, ...)                        \
  extern result (*const name##IsAsItWas)(__VA_ARGS__); \
  result (*const name##IsAsItWas)(__VA_ARGS__) = name

TYPE(spcclResult_t, spcclGetVersion, int*);
TYPE(const char*, spcclGetErrorString, spcclResult_t);
TYPE(const char*, spcclGetLastError, spcclComm_t);
TYPE(spcclResult_t, spcclGetUniqueId, spcclUniqueId*);
TYPE(spcclResult_t, spcclCommInitRank, spcclComm_t*, int, spcclUniqueId, int);
TYPE(spcclResult_t, spcclCommInitAll, spcclComm_t*, int, const int*);
TYPE(spcclResult_t, spcclCommDestroy, spcclComm_t);
TYPE(spcclResult_t, spcclCommAbort, spcclComm_t);
TYPE(spcclResult_t, spcclCommGetAsyncError, spcclComm_t, spcclResult_t*);
TYPE(spcclResult_t, spcclCommCount, spcclComm_t, int*);
TYPE(spcclResult_t, spcclCommUserRank, spcclComm_t, int*);
TYPE(spcclResult_t, spcclCommSetCodec, spcclComm_t, spcclCodec_t, const spcclCodecOptions*);
TYPE(spcclResult_t, spcclMemAlloc, void**, size_t);
TYPE(spcclResult_t, spcclMemFree, void*);
TYPE(spcclResult_t, spcclCommRegister, spcclComm_t, void*, size_t, void**);
TYPE(spcclResult_t, spcclCommDeregister, spcclComm_t, void*);
TYPE(spcclResult_t, spcclAllGather, const void*, void*, size_t, spcclDataType_t, spcclComm_t,
     spcclStream_t);
TYPE(spcclResult_t, spcclReduceScatter, const void*, void*, size_t, spcclDataType_t, spcclRedOp_t,
     spcclComm_t, spcclStream_t);
TYPE(spcclResult_t, spcclAllReduce, const void*, void*, size_t, spcclDataType_t, spcclRedOp_t,
     spcclComm_t, spcclStream_t);
TYPE(spcclResult_t, spcclBroadcast, const void*, void*, size_t, spcclDataType_t, int, spcclComm_t,
     spcclStream_t);
TYPE(spcclResult_t, spcclScatter, const void*, void*, size_t, spcclDataType_t, int, spcclComm_t,
     spcclStream_t);
TYPE(spcclResult_t, spcclGroupStart, void);
TYPE(spcclResult_t, spcclGroupEnd, void);
TYPE(spcclResult_t, spcclStreamCreate, spcclStream_t*);
TYPE(spcclResult_t, spcclStreamQuery, spcclStream_t);
TYPE(spcclResult_t, spcclStreamSynchronize, spcclStream_t);
TYPE(spcclResult_t, spcclStreamDestroy, spcclStream_t);
