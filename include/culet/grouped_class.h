// What is known of a grouped product before routing: the key of its choice.
//
// Such a GemmDesc has group_axis 0. m counts tokens, each of which goes to group_active of
// group_experts experts; the num groups are some or all of them. n counts rows of a group's matrix,
// gate's and up's together. A is kBlocked, rows by groups, or kIndexed, rows by an index. How many
// rows a group has is no part of it: one choice, and one CUDA graph, serves every routing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "culet/desc.h"

namespace culet {

constexpr bool IsGrouped(const GemmDesc& desc) noexcept { return desc.group_axis >= 0; }

/// Means over routings in which tokens choose experts at random; at least one row.
struct GroupedRows {
  double rows = 1;     ///< of all groups
  double reached = 1;  ///< groups that have any
};
inline GroupedRows ExpectedRows(const GemmDesc& desc) noexcept {
  const double tokens = std::max(desc.m, 1), groups = desc.num;
  const double share =
      std::min(1.0, static_cast<double>(desc.group_active) / std::max(desc.group_experts, 1));
  return {std::max(tokens * share * groups, 1.0),
          std::max(groups * (1 - std::pow(1 - share, tokens)), 1.0)};
}

/// Bytes that must move: rows of A with their scales, the matrices of groups with rows, D.
inline double GroupedBytes(const GemmDesc& desc, const GroupedRows& rows) noexcept {
  const double element = BitsOf(desc.a.type) / 8.0, k = desc.k;
  const bool scaled = desc.a.quant.type != QuantType::kNone;
  const double row = k * element + (scaled ? k / 128 * 4 : 0);
  const double matrix = desc.n * (k * element + (scaled ? k / 16384 * 4 : 0));
  const bool gathers = desc.a.striding == Striding::kIndexed;
  const double rows_of_a = gathers ? std::min<double>(rows.rows, desc.m) : rows.rows;
  return rows_of_a * row + rows.reached * matrix +
         rows.rows * ColumnsOfD(desc) * BitsOf(desc.d.type) / 8.0;
}
inline double GroupedBytes(const GemmDesc& desc) noexcept {
  return GroupedBytes(desc, ExpectedRows(desc));
}

/// How tokens choose experts in a measurement.
enum class GroupedRouting : std::uint8_t {
  kEven,  ///< at random
  kZipf,  ///< expert i with weight 1 / (i + 1)
  kHalf,  ///< one expert has half of the rows, the others shares of the rest
};
inline constexpr GroupedRouting kGroupedRoutings[] = {GroupedRouting::kEven, GroupedRouting::kZipf,
                                                      GroupedRouting::kHalf};
constexpr const char* ToString(GroupedRouting routing) noexcept {
  return routing == GroupedRouting::kEven   ? "even"
         : routing == GroupedRouting::kZipf ? "zipf"
                                            : "half";
}

}  // namespace culet
