// NCCL's functions, as the library exports them.
#include "tests/support/fake_nccl/fake_nccl.h"

#include "tests/support/fake_nccl/fake_world.h"

using namespace spccl::transport::nccl;  // NOLINT(google-build-using-namespace): their names
using spccl::FakeState;

#pragma GCC visibility push(default)
extern "C" {

spccl::FakeNccl* fake_nccl() {
  return &FakeState::Get();
}

Result ncclGetVersion(int* version) {
  *version = FakeState::Get().version();
  return kSuccess;
}
Result ncclGetUniqueId(UniqueId* id) {
  return FakeState::Get().MakeId(id);
}
Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  return FakeState::Get().Init(comm, ranks, id, rank, config);
}
Result ncclCommFinalize(Comm comm) {
  return FakeState::Get().Finalize(comm);
}
Result ncclCommDestroy(Comm comm) {
  return FakeState::Get().Destroy(comm);
}
Result ncclCommAbort(Comm comm) {
  return FakeState::Get().Abort(comm);
}
Result ncclCommGetAsyncError(Comm comm, Result* error) {
  return FakeState::Get().Ask(comm, error);
}
const char* ncclGetErrorString(Result result) {
  static const char* const kTexts[] = {
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
  return result >= 0 && result <= kInProgress ? kTexts[result] : "unknown result";
}
const char* ncclGetLastError(Comm /*comm*/) {
  return "says the fake";
}
Result ncclGroupStart() {
  return FakeState::Get().GroupStart();
}
Result ncclGroupEnd() {
  return FakeState::Get().GroupEnd();
}
Result ncclSend(const void* data, size_t count, DataType type, int peer, Comm comm,
                spccl::cuda::Stream stream) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return FakeState::Get().Add(true, bytes, count, type, peer, comm, stream);
}
Result ncclRecv(void* data, size_t count, DataType type, int peer, Comm comm,
                spccl::cuda::Stream stream) {
  return FakeState::Get().Add(false, static_cast<std::byte*>(data), count, type, peer, comm,
                              stream);
}
#ifdef FAKE_NCCLX
// What only NCCLX has.
Result ncclAllReduceSparseBlock() {
  return kInvalidUsage;
}
#endif

}  // extern "C"
#pragma GCC visibility pop
