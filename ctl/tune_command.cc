// tune load, tune show, tune unload.
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/read_file.h"
#include "base/status.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr size_t kMostModelBytes = size_t{1} << 20;

// Where the model that is in force comes from.
std::string Origin(const v1::Model& model) {
  if (model.origin().empty()) return "no model: the cost model chooses plans between nodes";
  return absl::StrCat("a model chooses plans between nodes: ", Printable(model.name()),
                      model.origin() == "loaded" ? " (loaded)" : " (of the configuration)");
}

absl::Status LoadModel(Context& context, const std::string& path) {
  v1::LoadModelRequest request;
  request.set_name(Printable(path));
  SPCCL_ASSIGN_OR_RETURN(*request.mutable_text(), ReadRegularFile(path, kMostModelBytes));
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  SPCCL_ASSIGN_OR_RETURN(const v1::LoadModelResponse response,
                         client->Call(&v1::Control::Stub::LoadModel, request));
  if (context.json()) {
    context.PrintJson(ToJson(response));
  } else {
    context.out() << "in force from the next operation on, of communicators whose rank 0 is here\n";
  }
  return absl::OkStatus();
}

absl::Status ShowModel(Context& context) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  SPCCL_ASSIGN_OR_RETURN(const v1::GetModelResponse response,
                         client->Call(&v1::Control::Stub::GetModel, v1::GetModelRequest()));
  if (context.json()) {
    context.PrintJson(ToJson(response));
    return absl::OkStatus();
  }
  context.out() << "# " << Origin(response.model()) << "\n" << response.model().text();
  return absl::OkStatus();
}

absl::Status UnloadModel(Context& context) {
  SPCCL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(context.options()));
  SPCCL_ASSIGN_OR_RETURN(const v1::UnloadModelResponse response,
                         client->Call(&v1::Control::Stub::UnloadModel, v1::UnloadModelRequest()));
  if (context.json()) {
    context.PrintJson(ToJson(response));
  } else {
    context.out() << Origin(response.model()) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddTuneCommands(Tree* tree) {
  CLI::App* parent = tree->app.add_subcommand("tune", "What has been learned of plans.");
  parent->require_subcommand(1);
  const auto path = std::make_shared<std::string>();
  tree->Add(parent, "load", "Let a model of spccl-tune choose plans between nodes.",
            [path](Context& context) { return LoadModel(context, *path); })
      ->add_option("FILE", *path, "The model.toml that spccl-tune has written.")
      ->required();
  tree->Add(parent, "show", "Show the model that is in force.", ShowModel);
  tree->Add(parent, "unload", "Forget the model that was loaded.", UnloadModel);
}

}  // namespace spccl::ctl
