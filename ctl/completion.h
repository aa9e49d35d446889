// Completion scripts for shells, made from the tree of commands.
#pragma once

#include <string>

#include "ctl/context.h"

namespace spccl::ctl {

std::string BashCompletion(const Tree& tree);
std::string ZshCompletion(const Tree& tree);
std::string FishCompletion(const Tree& tree);

}  // namespace spccl::ctl
