// The small-M kernels as culet::Kernels: one for each compiled kernel and number of CTAs that a
// multiprocessor is to hold.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_kernel.h"
#include "kernels/sm90/small_m.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::SmallMKernel;
using sm90::SmallMLaunch;

// Beyond, kernels with large tiles of A are the better family on every shape measured.
constexpr int kMaxRowsOfA = 256;
constexpr int kMaxTokenTiles = 4;

// What PredictUs is made of, in microseconds and bytes. Fitted to 1702 measurements of these
// kernels on one H200, M = 1 to 256 on twelve layers: the launch it prefers takes 1.013 of the best
// one's time in the geometric mean and 1.10 at most; under programmatic dependent launch 1.036
// and 1.22.
struct TimeModel {
  double launch;      // and the first bytes
  double read;        // of the device's read rate
  double latency;     // bytes in flight = rate * latency
  double sm_bytes;    // a multiprocessor takes in a microsecond, activations included
  double product;     // a k-block of one row of B and one of A
  double norm;        // how sharply the longest of reading, taking in and products rules
  double wave;        // each wave after the first
  double store_sums;  // for each 512 sums of a tile
  double exchange;    // sums over a cluster, and for each 512 sums of a tile
  double exchange_sums;
  double exchange_more;  // for each CTA beyond two
  double idle;           // places left free, up to the share `filled`: the next kernel, which has
  double filled;         // loaded all it can hold there, waits with it
};
constexpr TimeModel kAlone = {.launch = 1.905,
                              .read = 1.033,
                              .latency = 1.569,
                              .sm_bytes = 92.7e3,
                              .product = 2.75e-5,
                              .norm = 3.21,
                              .wave = 1.233,
                              .store_sums = 0.0311,
                              .exchange = 0.776,
                              .exchange_sums = 0.0203,
                              .exchange_more = 2.736,
                              .idle = 0.0,
                              .filled = 0.0};
constexpr TimeModel kDependent = {.launch = 0.461,
                                  .read = 0.949,
                                  .latency = 1.112,
                                  .sm_bytes = 73.3e3,
                                  .product = 1.49e-5,
                                  .norm = 79.6,
                                  .wave = 1.162,
                                  .store_sums = 0.0967,
                                  .exchange = 0.788,
                                  .exchange_sums = 0.0375,
                                  .exchange_more = 1.497,
                                  .idle = 6.213,
                                  .filled = 0.694};

// (a^q + b^q + c^q)^(1/q), for any q and range.
double Norm(double a, double b, double c, double q) {
  const double most = std::max({a, b, c});
  return most *
         std::pow(std::pow(a / most, q) + std::pow(b / most, q) + std::pow(c / most, q), 1 / q);
}

struct Planned : SmallMLaunch {
  bool Rebind(const void* a, const float* scale_a, void* d, float alpha) {
    return sm90::RebindSmallM(a, scale_a, d, alpha, this);
  }
  cudaError_t Start(cudaStream_t stream) const { return sm90::LaunchSmallM(*this, stream); }
};

class SmallM final : public sm90::BlockScaledKernel<Planned> {
 public:
  SmallM(const SmallMKernel& kernel, int residency, KernelDesc desc, KernelInfo info)
      : BlockScaledKernel(desc, std::move(info)), kernel_(kernel), residency_(residency) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = sm90::WhyBlockScaled(p); !common.ok()) return common;
    if (p.align_a < 16 || p.align_b < 16)
      return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes (TMA)");
    if (p.sm_budget > 0) return Feasibility::Refuse("spreads over all multiprocessors; no budget");
    if (p.m > kMaxRowsOfA || CeilDiv(p.m, kernel_.tokens) > kMaxTokenTiles)
      return Feasibility::Refuse("made for fewer rows of A");
    if (CeilDiv(p.n, kernel_.rows()) > 65535) return Feasibility::Refuse("n is too large");
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    // Not the largest number that fits: more splits can leave fewer stages, then again more.
    const int k_blocks = CeilDiv(shape.z, 128);
    int splits = 1;
    while (sm90::SmallMFits(kernel_, k_blocks, splits + 1, residency_)) ++splits;
    return splits;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override;

 private:
  bool Plan(const GemmArgs& args, int, int splits, Planned* launch) const override {
    return sm90::PlanSmallM(kernel_, sm90::ToBlockScaled(args), splits, residency_, launch);
  }
  cudaError_t Load() const override { return sm90::LoadSmallM(kernel_); }

  const SmallMKernel& kernel_;
  const int residency_;
};

double SmallM::PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                         int, int splits) const noexcept {
  const TimeModel& t = p.pdl ? kDependent : kAlone;
  const double sms = std::max(1, device.units);
  const int loads = CeilDiv(CeilDiv(p.k, 128), kernel_.stage_blocks);
  const int k_blocks = CeilDiv(loads, splits) * kernel_.stage_blocks;
  const double ctas = double(CeilDiv(p.n, kernel_.rows())) * CeilDiv(p.m, kernel_.tokens) * splits;
  const int stages = sm90::SmallMStages(kernel_, CeilDiv(p.k, 128), splits, residency_);
  // Clusters of more than two do not fill every part of the chip: 248 and 240 of 264 places.
  const double slots = sms * residency_ * (splits > 4 ? 0.9 : splits > 2 ? 0.93 : 1.0);
  const double waves = std::ceil(ctas / slots), per_sm = std::ceil(ctas / sms);
  const double in_flight =
      std::min(ctas, slots) * stages * kernel_.stage_blocks * kernel_.rows() * 128;
  const double rate = std::min(rates.read_gbps * 1e3 * t.read, in_flight / t.latency);
  const double bytes =
      double(p.n) * p.k + double(p.m) * p.k + double(kernel_.output_bytes) * p.m * p.n;
  const double per_sm_blocks = per_sm * k_blocks;
  const double taken =
      per_sm_blocks * (kernel_.rows() + std::min(kernel_.tokens, p.m)) * 128.0 / t.sm_bytes;
  const double products = per_sm_blocks * kernel_.rows() * kernel_.tokens * t.product;
  const double sums = kernel_.tokens * kernel_.rows() / 512.0;
  double us = t.launch + Norm(bytes / rate, taken, products, t.norm) + (waves - 1) * t.wave +
              t.store_sums * sums * waves + t.idle * std::max(0.0, t.filled - ctas / slots);
  // Tiles that are at least half empty were not measured: the next smaller one does the same.
  if (kernel_.tokens > 8 && p.m <= kernel_.tokens / 2) us *= 1.15;
  if (splits > 1) us += t.exchange + t.exchange_sums * sums * (1 + t.exchange_more * (splits - 2));
  return us;
}

}  // namespace

void AddSm90SmallM(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const SmallMKernel& kernel : sm90::SmallMKernels()) {
    for (int residency = 1; residency <= 4; ++residency) {
      if ((kernel.residencies >> residency & 1) == 0) continue;
      KernelDesc desc = sm90::BlockScaledDesc(kernel.output_bytes);
      desc.tile_m = kernel.tokens, desc.tile_n = kernel.rows(), desc.tile_k = 128;
      desc.split_k = true;
      const int stages = sm90::SmallMStages(kernel, 1 << 20, 1, residency);
      desc.stages = stages;
      KernelInfo info;
      info.name = std::string("sm90_fp8_swap/") + kernel.id + "/r" + std::to_string(residency);
      info.registers = kernel.registers;
      info.dynamic_smem_size = kernel.Layout(stages, 1).total;
      info.max_active_ctas = residency;
      info.chunk_size_k = 128;
      kernels.push_back(std::make_unique<SmallM>(kernel, residency, desc, std::move(info)));
    }
  }
}

}  // namespace culet
