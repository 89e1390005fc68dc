// Predicted times of the grouped kernels, from what is known before routing.
#pragma once

#include "culet/desc.h"
#include "kernels/sm90/block/block.h"
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/grouped/swap.h"
#include "kernels/sm90/times/times.h"

namespace culet::sm90 {

/// What decides a grouped swap launch: the longest of reading, what a multiprocessor receives or
/// multiplies, and what a CTA waits for, over the tiles that typical counts of rows make.
struct GroupedSwapTimes {
  double launch;    ///< us, and the first bytes; of dependent launches
  double read;      ///< of the chip's read rate
  double latency;   ///< us from a request of a ring's bytes to the next one
  double sm_bytes;  ///< that a multiprocessor receives in a clock
  double block;     ///< clocks of a k-block of 128 rows of weights ...
  double token;     ///< ... and of each row of D that is multiplied
  double norm;      ///< exponent that joins them (see SwapTimes)
  double store;     ///< us: each round of tiles and 64 rows of D
  double exchange;  ///< us: each CTA beyond the first that shares K
};
/// Of block scales, and of formats whose sums the tensor core keeps over all of K. From 72 rows of
/// bench/results/h200_grouped.csv, with a root mean square of 3.6 and 3.2 %.
extern const GroupedSwapTimes kFp8Grouped, kDirectGrouped;
/// Of the kernels whose producers multiply the scales, and of tiles of 256 rows of weights.
extern const GroupedSwapTimes kFp8Multiplied, kDirectWide;

/// `desc`: of DescribeGrouped.
double GroupedSwapUs(const GroupedSwapKernel& kernel, const Chip& chip, int splits,
                     const GemmDesc& desc) noexcept;

/// Of launches whose CTAs have `splits` warps.
double GroupedSkinnyUs(const GroupedSkinnyKernel& kernel, const Chip& chip, int splits,
                       const GemmDesc& desc) noexcept;

/// Of the tiles of the large-M family: its own constants, summed over the groups' tiles.
double GroupedBlockUs(const BlockKernel& kernel, const Chip& chip, const GemmDesc& desc) noexcept;

}  // namespace culet::sm90
