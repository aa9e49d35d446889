#include "daemon/plan_models.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/file_io.h"

namespace spccl::daemon {

absl::StatusOr<PlanModels::Model> PlanModels::Make(Loaded loaded) {
  SPCCL_ASSIGN_OR_RETURN(policy::PlanModel model, ParsePlanModel(loaded.text, loaded.name));
  return Model{.loaded = std::move(loaded),
               .model = std::make_shared<const policy::PlanModel>(std::move(model))};
}

absl::StatusOr<std::unique_ptr<PlanModels>> PlanModels::Create(const std::string& state_dir,
                                                               const std::string& configured) {
  std::unique_ptr<PlanModels> models(new PlanModels(state_dir + "/model.toml"));
  if (!configured.empty()) {
    absl::StatusOr<std::string> text = ReadFile(configured);
    if (!text.ok()) return Annotate(text.status(), "tuning.model");
    SPCCL_ASSIGN_OR_RETURN(models->configured_,
                           Make({.origin = "configuration", .name = configured, .text = *text}));
    models->current_ = models->configured_;
  }
  absl::StatusOr<std::string> kept = ReadFile(models->path_);
  if (absl::IsNotFound(kept.status())) return models;
  if (!kept.ok()) return kept.status();
  SPCCL_ASSIGN_OR_RETURN(models->current_,
                         Make({.origin = "loaded", .name = models->path_, .text = *kept}));
  return models;
}

std::shared_ptr<const policy::PlanModel> PlanModels::Current() const {
  const std::lock_guard lock(mutex_);
  return current_.model;
}

PlanModels::Loaded PlanModels::Describe() const {
  const std::lock_guard lock(mutex_);
  return current_.loaded;
}

absl::Status PlanModels::Load(const std::string& name, const std::string& text) {
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":1:1: found ", text.size(), " bytes, expected at most ", kMostBytes));
  }
  SPCCL_ASSIGN_OR_RETURN(Model model, Make({.origin = "loaded", .name = name, .text = text}));
  const std::lock_guard write_lock(write_mutex_);
  SPCCL_RETURN_IF_ERROR(ReplaceFile(path_, text));
  const std::lock_guard lock(mutex_);
  current_ = std::move(model);
  return absl::OkStatus();
}

absl::Status PlanModels::Unload() {
  const std::lock_guard write_lock(write_mutex_);
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    const absl::Status status = ErrnoStatus(errno, absl::StrCat("remove ", path_));
    return absl::FailedPreconditionError(status.message());  // no fault of the caller's
  }
  const std::lock_guard lock(mutex_);
  current_ = configured_;
  return absl::OkStatus();
}

}  // namespace spccl::daemon
