// Which algorithms the library offers for a problem.
#pragma once

#include <vector>

#include "culet/status.h"
#include "kernels/cublaslt/lt_problem.h"

namespace culet::lt {

/// The most algorithms requested; they come in the order of the library's estimates.
inline constexpr int kMostAlgorithms = 16;

/// The usable ones, best first; at least one. Errors: UNSUPPORTED when the library offers none;
/// else the library's error.
Result<std::vector<Algorithm>> FindAlgorithms(const Library& library, Handle handle,
                                              Problem problem, Preference preference);

/// Whether `algorithm`, which was found for packed operands, serves these.
/// Errors: UNSUPPORTED, with the library's words.
Status CheckAlgorithm(const Library& library, Handle handle, Problem problem,
                      const Algorithm& algorithm);

}  // namespace culet::lt
