/* A CUDA driver without GPUs that calls the program: from its initialiser, and from cuInit. */
void TestInitialise(void);
void TestCuInit(void);

__attribute__((constructor)) static void Initialise(void) {
  TestInitialise();
}
__attribute__((visibility("default"))) int cuInit(unsigned flags) {
  TestCuInit();
  return flags == 0 ? 100 : 1;
}
__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}
