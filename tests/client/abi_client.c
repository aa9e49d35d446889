/* A client as it was at a release: compiled against that release's header, it runs with the library
 * and the daemon of today. Two ranks in one process; every function of the release is called.
 * Prints "works", or the line of what did not. */
#include <stdio.h>

#include "spccl/spccl.h"

enum { kCount = 64 };

static int Fault(int line) {
  printf("line %d: %s\n", line, spcclGetLastError(NULL));
  return 1;
}
#define MUST(condition)                       \
  do {                                        \
    if (!(condition)) return Fault(__LINE__); \
  } while (0)

static spcclComm_t comms[2];
static float *sends[2], *results[2]; /* of kCount elements */

static int Set(float value) { /* rank r's: value * (r + 1) */
  int rank, i;
  for (rank = 0; rank < 2; ++rank)
    for (i = 0; i < kCount; ++i) sends[rank][i] = value * (float)(rank + 1), results[rank][i] = -1;
  return 1;
}

static int Are(int rank, int from, int to, float value) {
  int i;
  for (i = from; i < to; ++i)
    if (results[rank][i] != value) return 0;
  return 1;
}

/* A stream a rank: each runs its operations one after the other. */
static int Operations(spcclStream_t streams[2]) {
  int rank;
  MUST(Set(1) && !spcclGroupStart());
  for (rank = 0; rank < 2; ++rank)
    MUST(!spcclAllReduce(sends[rank], results[rank], kCount, spcclFloat, spcclSum, comms[rank],
                         NULL));
  MUST(!spcclGroupEnd() && Are(0, 0, kCount, 3) && Are(1, 0, kCount, 3));
  MUST(Set(2) && !spcclGroupStart());
  for (rank = 0; rank < 2; ++rank)
    MUST(!spcclReduceScatter(sends[rank], results[rank], kCount / 2, spcclFloat32, spcclMax,
                             comms[rank], NULL));
  MUST(!spcclGroupEnd() && Are(0, 0, kCount / 2, 4) && Are(1, 0, kCount / 2, 4));
  MUST(Set(3) && !spcclGroupStart());
  for (rank = 0; rank < 2; ++rank)
    MUST(!spcclAllGather(sends[rank], results[rank], kCount / 2, spcclFloat32, comms[rank], NULL));
  MUST(!spcclGroupEnd() && Are(1, 0, kCount / 2, 3) && Are(1, kCount / 2, kCount, 6));
  MUST(Set(4) && !spcclGroupStart());
  for (rank = 0; rank < 2; ++rank)
    MUST(!spcclBroadcast(sends[rank], results[rank], kCount, spcclFloat32, 1, comms[rank], NULL));
  MUST(!spcclGroupEnd() && Are(0, 0, kCount, 8) && Are(1, 0, kCount, 8));
  MUST(Set(5) && !spcclGroupStart());
  for (rank = 0; rank < 2; ++rank)
    MUST(!spcclScatter(sends[rank], results[rank], kCount / 2, spcclFloat32, 0, comms[rank],
                       streams[rank]));
  MUST(!spcclGroupEnd());
  for (rank = 0; rank < 2; ++rank)
    MUST(!spcclStreamSynchronize(streams[rank]) && !spcclStreamQuery(streams[rank]));
  MUST(Are(0, 0, kCount / 2, 5) && Are(1, 0, kCount / 2, 5) && Are(1, kCount / 2, kCount, -1));
  return 0;
}

int main(void) {
  int version = 0, rank, number = -1;
  void *memory[2], *handle;
  spcclStream_t streams[2];
  spcclUniqueId id;
  spcclComm_t alone;
  spcclResult_t error = spcclInternalError;
  const spcclCodecOptions bound = {0.5, 0, 0};
  MUST(!spcclGetVersion(&version) && version >= SPCCL_VERSION_CODE);
  MUST(spcclGetErrorString(spcclSuccess) != NULL);
  MUST(!spcclCommInitAll(comms, 2, NULL));
  for (rank = 0; rank < 2; ++rank) {
    MUST(!spcclStreamCreate(&streams[rank]));
    MUST(!spcclCommUserRank(comms[rank], &number) && number == rank);
    MUST(!spcclCommCount(comms[rank], &number) && number == 2);
    MUST(!spcclMemAlloc(&memory[rank], 2 * kCount * sizeof(float)));
    sends[rank] = (float*)memory[rank];
    results[rank] = sends[rank] + kCount;
  }
  MUST(!spcclCommRegister(comms[0], memory[0], kCount, &handle));
  MUST(!spcclCommDeregister(comms[0], handle));
  if (Operations(streams)) return 1;
  MUST(!spcclCommGetAsyncError(comms[0], &error) && error == spcclSuccess);
  MUST(!spcclGetUniqueId(&id) && !spcclCommInitRank(&alone, 1, id, 0));
  MUST(!spcclCommSetCodec(alone, spcclCodecErrorBound, &bound) && !spcclCommAbort(alone));
  for (rank = 0; rank < 2; ++rank) {
    MUST(!spcclStreamDestroy(streams[rank]));
    MUST(!spcclCommDestroy(comms[rank]) && !spcclMemFree(memory[rank]));
  }
  puts("works");
  return 0;
}
