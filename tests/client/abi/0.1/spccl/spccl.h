/* The declarations of release 0.1: what its clients were compiled with. Never changed; the current
 * header is client/include/spccl/spccl.h. */
#ifndef SPCCL_SPCCL_H_
#define SPCCL_SPCCL_H_
#include <stddef.h>
#define SPCCL_MAJOR 0
#define SPCCL_MINOR 1
#define SPCCL_PATCH 0
#define SPCCL_VERSION_CODE ((SPCCL_MAJOR)*10000 + (SPCCL_MINOR)*100 + (SPCCL_PATCH))
#define SPCCL_UNIQUE_ID_BYTES 128
#if defined(__GNUC__)
#define SPCCL_API __attribute__((visibility("default")))
#else
#define SPCCL_API
#endif
#ifdef __cplusplus
extern "C" {
#endif
typedef struct spcclComm* spcclComm_t;
typedef struct spcclStream* spcclStream_t;
typedef struct {
  char internal[SPCCL_UNIQUE_ID_BYTES];
} spcclUniqueId;
typedef enum {
  spcclSuccess = 0,
  spcclUnhandledCudaError = 1,
  spcclSystemError = 2,
  spcclInternalError = 3,
  spcclInvalidArgument = 4,
  spcclInvalidUsage = 5,
  spcclRemoteError = 6,
  spcclInProgress = 7,
  spcclNumResults = 8
} spcclResult_t;
typedef enum {
  spcclSum = 0,
  spcclProd = 1,
  spcclMax = 2,
  spcclMin = 3,
  spcclAvg = 4,
  spcclNumOps = 5
} spcclRedOp_t;
typedef enum {
  spcclInt8 = 0,
  spcclChar = 0,
  spcclUint8 = 1,
  spcclInt32 = 2,
  spcclInt = 2,
  spcclUint32 = 3,
  spcclInt64 = 4,
  spcclUint64 = 5,
  spcclFloat16 = 6,
  spcclHalf = 6,
  spcclFloat32 = 7,
  spcclFloat = 7,
  spcclFloat64 = 8,
  spcclDouble = 8,
  spcclBfloat16 = 9,
  spcclNumTypes = 10
} spcclDataType_t;
SPCCL_API spcclResult_t spcclGetVersion(int* version);
SPCCL_API const char* spcclGetErrorString(spcclResult_t result);
SPCCL_API const char* spcclGetLastError(const spcclComm_t comm);
SPCCL_API spcclResult_t spcclGetUniqueId(spcclUniqueId* uniqueId);
SPCCL_API spcclResult_t spcclCommInitRank(spcclComm_t* comm, int nranks, spcclUniqueId commId,
                                          int rank);
SPCCL_API spcclResult_t spcclCommInitAll(spcclComm_t* comms, int nranks, const int* devlist);
SPCCL_API spcclResult_t spcclCommDestroy(spcclComm_t comm);
SPCCL_API spcclResult_t spcclCommAbort(spcclComm_t comm);
SPCCL_API spcclResult_t spcclCommGetAsyncError(spcclComm_t comm, spcclResult_t* asyncError);
SPCCL_API spcclResult_t spcclCommCount(const spcclComm_t comm, int* count);
SPCCL_API spcclResult_t spcclCommUserRank(const spcclComm_t comm, int* rank);
typedef enum {
  spcclCodecAuto = 0,
  spcclCodecDense = 1,
  spcclCodecPici = 2,
  spcclCodecPiciColumn = 3,
  spcclCodecCoo = 4,
  spcclCodecGap = 5,
  spcclCodecErrorBound = 6,
  spcclCodecQsgd2 = 7,
  spcclCodecQsgd4 = 8,
  spcclCodecQsgd8 = 9,
  spcclNumCodecs = 10
} spcclCodec_t;
typedef struct {
  double bound;
  int relative;
  unsigned long long seed;
} spcclCodecOptions;
SPCCL_API spcclResult_t spcclCommSetCodec(spcclComm_t comm, spcclCodec_t codec,
                                          const spcclCodecOptions* options);
SPCCL_API spcclResult_t spcclMemAlloc(void** ptr, size_t size);
SPCCL_API spcclResult_t spcclMemFree(void* ptr);
SPCCL_API spcclResult_t spcclCommRegister(const spcclComm_t comm, void* buff, size_t size,
                                          void** handle);
SPCCL_API spcclResult_t spcclCommDeregister(const spcclComm_t comm, void* handle);
SPCCL_API spcclResult_t spcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       spcclDataType_t datatype, spcclComm_t comm,
                                       spcclStream_t stream);
SPCCL_API spcclResult_t spcclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           spcclDataType_t datatype, spcclRedOp_t op,
                                           spcclComm_t comm, spcclStream_t stream);
SPCCL_API spcclResult_t spcclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       spcclDataType_t datatype, spcclRedOp_t op, spcclComm_t comm,
                                       spcclStream_t stream);
SPCCL_API spcclResult_t spcclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       spcclDataType_t datatype, int root, spcclComm_t comm,
                                       spcclStream_t stream);
SPCCL_API spcclResult_t spcclScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                     spcclDataType_t datatype, int root, spcclComm_t comm,
                                     spcclStream_t stream);
SPCCL_API spcclResult_t spcclGroupStart(void);
SPCCL_API spcclResult_t spcclGroupEnd(void);
SPCCL_API spcclResult_t spcclStreamCreate(spcclStream_t* stream);
SPCCL_API spcclResult_t spcclStreamQuery(spcclStream_t stream);
SPCCL_API spcclResult_t spcclStreamSynchronize(spcclStream_t stream);
SPCCL_API spcclResult_t spcclStreamDestroy(spcclStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
