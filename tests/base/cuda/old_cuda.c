/* A CUDA driver that is too old: it has two functions. Without GPUs if SPCCL_FAKE_GPUS is 0. */
#include <stdlib.h>
#include <string.h>

static int finds_none(void) {
  const char* gpus = getenv("SPCCL_FAKE_GPUS");
  return gpus != NULL && strcmp(gpus, "0") == 0;
}
__attribute__((visibility("default"))) int cuInit(unsigned flags) {
  return flags == 0 ? 0 : 1;
}
__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = finds_none() ? 0 : 2;
  return 0;
}
