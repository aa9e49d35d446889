// The GPU kernels, on the fibre lane, pass what the host's codecs pass.
#include "kernels/sparse/device_codec.h"

#include <gtest/gtest.h>

#include "tests/kernels/codec_suite.h"
#include "tests/kernels/dense_suite.h"
#include "tests/kernels/golden_suite.h"
#include "tests/kernels/sparse/fibre_codec.h"

namespace spccl {
namespace {

INSTANTIATE_TEST_SUITE_P(Fibre, CodecSuite, EveryFormatAndDType(FibreCodecs()), CodecSuiteName);
INSTANTIATE_TEST_SUITE_P(Fibre, DenseSuite, EveryDTypeAndOp(FibreCodecs()), DenseSuiteName);
INSTANTIATE_TEST_SUITE_P(Fibre, GoldenSuite, testing::ValuesIn(FibreCodecs()), GoldenSuiteName);

}  // namespace
}  // namespace spccl
