// The library's one symbol: the table, and what of it launches nothing.
#include <cuda_runtime.h>

#include "kernels/launch/table_functions.h"
#include "kernels/sparse/device_codec.h"

namespace spccl::launch {

const char* ErrorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

int ResidentBlocks(int device, uint32_t* blocks) {
  int processors = 0;
  int threads = 0;
  cudaError_t status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  if (status != cudaSuccess) return status;
  *blocks = static_cast<uint32_t>(processors * threads) / sparse::kBlockLanes;
  return cudaFree(nullptr);  // loads the kernels into the context
}

uint64_t ScratchBytes(uint8_t format, uint8_t dtype, uint64_t elements) {
  if (!IsExactFormat(format) || !IsValidDType(dtype)) return 0;
  return sparse::ScratchBytes(static_cast<Format>(format), static_cast<DType>(dtype), elements);
}

namespace {

constexpr device::CodecTable kTable = {
    .version = device::kCodecTableVersion,
    .bytes = sizeof(device::CodecTable),
    .error_text = ErrorText,
    .resident_blocks = ResidentBlocks,
    .scratch_bytes = ScratchBytes,
    .encode = Encode,
    .validate_body = ValidateBody,
    .decode = Decode,
    .reduce_into = ReduceInto,
    .add_and_encode = AddAndEncode,
    .count_nonzeros = CountNonzeros,
    .reduce = Reduce,
    .widen = Widen,
    .accumulate = Accumulate,
    .finish = Finish,
    .copy_to_many = CopyToMany,
};

}  // namespace
}  // namespace spccl::launch

extern "C" __attribute__((visibility("default"))) const spccl::device::CodecTable*
spccl_device_codec_table() {
  return &spccl::launch::kTable;
}
