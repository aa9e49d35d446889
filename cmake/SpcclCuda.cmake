# nvcc, for the kernels and their benchmark. Off by default: nothing else of the project needs CUDA.
option(SPCCL_WITH_CUDA "Build the kernels for GPUs (needs nvcc)" OFF)
if(NOT SPCCL_WITH_CUDA)
  return()
endif()
# Code for the three generations, and PTX for those to come.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;100")
endif()
enable_language(CUDA)

# CMake 3.25.1 does not know that nvcc has the dialect that the project is written in.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
