/* The fake driver by the system's name: this library has that name, and the fake's functions by
   linking to it. */
__attribute__((visibility("default"))) int spccl_system_cuda;
