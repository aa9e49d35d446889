// What spcclctl tune asks.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/control_service.h"
#include "daemon/control_service_convert.h"

namespace spccl::daemon {
namespace {

constexpr size_t kMostNameBytes = 4096;

v1::Model ToProto(const PlanModels::Loaded& loaded) {
  v1::Model model;
  model.set_origin(loaded.origin);
  model.set_name(loaded.name);
  model.set_text(loaded.text);
  return model;
}

}  // namespace

void ControlService::NoteModel(const Caller& caller, const std::string& what) {
  Event event{};
  event.kind = "settings-changed";
  event.uid = caller.uid;
  event.message = absl::StrCat("global: uid ", caller.uid, " ", what);
  core_->RecordEvent(event);
  Log(LogLevel::kInfo, "control", "plan model changed",
      {{"change", what}, {"uid", absl::StrCat(caller.uid)}});
}

grpc::Status ControlService::LoadModel(grpc::ServerContext* context,
                                       const v1::LoadModelRequest* request,
                                       v1::LoadModelResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(MustAdminister(caller, "load a plan model"));
    if (request->name().size() > kMostNameBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a model's name is at most ", kMostNameBytes, " bytes"));
    }
    SPCCL_RETURN_IF_ERROR(settings_->models().Load(request->name(), request->text()));
    NoteModel(caller, absl::StrCat("loaded the plan model ", request->name()));
    response->set_boot_id(BootIdText(all.core.boot_id));
    return absl::OkStatus();
  });
}

grpc::Status ControlService::UnloadModel(grpc::ServerContext* context,
                                         const v1::UnloadModelRequest* request,
                                         v1::UnloadModelResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(MustAdminister(caller, "unload the plan model"));
    SPCCL_RETURN_IF_ERROR(settings_->models().Unload());
    NoteModel(caller, "unloaded the plan model");
    response->set_boot_id(BootIdText(all.core.boot_id));
    *response->mutable_model() = ToProto(settings_->models().Describe());
    return absl::OkStatus();
  });
}

grpc::Status ControlService::GetModel(grpc::ServerContext* context,
                                      const v1::GetModelRequest* request,
                                      v1::GetModelResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    response->set_boot_id(BootIdText(all.core.boot_id));
    *response->mutable_model() = ToProto(settings_->models().Describe());
    return absl::OkStatus();
  });
}

}  // namespace spccl::daemon
