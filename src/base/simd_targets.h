// Which targets SIMD code is compiled for; included before <hwy/foreach_target.h>.
#pragma once

// Ice Lake's and Zen 4's byte look-ups decode E4M3 fastest; Highway leaves the target out unasked.
#define HWY_WANT_AVX3_DL

// SSSE3 and SSE4: no machine that serves models stops there, and each target costs build time; the
// portable one serves them. SVE and RVV: register tiles are arrays of vectors, which vectors of
// unknown size cannot form. With sanitizers SIMD code takes a sixth of the build's time, and there
// AVX2 is the best level: the build without them tests the levels above, and CI needs no third run.
#ifdef __SANITIZE_ADDRESS__
#define CULET_UNSANITIZED_TARGETS (HWY_AVX3 | HWY_AVX3_DL)
#else
#define CULET_UNSANITIZED_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS                                                          \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | \
   CULET_UNSANITIZED_TARGETS)

#include <hwy/detect_targets.h>

#include <cstdint>

#include "base/host_simd.h"

namespace culet {

/// Puts CULET_SIMD into force before the first dispatch of any file with SIMD code.
inline const bool kSimdTargetsChosen = SimdTargets() != 0;

/// Whether the best of `targets` has 32 vector registers or more, so that a tile of 24
/// accumulators stays in them.
constexpr bool HasManyRegisters(std::int64_t targets) {
  return (targets & (HWY_AVX3 | HWY_AVX3_DL | HWY_NEON | HWY_PPC8)) != 0;
}

}  // namespace culet
