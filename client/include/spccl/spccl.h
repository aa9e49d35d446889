/* spccl: collectives that do not send zeros. C API in NCCL's shape.
 *
 * A program that is written against NCCL reads the same here with the prefix changed. The work
 * itself is done by the node's daemon, spccld: the library opens one session with it per process,
 * at the first call that needs it, and hands over buffers and operations.
 *
 * Memory. Buffers are host memory, or memory of GPUs (below). Of host memory, fastest is memory
 * from spcclMemAlloc, which the daemon maps too; any other memory works: the daemon copies to and
 * from it where the system allows that (cross-memory attach), else the library copies through
 * buffers of its own. Between the call and the completion of an operation its buffers belong to the
 * operation: neither free, write nor (for the receive buffer) read them.
 *
 * GPUs. Where the buffers of a call are memory of CUDA devices, its `stream` is the caller's CUDA
 * stream (CUstream or cudaStream_t, cast to spcclStream_t; NULL: the legacy default stream of the
 * buffers' GPU, of recvbuff's where they differ, whichever the thread has chosen;
 * cudaStreamPerThread is one, too). The call then only enqueues, as NCCL's does: the operation
 * begins when the stream gets there, and what is put on the stream after it begins when it has
 * ended. It waits while the communicator has its share of the 256 unfinished operations that a
 * process may have, less one (one at least), or as many as the others leave: let no thread be
 * further ahead with one of its ranks than that. Its errors come from
 * spcclCommGetAsyncError; the stream goes on after an error, too, with what is then in the buffers.
 * The process must have initialised CUDA (cudaSetDevice, cuInit) before spcclCommInitRank. Managed
 * memory, and host memory that is registered with CUDA, are host memory. All buffers of an
 * operation are on GPUs, on all ranks, or none is; they may lie on different GPUs, also those of
 * one call, and ranks may share one. Memory that cannot be handed over to the daemon is copied
 * through the host. What was handed over spccld may keep open for some hundred operations after it
 * was freed (docs/operations.md, "GPUs").
 *
 * CUDA graphs. Under stream capture a call on GPU memory becomes part of the graph; each replay
 * takes its place in the communicator's order when it gets there, so let it end before other calls
 * on the same communicator. The call's memory must live as long as the graph. A process's graphs
 * hold 1,024 such calls at most.
 *
 * Threads. Every function may be called from any thread. Operations of one communicator are ordered
 * by their calls, so threads that share one must agree on the order among themselves, as NCCL asks.
 * Group calls and the text of the last error belong to the calling thread.
 *
 * Results. Every function returns a spcclResult_t; spcclGetLastError has the text. Outputs are
 * written only on success. docs/errors.md lists, for each result, the causes and what to do. Any
 * call may return spcclSystemError (the system refused memory, a thread or a descriptor; or the
 * daemon is not there or has died, within a second of its death) and spcclInternalError (a fault of
 * spccl's own); the comments below name what is particular to a function. spcclUnhandledCudaError
 * is returned for host memory only where the CUDA driver cannot say any more whose it is, or the
 * communicator has failed so.
 *
 * fork(). A child may use the library from the start: it opens a session of its own. On GPUs only
 * where the parent had not initialised CUDA, which does not survive fork(). Handles that the parent
 * made are refused in the child with spcclInvalidUsage. Memory of the parent's spcclMemAlloc stays
 * mapped in the child, shared with the parent, and is ordinary memory there.
 *
 * Environment, read at the call that needs it; docs/errors.md says more:
 *   - SPCCL_RUNTIME_DIR: folder of the daemon's sockets, default /run/spccl.
 *   - SPCCL_INIT_TIMEOUT_MS: how long spcclCommInitRank waits for the other ranks, default: as the
 *     daemon is configured.
 *   - SPCCL_ALGO: the algorithm of communicators made from now on: "auto", "local" or "ring";
 *     between nodes also "two-level-ring", "recursive-doubling", "halving-doubling", "split",
 *     "direct" or "tree".
 *   - SPCCL_CODEC: the format of their sparse sends: "auto", "dense", "pici", "pici-column", "coo"
 *     or "gap".
 *   - SPCCL_RELAY_BYTES: from how many bytes on an all-reduce on ordinary memory is run by the
 *     ranks' own processes, if all ranks say so; default 8388608.
 *   - SPCCL_FORCE_STAGING: "1" copies ordinary memory, and GPUs', through the library's buffers
 *     even where the daemon could reach it.
 *   - SPCCL_CUDA_LIBRARY: the CUDA driver, where it is not libcuda.so.1, for GPU memory. What is
 *     none, or too old, is refused at spcclCommInitRank with spcclInvalidArgument.
 */
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

/* One rank's membership in a communicator, and an in-order queue of operations. Opaque: not
 * addresses; a handle is never used twice, so one that was destroyed is always refused. */
typedef struct spcclComm* spcclComm_t;
typedef struct spcclStream* spcclStream_t;

/* Names a communicator that is about to be made. Plain bytes: may be copied, sent or written to a
 * file. Any process of the user that made it can join by it, so treat it like a password. */
typedef struct {
  char internal[SPCCL_UNIQUE_ID_BYTES];
} spcclUniqueId;

typedef enum {
  spcclSuccess = 0,
  spcclUnhandledCudaError = 1,
  spcclSystemError = 2,     /* the system refused something, or the daemon is not there */
  spcclInternalError = 3,   /* a fault of spccl itself */
  spcclInvalidArgument = 4, /* one argument is wrong in itself */
  spcclInvalidUsage = 5,    /* arguments or calls do not fit together, here or across ranks */
  spcclRemoteError = 6,     /* another rank failed, was aborted or did not come in time */
  spcclInProgress = 7,      /* only from spcclStreamQuery: not an error */
  spcclNumResults = 8
} spcclResult_t;

/* How elements are combined. Sums and products of integers wrap. An average divides the sum by the
 * number of ranks, for integers toward zero; there the sum of integers of less than 8 bytes does
 * not wrap. float16 and bfloat16 are accumulated in float32 and rounded once. */
typedef enum {
  spcclSum = 0,
  spcclProd = 1,
  spcclMax = 2,
  spcclMin = 3,
  spcclAvg = 4,
  spcclNumOps = 5
} spcclRedOp_t;

/* Element types, native byte order, naturally aligned: memory of GPUs that is not is refused. */
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

/* ---- Version and errors ------------------------------------------------------------------------
 */

/* Writes the version of the library that is loaded, as SPCCL_VERSION_CODE has it. Needs no daemon.
 * spcclInvalidArgument: `version` is NULL. */
SPCCL_API spcclResult_t spcclGetVersion(int* version);

/* A constant text for a result; for a number that is none, "unknown result code". Never NULL. */
SPCCL_API const char* spcclGetErrorString(spcclResult_t result);

/* The text of the last error: of `comm` (including errors that other ranks or the daemon caused
 * since the last call), or with NULL, or a handle that is no longer valid, of the calling thread;
 * "" if there was none. Success does not clear it. The text belongs to the library and stays until
 * the calling thread's next call of this function. */
SPCCL_API const char* spcclGetLastError(const spcclComm_t comm);

/* ---- Communicators -----------------------------------------------------------------------------
 */

/* Asks the daemon for a new unique id and writes it. One rank calls this and gives the id to all
 * the others by means of its own (a file, a pipe, MPI). An id serves for one communicator.
 * spcclInvalidArgument: `uniqueId` is NULL. */
SPCCL_API spcclResult_t spcclGetUniqueId(spcclUniqueId* uniqueId);

/* Joins the communicator `commId` as `rank` of `nranks` and writes the handle, which the caller
 * releases with spcclCommDestroy or spcclCommAbort. Blocks until all ranks have joined. Several
 * ranks may live in one process: from threads of their own, or from one thread inside a group,
 * where the call returns at once with *comm NULL and spcclGroupEnd writes the handle (`comm` must
 * live until then). A process may hold at most 256 communicators. spcclInvalidArgument: `comm` is
 * NULL, nranks outside 1 to 256, rank outside [0, nranks), or a wrong value in the environment.
 * spcclInvalidUsage: the rank is taken, the ranks disagree on nranks, the id was already used, or
 * there are too many communicators. spcclRemoteError: not all ranks came in time
 *   (SPCCL_INIT_TIMEOUT_MS); the text says which are missing. */
SPCCL_API spcclResult_t spcclCommInitRank(spcclComm_t* comm, int nranks, spcclUniqueId commId,
                                          int rank);

/* Makes a communicator of `nranks` ranks that all live in this process, and writes nranks handles
 * to comms, in rank order. Each is then used and destroyed like any other, usually by a thread of
 * its own. `devlist` names devices in NCCL; here it is ignored, for GPUs too, as a rank's are those
 * of its buffers: pass NULL. Errors as spcclCommInitRank; on error no handle is left. Inside a
 * group, as spcclCommInitRank. */
SPCCL_API spcclResult_t spcclCommInitAll(spcclComm_t* comms, int nranks, const int* devlist);

/* Waits for this rank's outstanding operations on `comm`, on all streams, whatever their results;
 * then leaves the communicator and frees the handle, its registrations included. Other ranks need
 * not do so at the same time. A communicator that has failed, or whose daemon has died, is
 * destroyed without an error, and what of it does not end soon ends for all ranks, as by
 * spcclCommAbort. Replays of CUDA graphs with calls on it must have ended: what they
 * would still call moves nothing. spcclInvalidArgument: NULL or no handle. spcclInvalidUsage:
 * already destroyed, or the parent's. */
SPCCL_API spcclResult_t spcclCommDestroy(spcclComm_t comm);

/* Ends the communicator for all its ranks and frees this rank's handle. Outstanding operations end
 * with spcclRemoteError, also those that another thread is waiting in; when this returns success,
 * none of them touches its buffers any more. Otherwise as spcclCommDestroy. May be called while
 * another thread is in spcclCommDestroy or in an operation. */
SPCCL_API spcclResult_t spcclCommAbort(spcclComm_t comm);

/* Writes why the communicator has failed, or spcclSuccess while it is sound. Does not wait. Once
 * failed, a communicator stays so: abort or destroy it. Errors of the call itself are as for
 * spcclCommCount. */
SPCCL_API spcclResult_t spcclCommGetAsyncError(spcclComm_t comm, spcclResult_t* asyncError);

/* Write the number of ranks, and this handle's rank. spcclInvalidArgument: a NULL, or no handle.
 * spcclInvalidUsage: the handle was destroyed, or is the parent's. */
SPCCL_API spcclResult_t spcclCommCount(const spcclComm_t comm, int* count);
SPCCL_API spcclResult_t spcclCommUserRank(const spcclComm_t comm, int* rank);

/* In which format frames travel: from this node to others, between GPUs of one node, or with
 * SPCCL_ALGO=ring. The exact ones differ in size and speed only; spcclCodecAuto, the default, takes
 * what arrives first (between GPUs of one node Pici). The last four are lossy, for float32 and
 * float64 that are not on GPUs, whose frames are exact; docs/lossy.md derives how far a result may
 * be off. */
typedef enum {
  spcclCodecAuto = 0,
  spcclCodecDense = 1,
  spcclCodecPici = 2,
  spcclCodecPiciColumn = 3,
  spcclCodecCoo = 4,
  spcclCodecGap = 5,
  spcclCodecErrorBound = 6, /* each element of each frame within a bound; needs one */
  spcclCodecQsgd2 = 7,      /* results of an all-reduce in levels of 2 bits, rounded at random */
  spcclCodecQsgd4 = 8,
  spcclCodecQsgd8 = 9,
  spcclNumCodecs = 10
} spcclCodec_t;

/* For the lossy codecs; what a codec does not use is not looked at. */
typedef struct {
  double bound;            /* error bound: a positive, finite number */
  int relative;            /* nonzero: as a fraction, below 1, of the largest finite magnitude among
                              the elements of a frame */
  unsigned long long seed; /* QSGD: the same seed and operations give the same results, by the same
                              algorithm (docs/lossy.md) */
} spcclCodecOptions;

/* Sets the codec of `comm`'s operations from the next one on, for what this rank's node sends:
 * every rank calls it, with the same arguments and between the same operations. An operator may
 * change it again (spcclctl codec set). `options` may be NULL for exact codecs and for QSGD (seed
 * 0). Blocks until the daemon has it. While a lossy codec that was set here holds, an operation
 * that it cannot carry (another datatype than spcclFloat32 and spcclFloat64; spcclProd) is refused
 * with spcclInvalidUsage, before anything is sent. spcclInvalidArgument: a wrong codec; options
 * NULL, or a bound that is not positive and finite (relative: and below 1), with
 * spcclCodecErrorBound. spcclInvalidUsage: `comm` has failed. */
SPCCL_API spcclResult_t spcclCommSetCodec(spcclComm_t comm, spcclCodec_t codec,
                                          const spcclCodecOptions* options);

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* Allocates `size` bytes of zero-filled, page-aligned host memory that the daemon can map:
 * operations on it copy nothing between processes. Never a GPU's, which CUDA gives (cudaMalloc).
 * The pages are there when this returns, and all of the last one may be used. Size 0 gives NULL.
 * Needs no daemon. Each allocation holds one file descriptor until spcclMemFree.
 * spcclInvalidArgument: `ptr` is NULL. */
SPCCL_API spcclResult_t spcclMemAlloc(void** ptr, size_t size);

/* Frees memory of spcclMemAlloc; NULL does nothing. Does not wait: while an operation that uses the
 * memory is unfinished, or a registration of it is held, it stays allocated and the result is
 * spcclInvalidUsage. spcclInvalidArgument: `ptr` is not the start of such an allocation of this
 * process. */
SPCCL_API spcclResult_t spcclMemFree(void* ptr);

/* Makes [buff, buff + size) known to the daemon ahead of its use in operations, so that the first
 * one need not pay for it, and writes a handle for spcclCommDeregister. Never needed; costs nothing
 * in later operations. The memory, of the host or of a GPU, must stay valid until it is
 * deregistered. It may be registered several times. Where the daemon cannot reach it this succeeds
 * and operations go on copying. spcclInvalidArgument: a NULL, size 0, a range that is not mapped,
 * or one that runs past the end of a spcclMemAlloc allocation or of a GPU's memory;
 * spcclInvalidUsage: `comm` has failed. */
SPCCL_API spcclResult_t spcclCommRegister(const spcclComm_t comm, void* buff, size_t size,
                                          void** handle);

/* Takes back one registration of the same `comm`. NULL does nothing. The memory itself stays the
 * caller's. spcclInvalidArgument: the handle never was one. spcclInvalidUsage: it is another
 * communicator's or has been taken back, or an operation that uses the memory is unfinished
 * (memory of a GPU may be given back then, and stays until it is). */
SPCCL_API spcclResult_t spcclCommDeregister(const spcclComm_t comm, void* handle);

/* ---- Collectives -------------------------------------------------------------------------------
 *
 * Every rank of `comm` calls the same operation with the same count, datatype, op and root, in the
 * same order. Counts are in elements. With count 0 nothing is moved, buffers may be NULL, and the
 * call still matches the other ranks' calls.
 *
 * With stream NULL the call returns when the result is in the receive buffer (inside a group:
 * spcclGroupEnd does). With a stream it returns at once; see spcclStreamCreate. On GPU memory it
 * always returns at once: see "GPUs" above. So does an empty call without buffers in a process that
 * uses CUDA, as nothing tells whose stream NULL is then.
 *
 * In place: where the comment says so, send and receive buffer may be the same memory at exactly
 * the given offset; any other overlap of the two is refused.
 *
 * spcclInvalidArgument: `comm` is NULL or no handle; a NULL buffer with count > 0; a wrong
 * datatype, op or root; a size in bytes beyond PTRDIFF_MAX; a range past the end of a spcclMemAlloc
 * allocation; memory that is not there; buffers that overlap. These leave the communicator usable
 * unless the text says otherwise: the call has not taken place (memory that is not there can only
 * be found while running, and fails the operation for all ranks; but where this process copies
 * memory itself, in an all-reduce of 8 MiB or more on memory that is not from spcclMemAlloc, and
 * wherever the daemon may not reach such memory, it gets a SIGSEGV, as from memcpy).
 * spcclInvalidUsage: the communicator was destroyed or is the parent's; or the ranks disagree: then
 * all ranks get it, with both values in the text. spcclRemoteError: another rank's process died,
 * its memory is not there, or the communicator was aborted; the text names the rank.
 *
 * Zeros. Sparse frames (between nodes, between GPUs of one node, or with SPCCL_ALGO=ring) hold
 * none: a result that travelled in them equals the dense one, and other ranks' results, under ==,
 * and only a zero's sign may differ.
 */

/* recvbuff (sendcount * nranks elements) gets every rank's sendbuff (sendcount elements), in rank
 * order. In place: sendbuff == recvbuff + rank * sendcount. */
SPCCL_API spcclResult_t spcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       spcclDataType_t datatype, spcclComm_t comm,
                                       spcclStream_t stream);

/* Combines all ranks' sendbuff (recvcount * nranks elements); rank r's recvbuff (recvcount
 * elements) gets part r of the result. In place: recvbuff == sendbuff + rank * recvcount. */
SPCCL_API spcclResult_t spcclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           spcclDataType_t datatype, spcclRedOp_t op,
                                           spcclComm_t comm, spcclStream_t stream);

/* Combines all ranks' sendbuff (count elements); every recvbuff (count elements) gets the whole
 * result. In place: sendbuff == recvbuff. */
SPCCL_API spcclResult_t spcclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       spcclDataType_t datatype, spcclRedOp_t op, spcclComm_t comm,
                                       spcclStream_t stream);

/* Every recvbuff (count elements) gets the root's sendbuff (count elements). On other ranks
 * sendbuff is not looked at. In place: sendbuff == recvbuff. */
SPCCL_API spcclResult_t spcclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       spcclDataType_t datatype, int root, spcclComm_t comm,
                                       spcclStream_t stream);

/* Rank r's recvbuff (recvcount elements) gets part r of the root's sendbuff (recvcount * nranks
 * elements). On other ranks sendbuff is not looked at. In place, at the root:
 * recvbuff == sendbuff + root * recvcount. */
SPCCL_API spcclResult_t spcclScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                     spcclDataType_t datatype, int root, spcclComm_t comm,
                                     spcclStream_t stream);

/* ---- Groups ------------------------------------------------------------------------------------
 *
 * Between spcclGroupStart and the matching spcclGroupEnd the calling thread only collects its
 * spcclCommInitRank and collective calls; the outermost spcclGroupEnd starts them all,
 * communicators first, and waits for the communicators and for the operations on the null stream.
 * So one thread can make and use several ranks, on GPU memory also on one stream. Calls on one
 * communicator, and on one host stream, keep their order; others of a group have none, as in NCCL:
 * on a CUDA stream, too, one must not need what a call on another communicator of the same group
 * writes. Groups nest; the inner ends do nothing. All other calls act at once.
 *
 * An error in a collected call is returned by the call, and again by the outermost spcclGroupEnd,
 * which then starts nothing. Otherwise spcclGroupEnd returns the first error of what it started,
 * spcclRemoteError only where there is no other; of several communicators being made, either all
 * handles are written or none. spcclInvalidUsage: an end without a start. */
SPCCL_API spcclResult_t spcclGroupStart(void);
SPCCL_API spcclResult_t spcclGroupEnd(void);

/* ---- Host streams ------------------------------------------------------------------------------
 *
 * A stream runs its operations one after the other in the order of their calls, asynchronously to
 * the caller. Streams are independent of each other, except that operations of one communicator
 * always run in the order of their calls. An operation that fails does not stop the later ones. Up
 * to 256 operations of a process are with the daemon at a time, 64 of a communicator; the others
 * wait here, in their streams. So if four communicators or more have that many that wait for other
 * ranks' calls, one that is made then waits for an end of theirs: make it before. */

/* Makes a stream; the caller releases it with spcclStreamDestroy. Needs no daemon, and no thread
 * until one is needed (when operations must wait for each other or be copied).
 * spcclInvalidArgument: `stream` is NULL. */
SPCCL_API spcclResult_t spcclStreamCreate(spcclStream_t* stream);

/* spcclInProgress while operations are unfinished, else spcclSuccess or the first error since the
 * last spcclStreamSynchronize. Does not wait. For these three functions:
 * spcclInvalidArgument: NULL or no handle; spcclInvalidUsage: destroyed, or the parent's. */
SPCCL_API spcclResult_t spcclStreamQuery(spcclStream_t stream);

/* Waits for all operations that were called on the stream so far and returns the first error since
 * the last spcclStreamSynchronize, spcclSuccess if there was none. */
SPCCL_API spcclResult_t spcclStreamSynchronize(spcclStream_t stream);

/* Waits for the stream's operations, frees it, and returns as spcclStreamSynchronize does; it is
 * freed in any case. */
SPCCL_API spcclResult_t spcclStreamDestroy(spcclStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* SPCCL_SPCCL_H_ */
