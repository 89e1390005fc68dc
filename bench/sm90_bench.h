// What a kernel family gives to sm90_bench: candidates that can plan a problem and launch it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product.h"

namespace culet::bench {

/// What a candidate plans: A and B as the public interface accepts them, D in epilogue.d_type. Of a
/// format with scales of rows scale_a and scale_b have one value a row of A and a column of B.
struct Problem : sm90::ProductProblem {
  int sms = 132;
};

/// One in eight of the launches that only cost time is timed all the same: predictions are fitted
/// to what is timed, and must know what is bad.
inline bool TimedAllTheSame(const Problem& p, int kind) {
  return (static_cast<unsigned>(p.m * 7 + p.n / 8 * 13 + p.k / 16 * 3 + kind * 5) * 2654435761u) >>
             29 ==
         0;
}

using Launcher = std::function<cudaError_t(cudaStream_t)>;

struct Candidate {
  std::string id;  ///< kernel id and launch parameters
  /// What it takes.
  const sm90::FormatInfo* format = &sm90::Fp8Block::kInfo;
  sm90::EpilogueKind epilogue = sm90::EpilogueKind::kPlain;
  /// A launcher bound to the problem's pointers; empty when the kernel refuses the problem.
  std::function<Launcher(const Problem&)> plan;
};

/// A static object of this type in a family's bench file adds its candidates to the program.
struct Family {
  using Make = std::vector<Candidate> (*)();
  Family(const char* name, Make make);
};

}  // namespace culet::bench
