// Predicted times of the Hopper families: formulas of what a launch does, with constants that were
// fitted to measurements (bench/fit_predictions.cc) and scaled to the chip at hand.
#pragma once

#include "culet/desc.h"
#include "culet/device.h"
#include "kernels/sm90/block/block.h"
#include "kernels/sm90/skinny/skinny.h"
#include "kernels/sm90/swap/swap.h"

namespace culet::sm90 {

/// What decides a launch's time on a chip.
struct Chip {
  double sms = 132;
  double clock_mhz = 1980;   ///< the highest of the multiprocessors
  double power_watts = 700;  ///< the limit
  double read_gbps = 4310;   ///< 1e9 bytes/s that all multiprocessors read from memory
};

/// `sm_budget`: 0 is none. What the device does not tell is as on an H200.
Chip ChipOf(const DeviceInfo& device, const HardwareRates& rates, int sm_budget);

/// The share of a chip's places that clusters of so many CTAs fill. Less than all, because a
/// cluster lies in one GPC.
double FilledShare(int cluster_size);

/// One launch of a problem: A (m, k), B (k, n).
struct Extents {
  int m = 0, n = 0, k = 0;
};
inline Extents ExtentsOf(const GemmDesc& p) { return {p.m, p.n, p.k}; }

/// All constants are doubles, so that a fit can iterate over them.

/// `beyond`: a row of the last tile beyond the matrix costs L2 as much as so many rows of A. It is
/// 0 for these kernels, which load only rows that exist. Kernels that let TMA fill tiles with zeros
/// need more, and so do fits to their measurements (bench/fit_predictions.cc).

/// sm90_fp8_swap: waves of CTAs, then the exchange of sums. A wave takes as long as the longest of
/// reading, delivery by L2, what a multiprocessor receives or multiplies, and what a CTA waits for.
struct SwapTimes {
  double launch;      ///< us, and the first bytes
  double read;        ///< of the chip's read rate
  double latency;     ///< us from a request of a ring's bytes to the next one
  double sm_bytes;    ///< that a multiprocessor receives in a clock, zeros included
  double product;     ///< clocks, as a multiple of the tensor core's own
  double l2;          ///< bytes a clock that L2 delivers to all multiprocessors
  double beyond;      ///< see above
  double norm;        ///< exponent q of (a^q + b^q + ...)^(1/q), which joins them
  double wave;        ///< us: each wave after the first, shared by the CTAs of a multiprocessor
  double store_sums;  ///< us: for each 512 sums of a tile
  double exchange;    ///< us: sums over a cluster, and for each 512 sums and CTA beyond the first
  double exchange_sums;
  double dependent;  ///< us less under programmatic dependent launch ...
  double beside;     ///< ... but for the share of its weights that a CTA does not ask for early,
                     ///< where the next kernel lies beside this one from the start ...
  double late;       ///< ... or where there are waves, and the next kernel starts late
};
/// Of block scales, and of formats whose sums the tensor core keeps over all of K.
extern const SwapTimes kFp8Swap, kDirectSwap;
double SwapUs(const SwapTimes& times, const Chip& chip, const SwapKernel& kernel, int residency,
              int splits, bool pdl, const Extents& p);

/// sm90_fp8_skinny.
struct SkinnyTimes {
  double launch;    ///< us, and the first bytes
  double read;      ///< of the chip's read rate
  double latency;   ///< us; bytes in flight = rate * latency
  double sm_bytes;  ///< that a multiprocessor receives in a clock ...
  double token;     ///< ... where a row of A counts as so many of B
  double norm;      ///< exponent that joins reading and receiving, as above
  double wave;      ///< us: each wave after the first
  double last;      ///< us: each 16 rows of a k-block in flight, which a warp multiplies at the end
  double split;     ///< us: each warp along K
  double a_mb;      ///< us: each megabyte of A, which each tile of rows reads again
  double d_mb;      ///< us: each megabyte of D
  double idle;      ///< us: places left free, up to the share `filled`
  double filled;
  // Instead of the last two in a step of small products, of which several lie in shared memory at a
  // time: weights of at most `held` bytes a multiprocessor, 0: none.
  double held = 0;
  double held_gain = 0;  ///< us less, where all of the weights come before that
  double held_smem = 0;  ///< us: all of a multiprocessor's shared memory
  double held_warp = 0;  ///< us: a warp of a CTA
  double held_late = 0;  ///< us: all of the weights, where they come after the kernel before
};
/// Of block scales, and of formats whose sums the tensor core keeps over all of K.
extern const SkinnyTimes kFp8SkinnyAlone, kFp8SkinnyDependent;
extern const SkinnyTimes kDirectSkinnyAlone, kDirectSkinnyDependent;
double SkinnyUs(const SkinnyTimes& times, const Chip& chip, const SkinnyKernel& kernel, int splits,
                bool pdl, const Extents& p);

/// The time that a fused skinny launch takes beyond its product: x passes sums and barriers, and
/// all CTAs read its rows from L2.
double SkinnyNormUs(int ctas, const Extents& p, bool adds);

/// sm90_fp8_block: waves of tiles, each as long as the longest of products, reading and delivery by
/// L2; or the time that the power limit allows, if longer.
struct BlockTimes {
  double launch;        ///< us, and the first bytes
  double dependent;     ///< us less under programmatic dependent launch ...
  double alone;         ///< ... but more by this part where CTAs outside of clusters fill half a
                        ///< wave to one: see BlockGrid
  double three_groups;  ///< clocks of a k-block, as a multiple of its products', by promotion: ...
  double three_halves;  ///< ... three warpgroups of two products each
  double two_blocks;
  double in_flight;
  double wide;
  double direct;           ///< the same where nothing is promoted
  double sorting;          ///< clocks an m64 block: columns of two blocks of scales, groups of 128
  double scales;           ///< clocks a k-block: scales that TMA cannot load
  double shares;           ///< CTAs that share operands wait for each other
  double store;            ///< clocks a sum of a tile
  double store_waits;      ///< the same, where slabs take turns in a buffer
  double exchange;         ///< clocks: sums over a cluster
  double anew;             ///< us: the start of a split kernel's CTAs beyond a wave
  double stream;           ///< of the chip's read rate
  double l2;               ///< bytes a clock that L2 delivers to all multiprocessors
  double l2_split;         ///< times as long where K is split
  double beyond;           ///< see above
  double stream_norm;      ///< exponent that joins products and reading, as above ...
  double l2_norm;          ///< ... and of these and L2
  double joule_operation;  ///< 1e-6 of the chip's power limit in watts
  double joule_byte;
};
/// Of block scales, and of formats whose sums the tensor core keeps over all of K.
extern const BlockTimes kFp8Block, kDirectBlock;
double BlockUs(const BlockTimes& times, const Chip& chip, const BlockKernel& kernel, int swizzle,
               int max_swizzle, bool pdl, const Extents& p);

}  // namespace culet::sm90
