// The fields of [gpu].
#include <string>
#include <utility>

#include "daemon/config_fields.h"
#include "daemon/config_values.h"

namespace spccl::daemon {
namespace {

constexpr size_t kMaxLibraryBytes = 4095;  // the system's limit

// A shared library: a path, or a name that the loader looks for.
constexpr char kExpected[] =
    "a library's absolute path, its file name (libNAME.so.N) for the loader to look for, or an "
    "empty "
    "string";

bool IsLibrary(std::string_view text) {
  if (text.empty()) return true;
  const bool is_path = text.find('/') != std::string_view::npos;
  return (is_path ? text.starts_with('/') : text.find(".so") != std::string_view::npos) &&
         text.size() <= kMaxLibraryBytes && text.find('\0') == std::string_view::npos;
}

Field Library(std::string_view name, std::string_view help, std::string Config::*at) {
  return MakeField(
      name, help, kExpected, {TomlType::kString},
      [at](std::string_view text, Config* config) {
        if (!IsLibrary(text)) return false;
        config->*at = std::string(text);
        return true;
      },
      [at](const Config& config) { return QuoteToml(config.*at); });
}

Field Enabled() {
  return MakeField(
      "gpu.enabled",
      "Whether GPUs are used where there are any; off: their memory is copied through the host.",
      "one of auto, off", {TomlType::kString},
      [](std::string_view text, Config* config) {
        if (text != "auto" && text != "off") return false;
        config->gpu_enabled = text == "auto" ? GpuUse::kAuto : GpuUse::kOff;
        return true;
      },
      [](const Config& config) {
        return QuoteToml(config.gpu_enabled == GpuUse::kAuto ? "auto" : "off");
      });
}

Field BetweenNodes() {
  return MakeField(
      "gpu.between_nodes",
      "How frames in GPUs' memory get to other nodes; auto: by NCCL where all nodes of a "
      "communicator have it, in the same version; host: through the hosts' memory.",
      "one of auto, host", {TomlType::kString},
      [](std::string_view text, Config* config) {
        if (text != "auto" && text != "host") return false;
        config->gpu_between_nodes = text == "auto" ? GpuRoute::kAuto : GpuRoute::kHost;
        return true;
      },
      [](const Config& config) {
        return QuoteToml(config.gpu_between_nodes == GpuRoute::kAuto ? "auto" : "host");
      });
}

// A path that has nothing left to do would have no rate.
constexpr double kMostHostShare = 0.9;

Field Multipath() {
  return MakeField(
      "gpu.multipath",
      "The share of large all-reduces over several GPUs of this node that goes over pinned memory "
      "and the host; auto: by measurement.",
      "auto, off, or a number from 0 to 0.9",
      {TomlType::kString, TomlType::kFloat, TomlType::kInteger},
      [](std::string_view text, Config* config) {
        double share = 0;
        if (text == "auto") {
          config->gpu_multipath.reset();
          return true;
        }
        if (text != "off" && (!ParseThreshold(text, &share) || share > kMostHostShare)) {
          return false;
        }
        config->gpu_multipath = share;
        return true;
      },
      [](const Config& config) {
        if (!config.gpu_multipath) return QuoteToml("auto");
        return *config.gpu_multipath == 0 ? QuoteToml("off") : ShowNumber(*config.gpu_multipath);
      });
}

}  // namespace

void AddGpuFields(std::vector<Field>* fields) {
  fields->push_back(Enabled());
  fields->push_back(Library("gpu.driver", "The CUDA driver; empty: the system's, libcuda.so.1.",
                            &Config::gpu_driver));
  fields->push_back(
      Library("gpu.kernels",
              "The kernels for GPUs, libspccl_device.so; empty: the one installed with spccld.",
              &Config::gpu_kernels));
  fields->push_back(Library(
      "gpu.nccl", "NCCL, or NCCLX, for GPUs of several nodes; empty: the system's, libnccl.so.2.",
      &Config::gpu_nccl));
  fields->push_back(BetweenNodes());
  fields->push_back(Multipath());
}

}  // namespace spccl::daemon
