// The skinny family's candidates: every kernel with its warps along K.
#include <string>

#include "bench/sm90_bench.h"
#include "kernels/sm90/fp8_skinny.h"

namespace culet::bench {
namespace {

Launcher PlanCandidate(const sm90::Fp8SkinnyKernel& kernel, int splits, const Problem& p) {
  sm90::Fp8SkinnyLaunch launch;
  if (!sm90::PlanFp8Skinny(kernel, p, splits, &launch)) return {};
  // Few warps leave the machine idle, many wait for each other: both only cost time here.
  const double places = double(p.sms) * splits * launch.row_groups *
                        sm90::Fp8SkinnyResidentCtas(kernel, splits * launch.row_groups, p.pdl);
  const double filled = double((p.n + kernel.rows - 1) / kernel.rows) * splits / places;
  if (!TimedAllTheSame(p, splits) && p.n >= 2048 && (filled < 0.25 || (splits > 1 && filled > 2.2)))
    return {};
  if (sm90::LoadFp8Skinny(kernel) != cudaSuccess) return {};
  return [launch](cudaStream_t stream) { return sm90::LaunchFp8Skinny(launch, stream); };
}

std::vector<Candidate> Make() {
  std::vector<Candidate> candidates;
  for (const sm90::Fp8SkinnyKernel& kernel : sm90::Fp8SkinnyKernels()) {
    if (kernel.output_bytes != 2) continue;  // the program's D is BF16
    for (int splits = 1; splits <= sm90::kFp8SkinnyMaxThreads / 32; ++splits) {
      Candidate candidate;
      candidate.id = std::string("sm90_fp8_skinny/") + kernel.id + "/k" + std::to_string(splits);
      candidate.plan = [&kernel, splits](const Problem& p) {
        return PlanCandidate(kernel, splits, p);
      };
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

const Family family("skinny", Make);

}  // namespace
}  // namespace culet::bench
