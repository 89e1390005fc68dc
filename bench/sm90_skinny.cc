// The skinny family's candidates: every kernel with its warps along K.
#include <string>

#include "bench/sm90_bench.h"
#include "kernels/sm90/skinny/skinny.h"

namespace culet::bench {
namespace {

Launcher PlanCandidate(const sm90::SkinnyKernel& kernel, int splits, const Problem& p) {
  sm90::SkinnyLaunch launch;
  if (!sm90::PlanSkinny(kernel, p, splits, &launch)) return {};
  // Few warps leave the machine idle, many wait for each other: both only cost time here.
  const int warps = splits * sm90::SkinnyRowGroups(splits);
  const double places =
      double(p.sms) * warps * sm90::SkinnyResidentCtas(kernel, warps, p.m, p.pdl);
  const double filled = double((p.n + kernel.rows() - 1) / kernel.rows()) * splits / places;
  if (!TimedAllTheSame(p, splits) && p.n >= 2048 && (filled < 0.25 || (splits > 1 && filled > 2.2)))
    return {};
  if (sm90::Load(kernel) != cudaSuccess) return {};
  return [launch](cudaStream_t stream) { return launch.Start(stream); };
}

std::vector<Candidate> Make() {
  std::vector<Candidate> candidates;
  for (const sm90::SkinnyKernel& kernel : sm90::SkinnyKernels()) {
    // A plain D is BF16 in this program.
    if (kernel.epilogue == sm90::EpilogueKind::kPlain && kernel.output_bytes() != 2) continue;
    for (int splits = 1; splits <= sm90::kSkinnyMaxThreads / 32; ++splits) {
      Candidate candidate;
      candidate.id = kernel.Id() + "/k" + std::to_string(splits);
      candidate.format = kernel.format;
      candidate.epilogue = kernel.epilogue;
      candidate.plan = [&kernel, splits](const Problem& p) {
        return PlanCandidate(kernel, splits, p);
      };
      candidates.push_back(candidate);
      if (kernel.format != &sm90::Fp8Precise::kInfo) continue;
      candidate.format = &sm90::Fp8Fast::kInfo;  // precise products serve the fast, too
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

const Family family("skinny", Make);

}  // namespace
}  // namespace culet::bench
