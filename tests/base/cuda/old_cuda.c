/* A CUDA driver that is too old: it has one function. */
__attribute__((visibility("default"))) int cuInit(unsigned flags) {
  return flags == 0 ? 0 : 1;
}
