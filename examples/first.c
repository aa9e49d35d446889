#include <spccl/spccl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) { /* four ranks sum a million numbers */
  enum { ranks = 4, count = 1 << 20 };
  static float values[count];
  spcclComm_t comm;
  spcclUniqueId id; /* names the communicator; every rank needs it */
  spcclResult_t result = spcclGetUniqueId(&id);
  int rank = 0; /* each child goes on with a rank of its own, the parent with the last */
  while (rank + 1 < ranks && fork() > 0) ++rank;
  for (int i = 0; i < count; ++i) values[i] = (float)rank;
  if (!result) result = spcclCommInitRank(&comm, ranks, id, rank);
  if (!result) result = spcclAllReduce(values, values, count, spcclFloat, spcclSum, comm, NULL);
  if (result) return puts(spcclGetLastError(NULL)), 1;
  printf("rank %d: every element is %g\n", rank, values[count - 1]);
  while (wait(NULL) > 0) continue;
  return spcclCommDestroy(comm) != spcclSuccess;
}
