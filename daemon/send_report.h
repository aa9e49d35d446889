// What an operation's sends decided, in words.
#pragma once

#include <string>

#include "daemon/control.h"

namespace spccl::daemon {

// The reason that most sends of a step had.
policy::Reason MainReason(const runtime::SendStepStats& step);

// "all_reduce by recursive-doubling: send 0 (reduce_scatter, inter) first, sparsity 0.98; sends 1-3
// (reduce_scatter, inter) known-above, sparsity 0.96, threshold 0.5". Sends one after the other
// that differ in numbers only are told together. Empty where no send was noted, as of frames
// between GPUs of one node.
std::string Describe(const SendsInfo& sends);

// The same without numbers of the data: equal where the same was decided for the same reasons.
std::string Outline(const SendsInfo& sends);

}  // namespace spccl::daemon
