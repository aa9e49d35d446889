// The tool in this process, with its output kept.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "ctl/context.h"
#include "nlohmann/json.hpp"

namespace spccl::ctl {

struct ToolRun {
  int code = -1;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline ToolRun RunArgs(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"spcclctl"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out, err;
  ToolRun run;
  run.code = RunTool(static_cast<int>(argv.size()), argv.data(), &out, &err);
  run.out = out.str();
  run.err = err.str();
  return run;
}

}  // namespace spccl::ctl
