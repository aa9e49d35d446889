#include "tests/support/temp_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/status.h"

namespace spccl::testing {

TempFolder::TempFolder() {
  std::string pattern = "/tmp/spccl-test-XXXXXX";
  SPCCL_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace spccl::testing
