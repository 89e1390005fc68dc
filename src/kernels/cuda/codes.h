// What the kernels for weights of codes have in common.
#pragma once

#include "culet/desc.h"
#include "culet/kernel.h"

namespace culet {

/// The problem with a B of numbers without scales, for what is said of all problems.
GemmDesc WithoutCodes(const GemmDesc& problem) noexcept;

/// Ok, or why B's codes, scales and zero points or the rows of A are not as the kernels read them.
/// Groups are rows or a multiple of `group_step` elements; with `blocks` of several rows, too.
Feasibility WhyNotCodes(const GemmDesc& problem, int group_step, bool blocks) noexcept;

}  // namespace culet
