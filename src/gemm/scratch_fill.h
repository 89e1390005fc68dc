// Values of synthetic inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/desc.h"
#include "culet/scratch.h"
#include "culet/status.h"
#include "gemm/scratch_layout.h"

namespace culet {

/// Fills a host block of `arrangement.bytes`: NaNs everywhere, then the values of every input, then
/// poison in the regions of D and W. Depends on the desc's types and sizes, the fill and the seed
/// alone. Errors: RESOURCE_EXHAUSTED when options.stop ends it.
Status FillBlock(const GemmDesc& desc, const Arrangement& arrangement,
                 const ScratchOptions& options, std::byte* block);

/// Whether Fill::kIntegers gives this problem inputs whose partial sums are all representable in
/// the accumulator. Only a k above 2^22 (2^13 in one of 14 bits over all of K) is too long.
bool IntegersAreExact(const GemmDesc& desc, const Accumulator& accumulator) noexcept;

/// What D holds before a launch, as a word whose lowest bytes are one element: a signalling NaN,
/// which no arithmetic produces. E4M3 has none; its negative NaN stands in.
std::uint32_t PoisonWord(DataType type) noexcept;

}  // namespace culet
