#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/sm90/times.h"

namespace culet::sm90 {

const Fp8BlockTimes kFp8Block = {.launch = 0.7304,
                                 .dependent = 1.087,
                                 .clock = 0.8619,
                                 .three_groups = 1.205,
                                 .two_blocks = 1.363,
                                 .in_flight = 1.296,
                                 .wide = 1.269,
                                 .shared_bytes = 141.5,
                                 .shared_64 = 1.239,
                                 .sorting = 3.32,
                                 .shares = 1.118,
                                 .tile_start = 1764,
                                 .store = 0.1521,
                                 .store_waits = 0.2154,
                                 .exchange = 4913,
                                 .joule_operation = 0.3115,
                                 .joule_byte = 31.43,
                                 .stream = 0.7665,
                                 .l2 = 3828,
                                 .a_again = 0.9089,
                                 .b_again = 0,
                                 .ragged = 3.446,
                                 .norm = 23.5,
                                 .straight = 1.025,
                                 .anew = 1.13};

// Clocks of a k-block over those of its products, where nothing is promoted.
constexpr double kDirectProducts = 1.03;

double Fp8BlockUs(const Fp8BlockTimes& t, const Chip& chip, const BlockKernel& kernel, int swizzle,
                  int max_swizzle, bool pdl, const Extents& p) {
  const int tile_m = kernel.tile_m, tile_n = kernel.tile_n, split = kernel.split;
  const int warpgroups = kernel.warpgroups_m * kernel.warpgroups_n;
  const int columns = tile_n / kernel.warpgroups_n;
  const int blocks_m = tile_m / kernel.warpgroups_m / 64;
  const double tiles =
      double(CeilDiv(p.m, tile_m * kernel.cluster_m)) * CeilDiv(p.n, tile_n * kernel.cluster_n);
  const double waves = std::ceil(tiles / std::max(1.0, chip.sms / kernel.cluster_size()));
  const int k_blocks = CeilDiv(p.k, kernel.block_k());
  const int output_bytes = kernel.output_bytes == 0 ? 2 : kernel.output_bytes;
  const bool direct = kernel.format->sums == Sums::kDirect;
  const bool scaled = kernel.format->sums == Sums::kBlockScaled;
  const double area = double(tile_m) * tile_n;

  // A k-block: the tensor core with what its promotion leaves uncovered, or a term that fits as if
  // it were shared memory, which each warpgroup's products read and the loads write (it is not,
  // says docs/performance-log.md, the sixth series).
  const double tensor = area / 32 *
                        (direct            ? kDirectProducts
                         : warpgroups == 3 ? t.three_groups
                         : blocks_m == 2   ? t.two_blocks
                         : columns <= 128  ? t.in_flight
                                           : t.wide);
  const double shared =
      (warpgroups * blocks_m * (8192.0 + columns * 128) + (tile_m + tile_n) * 128) /
      t.shared_bytes * (tile_n == 64 ? t.shared_64 : 1.0);
  // Columns of two blocks of scales are sorted in groups.
  const int group = std::gcd(std::gcd(tile_n, columns), 128);
  const double sorting = scaled && tile_n % 128 != 0 && tile_n != 64
                             ? t.sorting * columns / group * columns / group * blocks_m
                             : 0;
  const bool shares = kernel.cluster_m * kernel.cluster_n > 1;
  const double block_clocks = (std::max(tensor, shared) + sorting) * (shares ? t.shares : 1.0);
  // A tile besides: start and stores, which wait for each other where several slabs share a
  // buffer, the last tile's excepted; the exchange of partial sums.
  const bool waits = split == 1 && waves > 1 && output_bytes == 2 && kernel.store_rows < 64;
  const double tile_clocks = t.tile_start +
                             (waits ? t.store_waits : t.store) * area * output_bytes / 2 +
                             (split > 1 ? t.exchange : 0);
  const double clocks = waves * (CeilDiv(k_blocks, split) * block_clocks + tile_clocks);

  // At the power limit operations and bytes count, those that L2 reads a little less than those
  // that reach the multiprocessors.
  const double work = tiles * kernel.cluster_m * kernel.cluster_n * k_blocks;
  const double delivered = tile_m + tile_n;
  const double read = double(tile_m) / kernel.cluster_n + double(tile_n) / kernel.cluster_m;
  const double power_us =
      work *
      (area * 256 * t.joule_operation + (0.87 * delivered + 0.13 * read) * 128 * t.joule_byte) *
      1e-6 / chip.power_watts;
  const double k_bytes = double(p.k) * kernel.format->element_bytes;
  const double bytes = k_bytes * p.m + k_bytes * p.n + double(output_bytes) * p.m * p.n;
  const double stream_us = bytes / (t.stream * 1e3 * chip.read_gbps);
  const double tiles_m = CeilDiv(p.m, tile_m * kernel.cluster_m),
               tiles_n = CeilDiv(p.n, tile_n * kernel.cluster_n);
  const double empty = tiles_m - double(p.m) / (tile_m * kernel.cluster_m);
  const double again = tiles_m > 1 ? t.b_again * (tiles_m - 1) + t.ragged * empty : 0;
  const double l2_us =
      k_bytes * (t.a_again * p.m * tiles_n + p.n * (1 + again)) / (t.l2 * t.clock * chip.clock_mhz);
  const double slower =
      std::pow(std::pow(clocks / (t.clock * chip.clock_mhz), t.norm) + std::pow(power_us, t.norm) +
                   std::pow(stream_us, t.norm) + std::pow(l2_us, t.norm),
               1.0 / t.norm);
  const double straight =
      split == 1 && warpgroups == 2 && blocks_m == 1 && (tile_n == 96 || tile_n == 128) ? t.straight
                                                                                        : 1.0;
  const double anew = split > 1 && waves > 1 ? t.anew : 1.0;
  // Among equals: any tile before the seed's 128 x 224, the deeper ring, middle
  // supergroups.
  const double ring_kib = kernel.stages * (tile_m + tile_n) / 8.0;
  const double preference = (tile_m == 128 && tile_n == 224 ? 1.03 : 1.0) *
                            (1 + 0.0001 * std::max(0.0, 192 - ring_kib)) *
                            (1 + 0.006 * std::abs(swizzle - std::min(3, max_swizzle)));
  return t.launch - (pdl ? t.dependent : 0) + slower * straight * anew * preference;
}

}  // namespace culet::sm90
