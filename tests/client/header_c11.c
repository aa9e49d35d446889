/* The public header as C11, alone and first, with every function called through its declared type.
 */
#include "spccl/spccl.h"

int main(void) {
  int version = 0;
  spcclComm_t comm = NULL;
  spcclUniqueId id = {{0}};
  if (spcclGetVersion(&version) != spcclSuccess || version != SPCCL_VERSION_CODE) return 1;
  if (sizeof id != SPCCL_UNIQUE_ID_BYTES || sizeof(spcclResult_t) != 4) return 2;
  if (spcclCommInitRank(&comm, 0, id, 0) != spcclInvalidArgument) return 3;
  if (spcclGetLastError(NULL)[0] == '\0') return 4;
  if (spcclCommSetCodec(comm, spcclCodecQsgd4, NULL) != spcclInvalidArgument) return 5;
  return spcclGetErrorString(spcclSuccess) == NULL;
}
