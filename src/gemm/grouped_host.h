// Grouped products on the CPU, and what their arguments mean.
#pragma once

#include <memory>

#include "culet/grouped.h"
#include "culet/grouped_kernel.h"

namespace culet {

inline constexpr int kGroupedBlock = 128;  // values that share a scale of E4M3

constexpr int GroupedBlocks(int count) noexcept {
  return (count + kGroupedBlock - 1) / kGroupedBlock;
}
constexpr bool IsScaledGroup(const GroupedArgs& args) noexcept {
  return args.type == DataType::kFloat8_e4m3;
}
constexpr bool IsGatedGroup(const GroupedArgs& args) noexcept {
  return args.epilogue == Epilogue::kGatedSilu;
}
/// Rows of a group's matrix.
constexpr int RowsOfGroup(const GroupedArgs& args) noexcept {
  return IsGatedGroup(args) ? 2 * args.n : args.n;
}

/// "cpu_grouped/products": one product a group, each with the engine's choice for its rows.
std::unique_ptr<GroupedKernel> MakeHostGrouped();

}  // namespace culet
