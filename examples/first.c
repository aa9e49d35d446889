/* A first program: four ranks sum a million numbers. cc first.c -lspccl -o first && ./first */
#include <spccl/spccl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call) \
  if ((call) != spcclSuccess) return fprintf(stderr, "%s\n", spcclGetLastError(NULL)), 1

int main(void) {
  enum { ranks = 4, count = 1 << 20 };
  spcclUniqueId id; /* names the communicator; every rank needs it */
  CHECK(spcclGetUniqueId(&id));
  int rank = 0; /* each child goes on with a rank of its own, the parent with the last */
  while (rank + 1 < ranks && fork() > 0) ++rank;

  spcclComm_t comm;
  void* memory;
  CHECK(spcclCommInitRank(&comm, ranks, id, rank));
  CHECK(spcclMemAlloc(&memory, count * sizeof(float)));
  float* values = memory;
  for (int i = 0; i < count; ++i) values[i] = (float)rank;
  CHECK(spcclAllReduce(values, values, count, spcclFloat, spcclSum, comm, NULL));
  printf("rank %d: every element is %g\n", rank, values[count - 1]);
  CHECK(spcclCommDestroy(comm));
  CHECK(spcclMemFree(memory));
  while (wait(NULL) > 0) continue;
  return 0;
}
