// The store of the SIMD families, for kernels whose sums come from elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/problem.h"
#include "kernels/cpu/simd_exact.h"

namespace culet {

/// D[row, col .. col + count) = alpha * sums + beta * C + bias, rounded once, for each float type
/// of C, D and bias, D and C row-major. `sums` may be read up to the next multiple of 16.
/// What is not finite comes from `exact`, which is of `args`.
void StoreRowOfSums(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                    const float* sums, ExactElements& exact);

/// For a library that stores sums in D itself: computes what is not finite of D[row, col .. col +
/// count) again in double precision, as StoreRowOfSums does. D is row-major.
void RestoreRow(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                ExactElements& exact);

}  // namespace culet
