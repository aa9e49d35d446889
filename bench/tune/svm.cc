#include "bench/tune/svm.h"

#include <libsvm/svm.h>

#include <algorithm>

#include "base/status.h"

namespace spccl::tune {
namespace {

using Nodes = std::array<svm_node, kFeatures + 1>;

Nodes ToNodes(const Features& row) {
  Nodes nodes;
  for (int i = 0; i < kFeatures; ++i) nodes[i] = {.index = i + 1, .value = row[i]};
  nodes[kFeatures] = {.index = -1, .value = 0};
  return nodes;
}

}  // namespace

// The model's support vectors point into `nodes`.
struct Svm::State {
  int only = 0;  // where there is no model
  std::vector<Nodes> nodes;
  svm_model* model = nullptr;
  ~State() {
    if (model != nullptr) svm_free_and_destroy_model(&model);
  }
};

Svm Svm::Train(const std::vector<Features>& rows, const std::vector<int>& labels, double c,
               double gamma) {
  SPCCL_CHECK(!rows.empty() && rows.size() == labels.size());
  auto state = std::make_shared<State>();
  Svm svm;
  svm.state_ = state;
  state->only = labels[0];
  if (std::all_of(labels.begin(), labels.end(), [&](int label) { return label == labels[0]; })) {
    return svm;
  }
  svm_set_print_string_function([](const char*) {});
  std::vector<svm_node*> pointers;
  std::vector<double> targets(labels.begin(), labels.end());
  for (const Features& row : rows) state->nodes.push_back(ToNodes(row));
  for (Nodes& nodes : state->nodes) pointers.push_back(nodes.data());
  svm_problem problem{
      .l = static_cast<int>(rows.size()), .y = targets.data(), .x = pointers.data()};
  svm_parameter parameters{};
  parameters.svm_type = C_SVC;
  parameters.kernel_type = RBF;
  parameters.gamma = gamma;
  parameters.C = c;
  parameters.cache_size = 16;
  parameters.eps = 1e-3;
  parameters.shrinking = 1;
  SPCCL_CHECK(svm_check_parameter(&problem, &parameters) == nullptr);
  state->model = svm_train(&problem, &parameters);
  return svm;
}

int Svm::Predict(const Features& row) const {
  if (state_->model == nullptr) return state_->only;
  const Nodes nodes = ToNodes(row);
  return static_cast<int>(svm_predict(state_->model, nodes.data()));
}

}  // namespace spccl::tune
