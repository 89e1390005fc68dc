// The large-M family's candidates: every kernel with a few supergroup widths.
#include "bench/sm90_bench.h"
#include "kernels/sm90/fp8_block.h"

namespace culet::bench {
namespace {

Launcher Plan(const sm90::Fp8BlockKernel& kernel, int swizzle, const Problem& p) {
  sm90::Fp8BlockLaunch launch;
  if (p.m <= 64 || !sm90::PlanFp8Block(kernel, p, swizzle, p.sms, &launch)) return {};
  if (sm90::LoadFp8Block(kernel) != cudaSuccess) return {};
  return [launch](cudaStream_t stream) { return sm90::LaunchFp8Block(launch, stream); };
}

std::vector<Candidate> Make() {
  std::vector<Candidate> candidates;
  for (const sm90::Fp8BlockKernel& kernel : sm90::Fp8BlockKernels()) {
    if (kernel.output_bytes != 2) continue;  // the program's D is BF16
    for (int swizzle : {2, 3, 4}) {
      if (kernel.split > 1 && swizzle != 3) continue;  // one wave: the order hardly matters
      Candidate candidate;
      candidate.id = std::string(kernel.id) + "/w" + std::to_string(swizzle);
      candidate.plan = [&kernel, swizzle](const Problem& p) { return Plan(kernel, swizzle, p); };
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

const Family family("fp8_block", Make);

}  // namespace
}  // namespace culet::bench
