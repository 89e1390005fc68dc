// The large-M family's candidates: every kernel with a few supergroup widths.
#include "bench/sm90_bench.h"
#include "kernels/sm90/block/block.h"

namespace culet::bench {
namespace {

Launcher Plan(const sm90::BlockKernel& kernel, int swizzle, const Problem& p) {
  sm90::BlockLaunch launch;
  if ((p.m <= 64 && kernel.tile_m > 64) || !sm90::PlanBlock(kernel, p, swizzle, p.sms, &launch))
    return {};
  if (sm90::Load(kernel) != cudaSuccess) return {};
  return [launch](cudaStream_t stream) { return launch.Start(stream); };
}

std::vector<Candidate> Make() {
  std::vector<Candidate> candidates;
  for (const sm90::BlockKernel& kernel : sm90::BlockKernels()) {
    // A plain D is BF16 in this program.
    if (kernel.epilogue == sm90::EpilogueKind::kPlain && kernel.output_bytes != 2) continue;
    for (int swizzle : {2, 3, 4}) {
      if (kernel.split > 1 && swizzle != 3) continue;  // one wave: the order hardly matters
      Candidate candidate;
      candidate.id = kernel.id + "/w" + std::to_string(swizzle);
      candidate.format = kernel.format;
      candidate.epilogue = kernel.epilogue;
      candidate.plan = [&kernel, swizzle](const Problem& p) { return Plan(kernel, swizzle, p); };
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

const Family family("block", Make);

}  // namespace
}  // namespace culet::bench
