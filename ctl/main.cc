#include <iostream>

#include "ctl/context.h"

int main(int argc, char** argv) {
  return spccl::ctl::RunTool(argc, argv, &std::cout, &std::cerr);
}
