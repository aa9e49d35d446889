// The ways to send that are worth a trial, where codec and thresholds are left to the daemon: the
// cost model says which of them may be fast, trials (policy/trials.h) which of these is. Pure, and
// the same on all nodes to the last bit, as choose_plan.h says: nodes then try the same at the same
// time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collective/op.h"
#include "collective/policy/choose_plan.h"
#include "collective/policy/settings.h"
#include "collective/policy/tuning.h"

namespace spccl::policy {

// How all sends of an operation go. By the model: as policy/send_policy.h says.
struct Way {
  bool by_model = true;
  Codec codec = Codec::kAuto;
  // Of the sends after the first, which measures: all sparse (0), or all dense (1).
  double threshold = 0;
  bool operator==(const Way&) const = default;
};

// "model", "dense", "pici", "pici first": for people.
std::string NameOf(const Way& way);

// Whether `settings` leave it all to the daemon: codec and every threshold between nodes auto.
bool LeavesAllOpen(const Settings& settings);

// `settings` for an operation that goes this way.
Settings Apply(Settings settings, const Way& way);

// The model first, then whatever it does not forecast to be more than twice as slow as the best.
std::vector<Way> WaysToTry(Algorithm algorithm, const Tuning& tuning, const OpDesc& op,
                           const Topology& topology);

}  // namespace spccl::policy
