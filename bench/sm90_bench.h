// What a kernel family gives to sm90_bench: candidates that can plan a problem and launch it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace culet::bench {

/// D(BF16, m x n, ld ldd) = A(E4M3, m x k) x B(E4M3, n x k); scales as the public interface accepts
/// them.
struct Problem {
  int m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const float* scale_a =
      nullptr;  ///< element (row, block) at row * scale_a_row + block * scale_a_block
  const float* scale_b = nullptr;  ///< element (column block, block) likewise
  int scale_a_row = 0, scale_a_block = 0, scale_b_column = 0, scale_b_block = 0;
  bool pdl = false;
  int sms = 132;
};

using Launcher = std::function<cudaError_t(cudaStream_t)>;

struct Candidate {
  std::string id;  ///< kernel id and launch parameters
  /// A launcher bound to the problem's pointers; empty when the kernel refuses the problem.
  std::function<Launcher(const Problem&)> plan;
};

/// A static object of this type in a family's bench file adds its candidates to the program.
struct Family {
  using Make = std::vector<Candidate> (*)();
  Family(const char* name, Make make);
};

}  // namespace culet::bench
