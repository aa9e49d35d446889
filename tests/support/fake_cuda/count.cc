// What the process holds of the fake.
#include "tests/support/fake_cuda/capture.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/process.h"
#include "tests/support/fake_cuda/stream.h"

namespace spccl::fake_cuda {

void CountVmm(spcclFakeHoldings* holdings);  // vmm.cc

}  // namespace spccl::fake_cuda

SPCCL_FAKE_EXPORT void spcclFakeCount(spcclFakeHoldings* holdings) {
  namespace fake = spccl::fake_cuda;
  using Kind = fake::Block::Kind;
  const fake::Inside inside;
  const fake::Lock lock(fake::process().mutex);
  *holdings = {};
  for (const auto& [base, block] : fake::blocks()) {
    if (block.kind == Kind::kAllocated) ++holdings->allocations;
    if (block.kind == Kind::kImported) ++holdings->imports;
    if (block.kind == Kind::kMapped) ++holdings->mappings;
    if (block.is_host()) ++holdings->host;
  }
  fake::CountVmm(holdings);
  for (const auto* stream : fake::streams()) holdings->streams += stream->is_own ? 1 : 0;
  holdings->events = fake::events().size();
  holdings->graphs = fake::CountGraphs();
}
