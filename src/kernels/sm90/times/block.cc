#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/sm90/times/times.h"

namespace culet::sm90 {

const BlockTimes kFp8Block = {.launch = 1.811,
                              .dependent = 1.231,
                              .alone = 0.03,
                              .three_groups = 1.351,
                              .three_halves = 1.332,
                              .two_blocks = 1.425,
                              .in_flight = 1.367,
                              .wide = 1.333,
                              .direct = 1.03,
                              .sorting = 16.27,
                              .scales = 157.6,
                              .shares = 1.083,
                              .store = 0.1184,
                              .store_waits = 0.1698,
                              .exchange = 4319,
                              .anew = 1.191,
                              .stream = 1.341,
                              .l2 = 7339,
                              .l2_split = 1.122,
                              .beyond = 0,
                              .stream_norm = 2.993,
                              .l2_norm = 3.313,
                              .joule_operation = 0.3115,
                              .joule_byte = 31.43};

const BlockTimes kDirectBlock = {.launch = 2.311,
                                 .dependent = 1.143,
                                 .alone = 0.03,
                                 .three_groups = 1.213,
                                 .three_halves = 1.357,
                                 .two_blocks = 1.318,
                                 .in_flight = 1.209,
                                 .wide = 1.261,
                                 .direct = 1.377,
                                 .sorting = 14.97,
                                 .scales = 188.4,
                                 .shares = 1.071,
                                 .store = 0.2369,
                                 .store_waits = 0.2784,
                                 .exchange = 4438,
                                 .anew = 4.263,
                                 .stream = 1.321,
                                 .l2 = 8271,
                                 .l2_split = 0.0002,
                                 .beyond = 0,
                                 .stream_norm = 3.644,
                                 .l2_norm = 3.995,
                                 .joule_operation = 0.1913,
                                 .joule_byte = 37.39};

namespace {

double Norm(double a, double b, double q) {
  const double most = std::max(a, b);
  return most * std::pow(std::pow(a / most, q) + std::pow(b / most, q), 1 / q);
}

}  // namespace

double BlockUs(const BlockTimes& t, const Chip& chip, const BlockKernel& kernel, int swizzle,
               int max_swizzle, bool pdl, const Extents& p) {
  const double clock = chip.clock_mhz;  // clocks in a microsecond
  const int tile_m = kernel.tile_m, tile_n = kernel.tile_n, split = kernel.split;
  const int warpgroups = kernel.warpgroups_m * kernel.warpgroups_n;
  const int columns = tile_n / kernel.warpgroups_n;
  const int blocks_m = tile_m / kernel.warpgroups_m / 64;
  const int k_blocks = CeilDiv(p.k, kernel.block_k());
  const int output_bytes = kernel.output_bytes == 0 ? 2 : kernel.output_bytes;
  const bool direct = kernel.format->sums == Sums::kDirect;
  const bool scaled = kernel.format->sums == Sums::kBlockScaled;
  const bool quantises = kernel.epilogue == EpilogueKind::kGatedQuant;
  const double area = double(tile_m) * tile_n;
  // In tiles, runs of them, of a whole cluster.
  const double tiles_m = CeilDiv(p.m, tile_m * kernel.cluster_m);
  const double tiles_n = CeilDiv(p.n, tile_n * kernel.run * kernel.cluster_n);
  const double tiles = tiles_m * tiles_n;
  const int cluster = kernel.cluster_size();
  const double places = std::max(1.0, std::floor(chip.sms * FilledShare(cluster) / cluster));
  const double waves = std::ceil(tiles / places);

  // A tile: the tensor core and the part of promotion that it does not hide; columns of two blocks
  // of scales, which are sorted in groups; scales whose rows are no multiple of 16 bytes, which TMA
  // does not load.
  const double products = area / 32 *
                          (direct            ? t.direct
                           : warpgroups == 3 ? (columns > 128 ? t.three_halves : t.three_groups)
                           : blocks_m == 2   ? t.two_blocks
                           : columns <= 128  ? t.in_flight
                                             : t.wide);
  const int group = std::gcd(std::gcd(tile_n, columns), 128);
  // Clocks that quantising adds to a tile, clocks of a cluster's exchange of magnitudes, and the
  // factor of such a cluster's k-blocks: from 48 gated rows on an H200, M = 64 to 512.
  constexpr double kQuantises = 500, kExchanges = 1000, kSharesScales = 1.3;
  const double sorting =
      scaled && tile_n % 128 != 0 && tile_n != 64 ? t.sorting * blocks_m * 128 / group : 0;
  const bool shares = kernel.cluster_m * kernel.cluster_n > 1;
  const bool shares_scales = quantises && kernel.cluster_n > 1;
  const double block_clocks = (products + sorting + (scaled && k_blocks % 4 != 0 ? t.scales : 0)) *
                              (shares_scales ? kSharesScales
                               : shares      ? t.shares
                                             : 1.0);
  const bool waits = split == 1 && waves > 1 && output_bytes == 2 && kernel.store_rows < 64;
  const double multiplies_us = kernel.run * CeilDiv(k_blocks, split) * block_clocks / clock;
  const double stores_us =
      ((waits ? t.store_waits : t.store) * kernel.run * area * output_bytes / 2 +
       (split > 1   ? t.exchange
        : quantises ? kQuantises + (shares_scales ? kExchanges : 0)
                    : 0)) /
      clock;
  // With turns one set of consumers stores while another multiplies, except for the last tile.
  const double tile_us = kernel.turns > 1
                             ? std::max(multiplies_us, (multiplies_us + stores_us) / kernel.turns)
                             : multiplies_us + stores_us;
  const double last_us = kernel.turns > 1 ? stores_us : 0;

  // All tiles: bytes from memory, and bytes that L2 delivers. Each CTA counts its operands, even if
  // a cluster shares them.
  const double k_bytes = double(p.k) * kernel.format->element_bytes;
  const double bytes = k_bytes * p.m + k_bytes * p.n + double(output_bytes) * p.m * p.n;
  const double stream_us = bytes / (t.stream * 1e3 * chip.read_gbps);
  const double beyond = tiles_m * tile_m * kernel.cluster_m - p.m;
  const double l2_us = k_bytes *
                       ((p.m + t.beyond * beyond) * tiles_n * kernel.run * kernel.cluster_n +
                        double(p.n) * tiles_m * kernel.cluster_m) /
                       (t.l2 * clock) * (split > 1 ? t.l2_split : 1.0);
  const auto wave_us = [&](double tiles_of_wave) {
    const double part = tiles_of_wave / tiles;
    return Norm(Norm(tile_us, stream_us * part, t.stream_norm), l2_us * part, t.l2_norm);
  };
  const double waves_us = (waves - 1) * (wave_us(places) + (split > 1 ? t.anew : 0)) +
                          wave_us(tiles - (waves - 1) * places) + last_us;

  // At the power limit operations and bytes count. Bytes that L2 reads count less than bytes that
  // reach the multiprocessors. A warpgroup whose rows are all beyond the matrix does not multiply.
  const double work = tiles * kernel.run * kernel.cluster_m * kernel.cluster_n * k_blocks;
  const int rows = 64 * blocks_m;
  const double multiplied =
      split > 1 || kernel.warpgroups_m == 1
          ? 1.0
          : CeilDiv(p.m, rows) * double(rows) / (tiles_m * tile_m * kernel.cluster_m);
  const double delivered = tile_m + tile_n;
  const double read = double(tile_m) / kernel.cluster_n + double(tile_n) / kernel.cluster_m;
  const double power_us = work *
                          (area * 256 * multiplied * t.joule_operation +
                           (0.87 * delivered + 0.13 * read) * 128 * t.joule_byte) *
                          1e-6 / chip.power_watts;

  // Among equals deeper rings and middle supergroups are preferred.
  const double ring_kib = kernel.stages * (tile_m + tile_n) / 8.0;
  // Large tiles without promotion were not timed with few rows, which the small-M family takes.
  // Kernels that split K and quantise took no part in the fit. They measured 0.9 to 1.4 of this on
  // an H200, 1.4 where others are as fast. Turns cost up to 5 % where a CTA has one tile, which one
  // set of consumers multiplies alone, and where only memory counts.
  const double preference = (direct && p.m <= 32 ? 1.1 : 1.0) *
                            (kernel.turns > 1 && (waves <= 1 || p.m <= 64) ? 1.05 : 1.0) *
                            (quantises && split > 1 ? 1.4 : 1.0) *
                            (1 + 0.0001 * std::max(0.0, 192 - ring_kib)) *
                            (1 + 0.006 * std::abs(swizzle - std::min(3, max_swizzle)));
  const double us = std::max(waves_us, power_us) * preference;
  if (!pdl) return t.launch + us;
  const bool alone = kernel.cluster_size() == 1 && tiles > places / 2 && tiles <= places;
  return t.launch - t.dependent + us * (alone ? 1 + t.alone : 1.0);
}

}  // namespace culet::sm90
