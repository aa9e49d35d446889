// The first call of the library that did not succeed in a process of the soak: all that follows
// from it is of no interest.
#pragma once

#include <spccl/spccl.h>

#include <optional>
#include <string>

namespace spccl::bench {

struct Failure {
  std::string phase;
  spcclResult_t result;
  std::string text;
};

class FirstFailure {
 public:
  // Whether `result` is a success; if not, and it is the first, it is kept. `comm` may be null.
  bool Ok(spcclResult_t result, const std::string& phase, spcclComm_t comm) {
    if (result == spcclSuccess) return true;
    // Some calls only say that their communicator has failed: why, it says itself.
    spcclResult_t cause = spcclSuccess;
    if (result == spcclInvalidUsage && comm != nullptr &&
        spcclCommGetAsyncError(comm, &cause) == spcclSuccess && cause != spcclSuccess) {
      result = cause;
    }
    if (!kept_.has_value()) kept_ = Failure{phase, result, spcclGetLastError(comm)};
    return false;
  }
  // What is no call of the library's. Returns false.
  bool Fail(const std::string& phase, const std::string& text) {
    if (!kept_.has_value()) kept_ = Failure{phase, spcclSuccess, text};
    return false;
  }

  const std::optional<Failure>& kept() const { return kept_; }

 private:
  std::optional<Failure> kept_;
};

}  // namespace spccl::bench
