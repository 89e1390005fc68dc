#include "gemm/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "culet/scratch.h"

namespace culet {
namespace {

// 1e9 operations or bytes a second, as operations or bytes a microsecond.
constexpr double kPerUs = 1e3;

// How much more than its fair share of memory bandwidth one unit can use while others idle: an SM
// of an H200 about 2.5 times at most, a server's core more.
constexpr double kUnitDraw = 2.0;

// A kernel that lost to a measured one is expected to lose again, unless it is better by more than
// the noise within which the tuner keeps the default.
constexpr double kLoserMargin = 1.02;

// A rate of 0 or less is unknown and sets no limit.
double TimeUs(double amount, double rate) noexcept {
  return rate > 0 ? amount / (rate * kPerUs) : 0.0;
}

constexpr double CeilDiv(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<double>((a + b - 1) / b);
}

// The tiles of one launch and how they meet the device's units.
struct Grid {
  double m = 1, n = 1;    // tiles along m and n
  double operations = 0;  // with the padding of partial tiles
  double units = 1;       // units that the problem may use
  double rounds = 1;      // tiles that the busiest unit computes
  double busy = 1;        // units that have work
  double waves = 1;       // sets of tiles that run at the same time
  double passes_a = 1;    // times the waves read A ...
  double passes_b = 1;    // ... and B, when neither stays in the cache
};

Grid GridOf(const GemmDesc& p, const KernelDesc& kernel, const KernelInfo& info,
            const DeviceInfo& device, int swizzle, int splits) noexcept {
  Grid grid;
  const auto cut = [](int size, int tile) { return tile > 0 ? CeilDiv(size, tile) : 1.0; };
  const auto padded = [](int size, int tile) {
    return tile > 0 ? CeilDiv(size, tile) * tile : static_cast<double>(size);
  };
  grid.m = cut(p.m, kernel.tile_m);
  grid.n = cut(p.n, kernel.tile_n);
  const int chunk_k = std::max({kernel.tile_k, info.chunk_size_k, 1});
  const double split_k =
      CeilDiv(static_cast<std::int64_t>(CeilDiv(p.k, splits)), chunk_k) * chunk_k;
  grid.operations =
      2.0 * padded(p.m, kernel.tile_m) * padded(p.n, kernel.tile_n) * split_k * splits * p.num;

  grid.units = std::max(1, p.sm_budget > 0 ? std::min(p.sm_budget, device.units) : device.units);
  const double tiles = grid.m * grid.n * p.num * splits;
  // A side without a tile size is cut as finely as the units need.
  const bool divisible = kernel.tile_m <= 0 || kernel.tile_n <= 0;
  grid.rounds = divisible ? tiles / grid.units : std::ceil(tiles / grid.units);
  grid.busy = divisible ? grid.units : std::min(tiles, grid.units);

  const double concurrent = grid.units * std::max(1, info.max_active_ctas);
  grid.waves = divisible ? tiles / concurrent : std::ceil(tiles / concurrent);
  // A wave is a band of 2^swizzle tiles along n, as long along m as the units reach.
  const double band = std::min(grid.n, std::exp2(std::clamp(swizzle, 0, 30)));
  const double wave_m = std::min(grid.m, std::max(1.0, std::floor(concurrent / band)));
  const double wave_n = std::max(band, std::floor(concurrent / wave_m));
  grid.passes_a = std::ceil(grid.n / wave_n);
  grid.passes_b = std::ceil(grid.m / wave_m);
  return grid;
}

// Bytes between memory and the units: everything once, and on a GPU again in each wave what its
// cache does not keep. A CPU kernel's tile is a block of registers; its cache blocking is part of
// its bandwidth_share.
double TrafficBytes(const GemmDesc& p, const Grid& grid, const DeviceInfo& device,
                    int splits) noexcept {
  double bytes = MinimumBytes(p);
  if (p.arch != 0) {
    const double bytes_a = static_cast<double>(p.m) * p.k * p.a.num * BitsOf(p.a.type) / 8;
    const double bytes_b = static_cast<double>(p.n) * p.k * p.b.num * BitsOf(p.b.type) / 8;
    // An operand of half the cache survives while the other streams through the rest.
    const double kept = 0.5 * static_cast<double>(device.cache_bytes);
    if (bytes_a > kept) bytes += (grid.passes_a - 1) * bytes_a;
    if (bytes_b > kept) bytes += (grid.passes_b - 1) * bytes_b;
  }
  // Partial sums, there and back.
  if (splits > 1) bytes += 2.0 * splits * p.m * p.n * p.num * sizeof(float);
  return bytes;
}

struct Anchor {
  const GemmDesc& desc;
  const LaunchSpec& winner;
  double log_batch;
  double winner_factor;
};

double PredictSpecUs(const LaunchSpec& spec, const GemmDesc& desc, const DeviceInfo& device,
                     const HardwareRates& rates) noexcept {
  return spec.kernel->PredictUs(AsLaunched(desc, spec), device, rates, spec.swizzle, spec.splits);
}

bool IsTime(double time_us) noexcept { return std::isfinite(time_us) && time_us > 0; }

std::optional<Anchor> AnchorAt(const std::optional<std::pair<GemmDesc, LaunchSpec>>& neighbour,
                               const DeviceInfo& device, const HardwareRates& rates) noexcept {
  if (!neighbour) return std::nullopt;
  const auto& [desc, winner] = *neighbour;
  if (winner.kernel == nullptr || winner.origin != Origin::kMeasured || IsNoisy(winner) ||
      !IsTime(winner.time_us)) {
    return std::nullopt;
  }
  const double predicted_us = PredictSpecUs(winner, desc, device, rates);
  if (!IsTime(predicted_us)) return std::nullopt;
  return Anchor{desc, winner, std::log(std::max(1, BatchOf(desc))), winner.time_us / predicted_us};
}

double FactorAt(const Anchor& anchor, const LaunchSpec& candidate, const DeviceInfo& device,
                const HardwareRates& rates) noexcept {
  if (candidate.kernel == anchor.winner.kernel) return anchor.winner_factor;
  if (!Takes(*candidate.kernel, anchor.desc)) return anchor.winner_factor;
  const double predicted_us = PredictSpecUs(candidate, anchor.desc, device, rates);
  if (!IsTime(predicted_us)) return anchor.winner_factor;
  const double losing_us = kLoserMargin * anchor.winner.time_us;
  return std::max(anchor.winner_factor, losing_us / predicted_us);
}

}  // namespace

double RooflineUs(const GemmDesc& desc, const HardwareRates& rates) noexcept {
  return std::max(TimeUs(MinimumBytes(desc), rates.read_gbps),
                  TimeUs(Operations(desc), rates.gflops));
}

double Kernel::PredictUs(const GemmDesc& problem, const DeviceInfo& device,
                         const HardwareRates& rates, int swizzle, int splits) const noexcept {
  splits = std::max(1, splits);
  const Grid grid = GridOf(problem, desc_, info_, device, swizzle, splits);
  const double all_units = std::max(1, device.units);
  const double tiles = grid.m * grid.n * problem.num * splits;

  const double unit_gflops = rates.gflops * info_.matrix_share / all_units;
  const double compute_us = grid.rounds * TimeUs(grid.operations / tiles, unit_gflops);

  const double drawn = std::min(1.0, kUnitDraw * grid.busy / all_units);
  const double memory_us = TimeUs(TrafficBytes(problem, grid, device, splits),
                                  rates.read_gbps * info_.bandwidth_share * drawn);

  return std::max(info_.launch_us, rates.launch_us) + std::max(memory_us, compute_us) +
         grid.waves * info_.tile_overhead_us;
}

void AnchorOnNeighbours(const DispatchCache::Neighbours& neighbours, const GemmDesc& desc,
                        const DeviceInfo& device, const HardwareRates& rates,
                        std::vector<LaunchSpec>& candidates) {
  auto below = AnchorAt(neighbours.below, device, rates);
  auto above = AnchorAt(neighbours.above, device, rates);
  if (!below && !above) return;
  double share_above = below ? 0.0 : 1.0;
  if (below && above && above->log_batch > below->log_batch) {
    const double position = std::log(std::max(1, BatchOf(desc))) - below->log_batch;
    share_above = std::clamp(position / (above->log_batch - below->log_batch), 0.0, 1.0);
  }
  for (LaunchSpec& candidate : candidates) {
    double log_factor = 0;
    if (share_above < 1) {
      log_factor += (1 - share_above) * std::log(FactorAt(*below, candidate, device, rates));
    }
    if (share_above > 0) {
      log_factor += share_above * std::log(FactorAt(*above, candidate, device, rates));
    }
    candidate.time_us *= std::exp(log_factor);
  }
  std::ranges::stable_sort(candidates, {}, &LaunchSpec::time_us);
}

}  // namespace culet
