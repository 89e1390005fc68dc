// The small-M family's candidates: every kernel with its splits of K and CTAs a multiprocessor.
#include <string>

#include "bench/sm90_bench.h"
#include "kernels/sm90/swap/swap.h"

namespace culet::bench {
namespace {

Launcher PlanCandidate(const sm90::SwapKernel& kernel, int splits, int residency,
                       const Problem& p) {
  if (p.epilogue.up_column != 0) return {};  // takes gate and up by eights alone
  // Few token tiles, each at least half full.
  const int token_tiles = (p.m + kernel.tokens() - 1) / kernel.tokens();
  const bool all_the_same = TimedAllTheSame(p, splits * 4 + residency);
  const long tiles = static_cast<long>((p.n + kernel.rows() - 1) / kernel.rows()) * token_tiles;
  const bool one_wave = splits == 1 && tiles <= long{p.sms} * residency;
  if (token_tiles > (one_wave ? 16 : 4)) return {};
  if (!all_the_same && !one_wave &&
      token_tiles > (kernel.tokens() >= 64   ? 4
                     : kernel.tokens() == 32 ? 2
                                             : 1))
    return {};
  if (!all_the_same && kernel.tokens() > 8 && p.m <= kernel.tokens() / 2) return {};
  sm90::SwapLaunch launch;
  if (!sm90::PlanSwap(kernel, p, splits, residency, &launch)) return {};
  // Grids that leave half of the machine idle, or whose clusters do not all fit, only cost time
  // here.
  const long ctas =
      static_cast<long>(launch.shape.grid.x) * launch.shape.grid.y * launch.shape.grid.z;
  if (!all_the_same && p.n >= 2048 &&
      (ctas < p.sms / 3 || (splits > 1 && ctas > p.sms * residency * 3 / 2)))
    return {};
  if (sm90::Load(kernel) != cudaSuccess) return {};
  return [launch](cudaStream_t stream) { return launch.Start(stream); };
}

std::vector<Candidate> Make() {
  std::vector<Candidate> candidates;
  for (const sm90::SwapKernel& kernel : sm90::SwapKernels()) {
    const bool general = kernel.epilogue == sm90::EpilogueKind::kGeneral;
    if (!general && kernel.output != sm90::OutputType::kBf16) continue;  // as is the program's D
    for (int splits = 1; splits <= sm90::kSwapMaxSplits; ++splits) {
      for (int residency = 1; residency <= sm90::kSwapMaxResidency; ++residency) {
        if ((kernel.instance.residencies >> residency & 1) == 0) continue;
        Candidate candidate;
        // .../c<splits>/r<residency>, in which predictions were fitted
        std::string id = kernel.Id(residency);
        candidate.id = id.insert(id.rfind("/r"), "/c" + std::to_string(splits));
        candidate.plan = [&kernel, splits, residency](const Problem& p) {
          return PlanCandidate(kernel, splits, residency, p);
        };
        candidate.format = kernel.format;
        candidate.epilogue = kernel.epilogue;
        candidates.push_back(std::move(candidate));
      }
    }
  }
  return candidates;
}

const Family family("swap", Make);

}  // namespace
}  // namespace culet::bench
