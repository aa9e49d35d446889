// What has been learned of plans between nodes: the file that spccl-tune writes, and which one is
// in force, live and kept over a restart. The format is in docs/tuning.md.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/policy/plan_table.h"

namespace spccl::daemon {

// InvalidArgument "NAME:LINE:COLUMN: ..." where `text` is not such a file, with what was found and
// what was expected. `name` is used for messages only.
absl::StatusOr<policy::PlanModel> ParsePlanModel(std::string_view text, std::string_view name);

// Thread-safe; Current() never waits for the disk.
class PlanModels {
 public:
  struct Loaded {
    std::string origin;  // "loaded", "configuration", or empty: none
    std::string name;    // of its file
    std::string text;
  };

  // Reads state_dir/model.toml if it is there, else the file `configured` if that is not empty. One
  // that cannot be read or does not parse is an error. Borrows the folder.
  static absl::StatusOr<std::unique_ptr<PlanModels>> Create(const std::string& state_dir,
                                                            const std::string& configured);

  // In force now; null: none. Another object after each change.
  std::shared_ptr<const policy::PlanModel> Current() const;
  Loaded Describe() const;

  // On disk before it takes effect, or not at all. InvalidArgument: it does not parse, or `text` is
  // larger than kMostBytes; ResourceExhausted, FailedPrecondition: it could not be written.
  static constexpr size_t kMostBytes = 1 << 20;
  absl::Status Load(const std::string& name, const std::string& text);
  // Then what the configuration names is in force.
  absl::Status Unload();

 private:
  struct Model {
    Loaded loaded;
    std::shared_ptr<const policy::PlanModel> model;
  };
  static absl::StatusOr<Model> Make(Loaded loaded);

  explicit PlanModels(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  Model configured_;
  std::mutex write_mutex_;    // one writer at a time; taken before mutex_
  mutable std::mutex mutex_;  // of what is below; never held over disk work
  Model current_;
};

}  // namespace spccl::daemon
