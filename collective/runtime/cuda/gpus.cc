#include "collective/runtime/cuda/gpus.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/runtime/cuda/gpu_device.h"

namespace spccl::runtime {
namespace {

constexpr char kCodecLibrary[] = "libspccl_device.so";

// Where the library may be if nobody says: where the loader looks, beside the program, where it is
// installed (cmake/SpcclOptions.cmake), and where it is built.
std::vector<std::string> CodecPlaces(const std::string& named) {
  if (!named.empty()) return {named};
  std::vector<std::string> places = {kCodecLibrary};
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return places;
  const std::filesystem::path folder = program.parent_path();
  for (const char* const beside : {"", SPCCL_DEVICE_FROM_SBIN, "../kernels/launch"}) {
    places.push_back((folder / beside / kCodecLibrary).lexically_normal().string());
  }
  return places;
}

// By the loader's words: in no other way does it tell that from a library that it cannot load, for
// which another one may be missing.
bool IsAbsent(std::string_view place, std::string_view reason) {
  return reason.starts_with(place) && reason.ends_with("No such file or directory");
}

// Of where it looked in vain, what is wrong with those that are there comes first.
absl::Status NoCodec(const std::vector<std::string>& places,
                     const std::vector<std::string>& reasons) {
  if (!reasons.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("kernels for GPUs: ", absl::StrJoin(reasons, "; ")));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no kernels for GPUs: there is no ", absl::StrJoin(places, ", nor ")));
}

// Which file it is, where the loader has found it by its name alone.
std::string FileOf(device::GetCodecTable function, const std::string& otherwise) {
  Dl_info info{};
  const bool is_known = ::dladdr(reinterpret_cast<void*>(function), &info) != 0;
  return is_known && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

// The library stays loaded: kernels may be under way until the process ends.
absl::StatusOr<const device::CodecTable*> LoadCodec(const std::string& named) {
  const std::vector<std::string> places = CodecPlaces(named);
  std::vector<std::string> reasons;
  std::string found;
  void* library = nullptr;
  for (const std::string& place : places) {
    library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    found = place;
    if (library != nullptr) break;
    std::string reason = ::dlerror();
    if (!IsAbsent(place, reason)) reasons.push_back(std::move(reason));
  }
  if (library == nullptr) return NoCodec(places, reasons);
  const auto get =
      reinterpret_cast<device::GetCodecTable>(::dlsym(library, device::kCodecTableSymbol));
  if (get == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("kernels for GPUs: ", found, " has none: it is no libspccl_device.so"));
  }
  const device::CodecTable* const table = get();
  if (table->version != device::kCodecTableVersion || table->bytes != sizeof(device::CodecTable)) {
    return absl::FailedPreconditionError(absl::StrCat("kernels for GPUs: those of ", found,
                                                      " are of version ", table->version,
                                                      " instead of ", device::kCodecTableVersion));
  }
  Log(LogLevel::kInfo, "gpu", "the kernels for GPUs are loaded", {{"library", FileOf(get, found)}});
  return table;
}

class DriverGpus final : public Gpus {
 public:
  DriverGpus(std::shared_ptr<const cuda::Driver> driver, const device::CodecTable& codec)
      : driver_(std::move(driver)), codec_(codec) {}

  // All threads end before the first GPU is gone: they post to each other.
  ~DriverGpus() override {
    for (const std::unique_ptr<GpuDevice>& gpu : gpus_) gpu->Close();
  }

  absl::Status OpenAll(const Options& options) {
    int count = 0;
    SPCCL_RETURN_IF_ERROR(driver_->ToStatus(driver_->DeviceGetCount(&count), "cuDeviceGetCount"));
    absl::Status first = absl::NotFoundError("there is no GPU");
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      auto gpu =
          GpuDevice::Create(driver_, codec_, ordinal, static_cast<int>(gpus_.size()), options);
      if (gpu.ok()) {
        gpus_.push_back(*std::move(gpu));
        continue;
      }
      refused_.push_back(absl::StrCat("GPU ", ordinal, ": ", gpu.status().message()));
      if (absl::IsNotFound(first)) first = absl::UnavailableError(gpu.status().message());
      Log(LogLevel::kWarning, "gpu", "a GPU cannot be used",
          {{"gpu", absl::StrCat(ordinal)}, {"reason", std::string(gpu.status().message())}});
    }
    if (gpus_.empty()) return first;
    reach_.resize(gpus_.size(), std::vector<bool>(gpus_.size()));
    for (size_t from = 0; from < gpus_.size(); ++from) {
      for (size_t to = 0; to < gpus_.size(); ++to) reach_[from][to] = Reach(from, to);
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const cuda::Driver>& driver() const override { return driver_; }
  const device::CodecTable& codec() const override { return codec_; }
  size_t count() const override { return gpus_.size(); }
  Gpu& at(size_t index) override { return *gpus_[index]; }
  Gpu* Find(const cuda::Uuid& uuid) override {
    for (const std::unique_ptr<GpuDevice>& gpu : gpus_) {
      if (std::memcmp(&gpu->uuid(), &uuid, sizeof(uuid)) == 0) return gpu.get();
    }
    return nullptr;
  }
  const std::vector<std::string>& refused() const override { return refused_; }
  bool reach(size_t from, size_t to) const override { return reach_[from][to]; }

 private:
  // Once for each ordered pair.
  bool Reach(size_t from, size_t to) {
    if (from == to) return true;
    int can = 0;
    if (driver_->DeviceCanAccessPeer(&can, gpus_[from]->device(), gpus_[to]->device()) !=
            cuda::kSuccess ||
        can == 0) {
      return false;
    }
    const cuda::ScopedContext current(*driver_, gpus_[from]->context());
    if (!current.status().ok()) return false;
    const cuda::Result result = driver_->CtxEnablePeerAccess(gpus_[to]->context(), 0);
    return result == cuda::kSuccess || result == cuda::kErrorPeerAccessAlreadyEnabled;
  }

  const std::shared_ptr<const cuda::Driver> driver_;
  const device::CodecTable& codec_;
  std::vector<std::unique_ptr<GpuDevice>> gpus_;
  std::vector<std::string> refused_;
  std::vector<std::vector<bool>> reach_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gpus>> Gpus::Open(const Options& options) {
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<const cuda::Driver> driver,
                         cuda::Driver::Load(options.driver_library));
  SPCCL_ASSIGN_OR_RETURN(const device::CodecTable* const codec, LoadCodec(options.codec_library));
  auto gpus = std::make_unique<DriverGpus>(std::move(driver), *codec);
  SPCCL_RETURN_IF_ERROR(gpus->OpenAll(options));
  return gpus;
}

}  // namespace spccl::runtime
