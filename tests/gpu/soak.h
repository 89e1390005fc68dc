// Millions of launches over several streams and threads.
#pragma once

#include "culet/gemm.h"

namespace culet {

struct SoakOptions {
  long launches = 1'000'000;
  int streams = 8;
  int threads = 4;
};

/// Every kernel of the registry and the quantiser in turn, in groups of four launches back to back
/// and a check of all four outputs, guard zones included, bit by bit; half of them in replayed CUDA
/// graphs. Prints one line for each family and one for the memory. Returns whether nothing differed
/// and the free memory of the device stayed the same.
bool Soak(Gemm& gemm, const SoakOptions& options);

}  // namespace culet
