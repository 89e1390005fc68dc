// The tensor maps of operands, the same for all formats and families: rows of bytes, k-blocks of
// 128.
#pragma once

#include <cstdint>

#include "kernels/sm90/product/policy.h"
#include "sm90/descriptor.h"

namespace culet::sm90 {

/// The map of `rows` rows of `k` elements, `ld` apart. A box is a k-block of `box_rows` rows.
inline TensorMapPlan BytesPlan(int k, int rows, std::int64_t ld, int element_bytes, int box_rows) {
  TensorMapPlan plan;
  plan.inner = static_cast<std::uint64_t>(k) * static_cast<std::uint64_t>(element_bytes);
  plan.outer = static_cast<std::uint64_t>(rows);
  plan.pitch_bytes = static_cast<std::uint64_t>(ld) * static_cast<std::uint64_t>(element_bytes);
  plan.box_inner = kBlockBytes;
  plan.box_outer = static_cast<std::uint32_t>(box_rows);
  return plan;
}

/// The same for weights whose columns are pairs of gate and up. A box brings `box_rows` rows: eight
/// of gate, eight of up, and so on. Axes: bytes of K, eight rows, gate or up, pairs of groups of
/// eight. `up_row`: the first row of up, or 0 where groups of eight gates and eight ups alternate.
inline TensorMapPlan PairedPlan(int k, int rows, std::int64_t ld, int element_bytes, int box_rows,
                                int up_row) {
  TensorMapPlan plan = BytesPlan(k, 8, ld, element_bytes, 8);
  plan.rank = 4;
  plan.depth = plan.box_depth = 2;
  plan.depth_bytes = plan.pitch_bytes * static_cast<std::uint64_t>(up_row != 0 ? up_row : 8);
  plan.blocks = static_cast<std::uint64_t>(rows / 16);
  plan.block_bytes = plan.pitch_bytes * (up_row != 0 ? 8 : 16);
  plan.box_blocks = static_cast<std::uint32_t>(box_rows / 16);
  return plan;
}

/// With LanesPlan: columns of D that a lane has side by side, and columns of B in a box.
inline constexpr int kLaneColumns = 16, kLaneBox = 8 * kLaneColumns;

/// Weights whose columns are pairs of gate and up, in an order that gives each lane kLaneColumns
/// columns of D side by side. wgmma gives lane q of four neighbours columns 2q and 2q + 1 of every
/// eight. A box brings kLaneBox rows: for i = 0 to 7 the eight columns i, 8 + i, 16 + i, ..., of
/// gate and then of up. Axes: bytes of K, those eight, i, gate or up.
inline TensorMapPlan LanesPlan(int k, int rows, std::int64_t ld, int element_bytes, int up_row) {
  TensorMapPlan plan = BytesPlan(k, rows / 16, ld, element_bytes, 8);
  const std::uint64_t row = plan.pitch_bytes;
  plan.rank = 4;
  plan.pitch_bytes = row * (up_row != 0 ? 8 : 16);
  plan.depth = plan.box_depth = 8;
  plan.depth_bytes = row;
  plan.blocks = plan.box_blocks = 2;
  plan.block_bytes = row * static_cast<std::uint64_t>(up_row != 0 ? up_row : 8);
  return plan;
}

}  // namespace culet::sm90
