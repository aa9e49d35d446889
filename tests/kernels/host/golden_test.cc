// Every target against the golden frames.
#include <gtest/gtest.h>

#include "tests/kernels/golden_suite.h"
#include "tests/kernels/host/host_codec.h"

namespace spccl {
namespace {

INSTANTIATE_TEST_SUITE_P(AllTargets, GoldenSuite, testing::ValuesIn(HostCodecs()), GoldenSuiteName);

}  // namespace
}  // namespace spccl
