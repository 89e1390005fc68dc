// Where the operands of a synthetic problem lie in one block of memory.
#pragma once

#include <cstddef>

#include "culet/desc.h"
#include "culet/problem.h"
#include "culet/scratch.h"
#include "culet/status.h"

namespace culet {

/// One operand with its guard zones, as byte offsets into the block. A line is a row of a row-major
/// matrix, a column of a column-major one; the lines of a batch's matrices follow one another.
struct Region {
  MatrixLayout layout;    ///< type kNull: absent, and all else is 0
  std::size_t begin = 0;  ///< of the guard zone before
  std::size_t data = 0;   ///< of element (0, 0)
  std::size_t end = 0;    ///< behind the guard zone after
  std::size_t lines = 0;
  std::size_t line_bytes = 0;
  std::size_t pitch_bytes = 0;  ///< ld in bytes

  bool present() const noexcept { return layout.type != DataType::kNull; }
};

/// All operands of a problem, zero points and D's scales W included. The outputs come last: [0,
/// d.begin) is the inputs.
struct Arrangement {
  Region a, u, zero_a, b, v, zero_b, c, bias, d, w;
  Region packed_b;  ///< where B is packed: what kernels read in place of `b`, which is plain
  std::size_t bytes = 0;
};

/// Gives every operand exactly its alignment class: for classes below 16 neither the pitch nor the
/// pointer has a larger one. The bias, which has no class, is aligned to its element only.
/// `as_allocated`: pointers are multiples of 256, except those of packed operands, which have no
/// pitch. Errors: INVALID_ARGUMENT for sizes, types and classes that no problem has.
Result<Arrangement> Arrange(const GemmDesc& desc, std::size_t gap_bytes, bool as_allocated = false);

/// The problem over a block at `base`.
GemmArgs ArgsOver(const Arrangement& arrangement, const GemmDesc& desc, float alpha, float beta,
                  std::byte* base);

}  // namespace culet
