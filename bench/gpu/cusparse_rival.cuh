// cuSPARSE: dense to sparse (CSR) and back, and a sparse vector added to a dense one. The library
// is loaded when it is used: the benchmark runs without, too, and then says so.
#pragma once

// cusparseAxpby is deprecated, and has no successor of its kind yet.
#define DISABLE_CUSPARSE_DEPRECATED
#include <cusparse.h>
#include <dlfcn.h>

#include <memory>

#include "bench/gpu/device_memory.cuh"

namespace spccl::gpu_bench {

#define SPCCL_CUSPARSE_FUNCTIONS(F)   \
  F(cusparseCreate)                   \
  F(cusparseSetStream)                \
  F(cusparseCreateDnMat)              \
  F(cusparseCreateCsr)                \
  F(cusparseCsrSetPointers)           \
  F(cusparseSpMatGetSize)             \
  F(cusparseDestroySpMat)             \
  F(cusparseDestroyDnMat)             \
  F(cusparseDenseToSparse_bufferSize) \
  F(cusparseDenseToSparse_analysis)   \
  F(cusparseDenseToSparse_convert)    \
  F(cusparseSparseToDense_bufferSize) \
  F(cusparseSparseToDense)            \
  F(cusparseCreateConstSpVec)         \
  F(cusparseCreateDnVec)              \
  F(cusparseDestroySpVec)             \
  F(cusparseDestroyDnVec)             \
  F(cusparseAxpby)

struct CusparseLibrary {
#define SPCCL_DECLARE(NAME) decltype(&::NAME) NAME = nullptr;
  SPCCL_CUSPARSE_FUNCTIONS(SPCCL_DECLARE)
#undef SPCCL_DECLARE
  cusparseHandle_t handle = nullptr;

  // Null where there is none.
  static std::unique_ptr<CusparseLibrary> Load(cudaStream_t stream) {
    void* library = nullptr;
    for (const char* name : {"libcusparse.so.12", "libcusparse.so.13", "libcusparse.so"}) {
      if ((library = dlopen(name, RTLD_NOW)) != nullptr) break;
    }
    if (library == nullptr) return nullptr;
    auto loaded = std::make_unique<CusparseLibrary>();
#define SPCCL_LOAD(NAME)                                                     \
  loaded->NAME = reinterpret_cast<decltype(&::NAME)>(dlsym(library, #NAME)); \
  if (loaded->NAME == nullptr) return nullptr;
    SPCCL_CUSPARSE_FUNCTIONS(SPCCL_LOAD)
#undef SPCCL_LOAD
    if (loaded->cusparseCreate(&loaded->handle) != CUSPARSE_STATUS_SUCCESS ||
        loaded->cusparseSetStream(loaded->handle, stream) != CUSPARSE_STATUS_SUCCESS) {
      return nullptr;
    }
    return loaded;
  }
};

// Dense elements as a matrix with rows of a tile. What cuSPARSE refuses makes ok() false, and all
// later calls nothing.
class CusparseRival {
 public:
  static constexpr int64_t kColumns = 4096;

  CusparseRival(const CusparseLibrary& library, cudaDataType type, uint64_t element_bytes,
                uint64_t elements, uint64_t most)
      : library_(library),
        type_(type),
        elements_(static_cast<int64_t>(elements)),
        offsets_((elements / kColumns + 1) * sizeof(int32_t)),
        columns_(most * sizeof(int32_t)),
        values_(most * element_bytes),
        ok_(elements % kColumns == 0) {}
  CusparseRival(const CusparseRival&) = delete;
  CusparseRival& operator=(const CusparseRival&) = delete;
  ~CusparseRival() { Forget(); }

  // Waits for the number of nonzeros between analysis and conversion, as its users must.
  void Encode(void* dense) {
    Forget();
    if (!ok_) return;
    const int64_t rows = elements_ / kColumns;
    Check(library_.cusparseCreateDnMat(&dense_, rows, kColumns, kColumns, dense, type_,
                                       CUSPARSE_ORDER_ROW));
    Check(library_.cusparseCreateCsr(&sparse_, rows, kColumns, 0, offsets_.get(), nullptr, nullptr,
                                     CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                     CUSPARSE_INDEX_BASE_ZERO, type_));
    if (!ok_) return;
    size_t bytes = 0;
    Check(library_.cusparseDenseToSparse_bufferSize(library_.handle, dense_, sparse_,
                                                    CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &bytes));
    Room(bytes);
    if (!ok_) return;
    Check(library_.cusparseDenseToSparse_analysis(
        library_.handle, dense_, sparse_, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer_->get()));
    if (!ok_) return;
    int64_t row_count = 0, column_count = 0, found = 0;
    Check(library_.cusparseSpMatGetSize(sparse_, &row_count, &column_count, &found));
    ok_ = ok_ && static_cast<uint64_t>(found) * sizeof(int32_t) <= columns_.bytes();
    if (!ok_) return;
    Check(library_.cusparseCsrSetPointers(sparse_, offsets_.get(), columns_.get(), values_.get()));
    Check(library_.cusparseDenseToSparse_convert(
        library_.handle, dense_, sparse_, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer_->get()));
  }

  // Of what the last Encode() made.
  void Decode(void* dense) {
    if (!ok_) return;
    cusparseDnMatDescr_t to = nullptr;
    Check(library_.cusparseCreateDnMat(&to, elements_ / kColumns, kColumns, kColumns, dense, type_,
                                       CUSPARSE_ORDER_ROW));
    if (!ok_) return;
    size_t bytes = 0;
    Check(library_.cusparseSparseToDense_bufferSize(library_.handle, sparse_, to,
                                                    CUSPARSE_SPARSETODENSE_ALG_DEFAULT, &bytes));
    Room(bytes);
    if (ok_) {
      Check(library_.cusparseSparseToDense(library_.handle, sparse_, to,
                                           CUSPARSE_SPARSETODENSE_ALG_DEFAULT, buffer_->get()));
    }
    (void)library_.cusparseDestroyDnMat(to);
  }

  // dense += a vector of `count` indices and values.
  void Add(const uint32_t* indices, const void* values, uint64_t count, void* dense) {
    if (!ok_) return;
    cusparseConstSpVecDescr_t from = nullptr;
    cusparseDnVecDescr_t to = nullptr;
    const float one = 1;
    Check(library_.cusparseCreateConstSpVec(&from, elements_, static_cast<int64_t>(count), indices,
                                            values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                                            type_));
    Check(library_.cusparseCreateDnVec(&to, elements_, dense, type_));
    if (ok_) Check(library_.cusparseAxpby(library_.handle, &one, from, &one, to));
    if (from != nullptr) (void)library_.cusparseDestroySpVec(from);
    if (to != nullptr) (void)library_.cusparseDestroyDnVec(to);
  }

  bool ok() const { return ok_; }

 private:
  void Check(cusparseStatus_t status) { ok_ = ok_ && status == CUSPARSE_STATUS_SUCCESS; }
  // Only the first calls make any: a user would keep it, too.
  void Room(size_t bytes) {
    if (ok_ && (buffer_ == nullptr || buffer_->bytes() < bytes + 1)) {
      buffer_ = std::make_unique<DeviceMemory>(bytes + 1);
    }
  }
  void Forget() {
    if (dense_ != nullptr) (void)library_.cusparseDestroyDnMat(dense_);
    if (sparse_ != nullptr) (void)library_.cusparseDestroySpMat(sparse_);
    dense_ = nullptr;
    sparse_ = nullptr;
  }

  const CusparseLibrary& library_;
  const cudaDataType type_;
  const int64_t elements_;
  DeviceMemory offsets_, columns_, values_;
  std::unique_ptr<DeviceMemory> buffer_;
  cusparseDnMatDescr_t dense_ = nullptr;
  cusparseSpMatDescr_t sparse_ = nullptr;
  bool ok_;
};

}  // namespace spccl::gpu_bench
