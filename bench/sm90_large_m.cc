// The large-M family's candidates: every kernel with a few supergroup widths.
#include "bench/sm90_bench.h"
#include "kernels/sm90/large_m.h"

namespace culet::bench {
namespace {

std::vector<Candidate> Make() {
  std::vector<Candidate> candidates;
  for (const sm90::LargeMKernel& kernel : sm90::LargeMKernels()) {
    for (int swizzle : {2, 3, 4}) {
      for (int stagger : {0, 150}) {
        if (kernel.split > 1 && (stagger == 0 || swizzle != 3)) continue;
        Candidate candidate;
        candidate.id =
            std::string(kernel.id) + "/w" + std::to_string(swizzle) + (stagger ? "" : "/t0");
        candidate.plan = [&kernel, swizzle, stagger](const Problem& p) -> Launcher {
          sm90::LargeMProblem problem{p.m,
                                      p.n,
                                      p.k,
                                      p.lda,
                                      p.ldb,
                                      p.ldd,
                                      p.a,
                                      p.b,
                                      p.d,
                                      p.scale_a,
                                      p.scale_b,
                                      p.scale_a_row,
                                      p.scale_a_block,
                                      p.scale_b_column,
                                      p.scale_b_block};
          if (p.m < 256) return {};
          sm90::LargeMParams params;
          int grid = 0;
          if (!sm90::PlanLargeM(kernel, problem, swizzle, p.sms, &params, &grid)) return {};
          params.stagger = stagger;
          if (sm90::LoadLargeM(kernel) != cudaSuccess) return {};
          return [&kernel, params, grid, pdl = p.pdl](cudaStream_t stream) {
            return sm90::LaunchLargeM(kernel, params, grid, pdl, stream);
          };
        };
        candidates.push_back(std::move(candidate));
      }
    }
  }
  return candidates;
}

const Family family("large_m", Make);

}  // namespace
}  // namespace culet::bench
