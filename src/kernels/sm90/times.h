// Predicted times of the Hopper families: formulas of what a launch does, with constants that were
// fitted to measurements (bench/fit_predictions.cc) and scaled to the chip at hand.
#pragma once

#include "culet/desc.h"
#include "culet/device.h"
#include "kernels/sm90/block.h"
#include "kernels/sm90/fp8_skinny.h"
#include "kernels/sm90/swap.h"

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

/// One launch of a problem: A (m, k), B (k, n).
struct Extents {
  int m = 0, n = 0, k = 0;
};
inline Extents ExtentsOf(const GemmDesc& p) { return {p.m, p.n, p.k}; }

/// The constants are doubles alone, so that a fit can walk over them.

/// sm90_fp8_swap: reading, taking in and products, whichever rules; waves; the exchange of sums.
struct Fp8SwapTimes {
  double launch;      ///< us, and the first bytes
  double read;        ///< of the chip's read rate
  double latency;     ///< us; bytes in flight = rate * latency
  double sm_bytes;    ///< a multiprocessor takes in a clock, activations included
  double product;     ///< clocks: a k-block of one row of B and one of A
  double l2;          ///< bytes a clock that L2 delivers to all multiprocessors
  double norm;        ///< how sharply the longest of them rules
  double wave;        ///< us: each wave after the first
  double store_sums;  ///< us: for each 512 sums of a tile
  double exchange;    ///< us: sums over a cluster, and for each 512 sums of a tile
  double exchange_sums;
  double exchange_more;  ///< for each CTA beyond two
  double idle;           ///< us: places left free, up to the share `filled`: the next kernel, which
  double filled;         ///< has loaded all it can hold there, waits with it
};
extern const Fp8SwapTimes kFp8SwapAlone, kFp8SwapDependent;
double Fp8SwapUs(const Fp8SwapTimes& times, const Chip& chip, const SwapKernel& kernel,
                 int residency, int splits, const Extents& p);

/// sm90_fp8_skinny.
struct Fp8SkinnyTimes {
  double launch;    ///< us, and the first bytes
  double read;      ///< of the chip's read rate
  double latency;   ///< us; bytes in flight = rate * latency
  double sm_bytes;  ///< a multiprocessor takes in a clock ...
  double token;     ///< ... where a row of A counts as so many of B
  double norm;      ///< how sharply the longer of reading and taking in rules
  double wave;      ///< us: each wave after the first
  double last;      ///< us: each 16 rows of a k-block in flight, which a warp multiplies at the end
  double split;     ///< us: each warp along K
  double a_mb;      ///< us: each megabyte of A, which each tile of rows reads again
  double d_mb;      ///< us: each megabyte of D
  double idle;      ///< us: places left free, up to the share `filled`
  double filled;
};
extern const Fp8SkinnyTimes kFp8SkinnyAlone, kFp8SkinnyDependent;
double Fp8SkinnyUs(const Fp8SkinnyTimes& times, const Chip& chip, const Fp8SkinnyKernel& kernel,
                   int splits, bool pdl, const Extents& p);

/// sm90_fp8_block: waves of tiles, the power that a launch draws, the bytes from memory.
struct Fp8BlockTimes {
  double launch;        ///< us
  double dependent;     ///< us less under programmatic dependent launch
  double clock;         ///< of the highest, under load
  double three_groups;  ///< clocks of a k-block over those of its products, by what promotes ...
  double two_blocks;
  double in_flight;
  double wide;
  double shared_bytes;     ///< ... or bytes of shared memory a clock
  double shared_64;        ///< less of it, where 64 columns go around the ring in step
  double sorting;          ///< clocks: columns of two blocks of scales are sorted in groups
  double shares;           ///< CTAs that share operands wait for each other
  double tile_start;       ///< clocks a tile
  double store;            ///< clocks a sum of a tile
  double store_waits;      ///< the same, where slabs take turns in a buffer
  double exchange;         ///< clocks: sums over a cluster
  double joule_operation;  ///< 1e-6 of the chip's power limit in watts
  double joule_byte;
  double stream;    ///< of the chip's read rate
  double l2;        ///< bytes a clock that L2 delivers to all multiprocessors
  double a_again;   ///< the part of A that counts for each column of tiles ...
  double b_again;   ///< ... and of B for each further row of tiles: neighbours read together,
  double ragged;    ///< less so the emptier the last row is, whose CTAs run ahead
  double norm;      ///< how sharply the longest of the three rules
  double straight;  ///< 16 k-blocks between drains instead of 8
  double anew;      ///< a split kernel's CTAs beyond a wave start anew
};
extern const Fp8BlockTimes kFp8Block;
double Fp8BlockUs(const Fp8BlockTimes& times, const Chip& chip, const BlockKernel& kernel,
                  int swizzle, int max_swizzle, bool pdl, const Extents& p);

}  // namespace culet::sm90
