// The public header as C++17, alone and first.
#include "spccl/spccl.h"

static_assert(spcclFloat == 7 && spcclBfloat16 == 9 && spcclAvg == 4, "NCCL's codes");

int main() {
  int version = 0;
  return spcclGetVersion(&version) == spcclSuccess && version == SPCCL_VERSION_CODE ? 0 : 1;
}
