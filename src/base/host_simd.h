// The SIMD level of this process: which of the compiled targets may run.
#pragma once

#include <cstdint>
#include <string>

namespace culet {

/// Highway's mask of the targets that are compiled in, that this CPU has, and that CULET_SIMD
/// allows; never empty. Worked out once: nothing else asks Highway, which forgets the cap when it
/// is asked.
std::int64_t SimdTargets();

/// The compiled target that `text` names as `culet devices` does, "avx2"; 0 if there is none.
/// `text` may be null (0).
std::int64_t ParseSimd(const char* text);

/// The best instruction set that the SIMD kernels use: "avx3_dl", "avx2", "neon".
std::string HostIsa();

}  // namespace culet
