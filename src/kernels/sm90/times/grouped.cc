#include "kernels/sm90/times/grouped.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "culet/grouped_class.h"
#include "kernels/sm90/product/product.h"

namespace culet::sm90 {

const GroupedSwapTimes kFp8Grouped = {.launch = 1.865,
                                      .read = 0.986,
                                      .latency = 1.538,
                                      .sm_bytes = 34.77,
                                      .block = 230.9,
                                      .token = 8.367,
                                      .norm = 6,
                                      .store = 0.835,
                                      .exchange = 0.653};
const GroupedSwapTimes kDirectGrouped = {.launch = 1.443,
                                         .read = 1.01,
                                         .latency = 1.495,
                                         .sm_bytes = 43.79,
                                         .block = 18.02,
                                         .token = 5.299,
                                         .norm = 4.031,
                                         .store = 0.497,
                                         .exchange = 1.605};
const GroupedSwapTimes kFp8Multiplied = {.launch = 1.865,
                                         .read = 0.986,
                                         .latency = 1.538,
                                         .sm_bytes = 43.79,
                                         .block = 60,
                                         .token = 5.6,
                                         .norm = 6,
                                         .store = 0.6,
                                         .exchange = 0};
const GroupedSwapTimes kDirectWide = {.launch = 1.443,
                                      .read = 1.01,
                                      .latency = 1.495,
                                      .sm_bytes = 43.79,
                                      .block = 18.02,
                                      .token = 4.5,
                                      .norm = 4.031,
                                      .store = 0.6,
                                      .exchange = 0};

namespace {

constexpr int kWeightRows = 128;    // that the constants are of
constexpr double kDependent = 1.1;  // us that a launch takes longer where it waits for the last

// Rows of a reached group at five equally likely places of a normal distribution: tokens choose at
// random, so a group's rows are nearly so many.
constexpr double kPlaces[] = {-1.28, -0.52, 0, 0.52, 1.28};

template <class Use>
void ForCounts(const GemmDesc& desc, Use use) {
  const GroupedRows mean = ExpectedRows(desc);
  const double share =
      std::min(1.0, static_cast<double>(desc.group_active) / std::max(desc.group_experts, 1));
  const double rows = mean.rows / mean.reached, spread = std::sqrt(rows * (1 - share));
  for (const double place : kPlaces) {
    use(std::clamp(static_cast<int>(std::lround(rows + place * spread)), 1, std::max(desc.m, 1)),
        1.0 / std::size(kPlaces));
  }
}

double Norm(std::initializer_list<double> parts, double q) {
  const double most = std::max(std::max(parts), 1e-9);
  double sum = 0;
  for (const double part : parts) sum += std::pow(part / most, q);
  return most * std::pow(sum, 1 / q);
}

// The smallest width of a wgmma that a kernel has for so many rows (ForWidth).
int WidthOf(const GroupedSwapKernel& kernel, int rows) {
  if (kernel.tokens <= 32) return rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
  if (rows <= 16 && kernel.rows == kWeightRows) return 16;
  int width = kernel.tokens;
  for (;;) {
    const int next = width - (width > 64 ? kernel.width_step : 32);
    if (next < std::max(rows, 32)) return width;
    width = next;
  }
}

const GroupedSwapTimes& TimesOf(const GroupedSwapKernel& kernel) {
  if (kernel.format->sums == Sums::kBlockScaled)
    return kernel.multiplied ? kFp8Multiplied : kFp8Grouped;
  return kernel.rows > kWeightRows ? kDirectWide : kDirectGrouped;
}

}  // namespace

double GroupedSwapUs(const GroupedSwapKernel& kernel, const Chip& chip, int splits,
                     const GemmDesc& desc) noexcept {
  const GroupedSwapTimes& t = TimesOf(kernel);
  const double parts = kernel.rows / double(kWeightRows);
  const int most = splits > 1 ? kernel.split_tokens : kernel.tokens;
  double tiles_m = 0, clocks = 0, widths = 0;
  ForCounts(desc, [&](int rows, double weight) {
    const int tiles = CeilDiv(rows, most), each = CeilDiv(CeilDiv(rows, tiles), 8) * 8;
    const int width = WidthOf(kernel, each);
    const double taken = (kernel.rows + each) * double(kBlockBytes) / t.sm_bytes;
    tiles_m += weight * tiles;
    clocks += weight * tiles * std::max(taken, parts * (t.block + t.token * width));
    widths += weight * tiles * width;
  });
  clocks /= tiles_m, widths /= tiles_m;
  // B's rows, gate's and up's together, whether or not a tile has both.
  const double tiles = ExpectedRows(desc).reached * tiles_m * CeilDiv(desc.n, kernel.rows);
  const double k_blocks =
      CeilDiv(desc.k * kernel.format->element_bytes, kBlockBytes) / double(splits);
  const double places = chip.sms * FilledShare(splits) * kernel.resident / splits;
  const double rounds = std::ceil(tiles / places);
  const double beside =
      std::min<double>(kernel.resident, std::ceil(std::min(tiles, places) * splits / chip.sms));
  const double us = t.launch +
                    Norm({GroupedBytes(desc) / (t.read * 1e3 * chip.read_gbps),
                          rounds * beside * clocks * k_blocks / chip.clock_mhz,
                          rounds * k_blocks / kernel.stages * t.latency},
                         t.norm) +
                    rounds * parts * t.store * widths / 64 + t.exchange * (splits - 1);
  return us + (desc.pdl ? 0 : kDependent);
}

double GroupedSkinnyUs(const GroupedSkinnyKernel& kernel, const Chip& chip, int splits,
                       const GemmDesc& desc) noexcept {
  constexpr double kLaunch = 1.5;   // us
  constexpr double kRead = 0.95;    // of the chip's read rate
  constexpr double kLatency = 1.0;  // us from a request of a ring's bytes to the next one
  constexpr double kTile = 0.25;    // us: adding up and storing sums, while other CTAs read
  double tiles_m = 0;
  ForCounts(desc,
            [&](int rows, double weight) { tiles_m += weight * CeilDiv(rows, kSkinnyTokens); });
  const double bytes = GroupedBytes(desc) * tiles_m;  // more rows read the weights again
  const double tiles = ExpectedRows(desc).reached * tiles_m * CeilDiv(desc.n, kernel.rows());
  const double places = chip.sms * double(GroupedSkinnyResident(kernel, splits));
  const double rounds = std::ceil(tiles / places);
  const double k_blocks = std::ceil(double(CeilDiv(desc.k, kernel.block_k())) / splits);
  const double rings = std::max(k_blocks / kernel.depth(), 1.0);
  const double us = kLaunch +
                    Norm({bytes / (kRead * 1e3 * chip.read_gbps), rounds * rings * kLatency}, 4) +
                    rounds * kTile;
  return us + (desc.pdl ? 0 : kDependent);
}

double GroupedBlockUs(const BlockKernel& kernel, const Chip& chip, const GemmDesc& desc) noexcept {
  const BlockTimes& t = kernel.format->sums == Sums::kDirect ? kDirectBlock : kFp8Block;
  const int warpgroups = kernel.warpgroups_m * kernel.warpgroups_n;
  const int columns = kernel.tile_n / kernel.warpgroups_n;
  const int rows_of_warpgroup = kernel.tile_m / kernel.warpgroups_m;
  const int k_blocks = CeilDiv(desc.k, kernel.block_k());
  const double area = double(kernel.tile_m) * kernel.tile_n;
  const double products = area / 32 *
                          (warpgroups == 3            ? t.three_groups
                           : rows_of_warpgroup == 128 ? t.two_blocks
                           : columns <= 128           ? t.in_flight
                                                      : t.wide);
  const double scales = k_blocks % 4 != 0 || desc.a.scale_order == Order::kColMajor ? t.scales : 0;
  double tiles_m = 0, clocks = 0;
  ForCounts(desc, [&](int rows, double weight) {
    const int tiles = CeilDiv(rows, kernel.tile_m);
    // A warpgroup whose rows are all beyond the group does not multiply; the others then hide less
    // of what they add up.
    const double parts = CeilDiv(rows, rows_of_warpgroup) / double(kernel.warpgroups_m);
    tiles_m += weight * tiles;
    clocks += weight * (products * (parts + 0.3 * (tiles - parts)) + scales * tiles);
  });
  const double tiles_n = CeilDiv(desc.n, kernel.tile_n), reached = ExpectedRows(desc).reached;
  const double tile_us = (clocks / tiles_m * k_blocks + t.store_waits * area) / chip.clock_mhz;
  const double rounds = std::ceil(reached * tiles_m * tiles_n / chip.sms);
  const double stream_us = GroupedBytes(desc) / (kFp8Grouped.read * 1e3 * chip.read_gbps);
  const double us = t.launch + Norm({rounds * tile_us, stream_us}, t.stream_norm);
  return us - (desc.pdl ? t.dependent : 0);
}

}  // namespace culet::sm90
