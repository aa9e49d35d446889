#include "base/cuda/driver.h"

#include <dlfcn.h>

#include <chrono>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/cuda/error.h"
#include "base/timed_lock.h"

namespace spccl::cuda {
namespace {

constexpr char kSystemLibrary[] = "libcuda.so.1";

absl::StatusCode CodeOf(Result result) {
  switch (result) {
    case kErrorOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    // Of these a context does not recover, or there is no device to have one on.
    case kErrorDeinitialized:
    case kErrorStubLibrary:
    case kErrorDeviceUnavailable:
    case kErrorNoDevice:
    case kErrorEccUncorrectable:
    case kErrorNvlinkUncorrectable:
    case kErrorIllegalAddress:
    case kErrorContextIsDestroyed:
    case kErrorLaunchFailed:
    case kErrorMpsClientTerminated:
      return absl::StatusCode::kUnavailable;
    case kErrorNotFound:
      return absl::StatusCode::kNotFound;
    case kErrorInvalidValue:
    case kErrorInvalidDevice:
    case kErrorInvalidContext:
    case kErrorInvalidHandle:
    case kErrorHostMemoryNotRegistered:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

// How long a fork() waits for whoever loads a driver. The thread that forks may itself be in a
// library's initialiser: then it has the loader's own lock, which the other may wait for.
constexpr std::chrono::seconds kForkPatience{3};

std::timed_mutex g_loader;
thread_local bool t_is_loading = false;
thread_local bool t_holds_loader = false;  // for a fork()

// While the thread loads a driver.
class LoaderUse {
 public:
  LoaderUse() : lock_(g_loader) { t_is_loading = true; }
  ~LoaderUse() { t_is_loading = false; }
  LoaderUse(const LoaderUse&) = delete;
  LoaderUse& operator=(const LoaderUse&) = delete;

 private:
  const std::lock_guard<std::timed_mutex> lock_;
};

// Why the last call of the loader failed, which names the library.
std::string LoaderError() {
  const char* const text = ::dlerror();
  return text == nullptr ? "the loader gives no reason" : text;
}

// What `library` has for each function, set in *driver; the name of the first that it lacks, or
// nullptr.
const char* LookUp(void* library, Driver* driver) {
  const char* missing = nullptr;
#define SPCCL_CUDA_LOOK_UP(NAME, SYMBOL, PARAMETERS)                                  \
  driver->NAME = reinterpret_cast<decltype(driver->NAME)>(::dlsym(library, #SYMBOL)); \
  if (driver->NAME == nullptr && missing == nullptr) missing = #SYMBOL;
  SPCCL_CUDA_DRIVER_FUNCTIONS(SPCCL_CUDA_LOOK_UP)
#undef SPCCL_CUDA_LOOK_UP
  return missing;
}

constexpr char kFindsNoGpu[] = " finds no GPU";

// Initialises it and counts its GPUs; *call is what has the result.
Result Count(const Driver& driver, int* count, const char** call) {
  *count = 0;
  *call = "cuInit";
  const Result result = driver.Init(0);
  if (result != kSuccess) return result;
  *call = "cuDeviceGetCount";
  return driver.DeviceGetCount(count);
}

bool FindsNone(Result counted, int count) {
  return counted == kErrorNoDevice || (counted == kSuccess && count == 0);
}

// Initialises it, and sees that it has a GPU.
absl::Status Start(const Driver& driver, const std::string& name) {
  int count = 0;
  const char* call = nullptr;
  const Result result = Count(driver, &count, &call);
  const absl::Status status = driver.ToStatus(result, call);
  if (FindsNone(result, count)) {
    return absl::NotFoundError(absl::StrCat("the CUDA driver ", name, kFindsNoGpu,
                                            status.ok() ? "" : ": ", status.message()));
  }
  if (status.ok()) return status;
  return absl::UnavailableError(absl::StrCat(name, " cannot be used: ", status.message()));
}

// Of one that lacks functions: what else it lacks matters only where it has a GPU.
absl::Status TooOld(const Driver& driver, const std::string& name, const char* missing) {
  if (driver.Init != nullptr && driver.DeviceGetCount != nullptr) {
    int count = 0;
    const char* call = nullptr;
    const Result result = Count(driver, &count, &call);
    if (FindsNone(result, count)) {
      return absl::NotFoundError(absl::StrCat("the CUDA driver ", name, kFindsNoGpu));
    }
  }
  if (driver.Init == nullptr) {
    return absl::NotFoundError(absl::StrCat(name, " is no CUDA driver: it has no ", missing));
  }
  return absl::UnimplementedError(
      absl::StrCat("the CUDA driver ", name, " is too old: it has no ", missing));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Driver>> Driver::Load(const std::string& library) {
  const std::string name = library.empty() ? kSystemLibrary : library;
  const std::shared_ptr<Driver> driver(new Driver);
  const LoaderUse use;  // cuInit loads libraries too
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no CUDA driver: ", LoaderError()));
  }
  const char* const missing = LookUp(handle, driver.get());
  if (missing != nullptr) return TooOld(*driver, name, missing);
  if (absl::Status status = Start(*driver, name); !status.ok()) return status;
  return driver;
}

bool Driver::FoundNoGpu(const absl::Status& refusal) {
  return absl::IsNotFound(refusal) && absl::StrContains(refusal.message(), kFindsNoGpu);
}

std::shared_ptr<const Driver> Driver::LoadIfInUse() {
  Driver in_use;
  Context context;
  {
    const LoaderUse use;
    void* const handle = ::dlopen(kSystemLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr || LookUp(handle, &in_use) != nullptr) return nullptr;
  }
  if (in_use.CtxGetCurrent(&context) == kErrorNotInitialized) return nullptr;
  auto driver = Load();
  return driver.ok() ? *std::move(driver) : nullptr;
}

// A library's initialisers may fork.
void HoldLoader() {
  if (t_is_loading) return;
  t_holds_loader = g_loader.try_lock_until(LockDeadline(kForkPatience));
}

void ReleaseLoader() {
  if (std::exchange(t_holds_loader, false)) g_loader.unlock();
}

void ReleaseLoaderInChild() {
  // Whoever else had it is not there.
  if (!t_is_loading && !t_holds_loader) new (&g_loader) std::timed_mutex;
  ReleaseLoader();
}

absl::Status Driver::ToStatus(Result result, std::string_view what) const {
  if (result == kSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  (void)GetErrorName(result, &name);
  (void)GetErrorString(result, &text);
  const std::string call(what);
  if (name == nullptr || text == nullptr) {
    return AsCudaError(absl::Status(
        CodeOf(result), absl::StrCat(call, ": CUDA error ", result, ", which has no name")));
  }
  return AsCudaError(absl::Status(CodeOf(result), absl::StrCat(call, ": ", name, " (", text, ")")));
}

}  // namespace spccl::cuda
