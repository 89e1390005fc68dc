// The skinny kernels as culet::Kernels.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_kernel.h"
#include "kernels/sm90/skinny.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::SkinnyKernel;
using sm90::SkinnyLaunch;

// What PredictUs is made of, in microseconds and bytes. Fitted to 2056 and 1563 measurements of
// these kernels on one H200, M = 1 to 8 on twelve layers, with the scale of sm90_fp8_swap's
// predictions: the launch it prefers takes 1.015 of the best one's time in the geometric mean
// and 1.06 at most; under programmatic dependent launch 1.07 and 1.15.
struct TimeModel {
  double launch;    // and the first bytes
  double read;      // of the device's read rate
  double latency;   // bytes in flight = rate * latency
  double sm_bytes;  // a multiprocessor takes in a microsecond ...
  double token;     // ... where a row of A counts as so many of B
  double norm;      // how sharply the longer of reading and taking in rules
  double wave;      // each wave after the first
  double last;      // for each 16 rows of a k-block in flight, which a warp multiplies at the end
  double split;     // each warp along K
  double a_mb;      // each megabyte of A, which each tile of rows reads again
  double d_mb;      // each megabyte of D
  double idle;      // places left free, up to the share `filled`
  double filled;
};
constexpr TimeModel kAlone = {.launch = 1.767,
                              .read = 1.027,
                              .latency = 0.823,
                              .sm_bytes = 209.6e3,
                              .token = 2.280,
                              .norm = 1.476,
                              .wave = 0.461,
                              .last = 0.061,
                              .split = 0.030,
                              .a_mb = 0.000,
                              .d_mb = 0.705,
                              .idle = 1.631,
                              .filled = 0.424};
constexpr TimeModel kDependent = {.launch = 1.384,
                                  .read = 0.953,
                                  .latency = 1.092,
                                  .sm_bytes = 115e3,
                                  .token = 2.763,
                                  .norm = 6.639,
                                  .wave = 0.814,
                                  .last = 0.000,
                                  .split = 0.009,
                                  .a_mb = 0.063,
                                  .d_mb = 0.826,
                                  .idle = 1.994,
                                  .filled = 0.719};

struct Planned : SkinnyLaunch {
  bool Rebind(const void* a, const float* scale_a, void* d, float alpha) {
    sm90::RebindSkinny(a, scale_a, d, alpha, this);
    return true;
  }
  cudaError_t Start(cudaStream_t stream) const { return sm90::LaunchSkinny(*this, stream); }
};

class Skinny final : public sm90::BlockScaledKernel<Planned> {
 public:
  Skinny(const SkinnyKernel& kernel, KernelDesc desc, KernelInfo info)
      : BlockScaledKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = sm90::WhyBlockScaled(p); !common.ok()) return common;
    if (p.m > sm90::kSkinnyTokens) return Feasibility::Refuse("made for up to 8 rows of A");
    if (p.align_a < 16 || p.align_b < 16)
      return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes");
    if (p.k % 16 != 0) return Feasibility::Refuse("k must be a multiple of 16");
    if (p.sm_budget > 0) return Feasibility::Refuse("spreads over all multiprocessors; no budget");
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    return sm90::SkinnyMaxSplits(kernel_, shape.z);
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override;

 private:
  bool Plan(const GemmArgs& args, int, int splits, Planned* launch) const override {
    return sm90::PlanSkinny(kernel_, sm90::ToBlockScaled(args), splits, launch);
  }
  cudaError_t Load() const override { return sm90::LoadSkinny(kernel_); }

  const SkinnyKernel& kernel_;
};

double Skinny::PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                         int, int splits) const noexcept {
  const TimeModel& t = p.pdl ? kDependent : kAlone;
  const double sms = std::max(1, device.units);
  const int groups = sm90::SkinnyRowGroups(splits), warps = splits * groups;
  const int k_blocks = CeilDiv(CeilDiv(p.k, 128), splits),
            depth = std::min(kernel_.depth, k_blocks);
  const double tiles = CeilDiv(p.n, kernel_.rows), ctas = std::ceil(tiles / groups);
  const double slots = sms * std::max(1, sm90::SkinnyResidentCtas(kernel_, warps, p.pdl));
  const double waves = std::ceil(ctas / slots), per_sm = std::ceil(ctas / sms);
  const double in_flight = std::min(ctas, slots) * warps * depth * kernel_.rows * 128.0;
  const double rate = std::min(rates.read_gbps * 1e3 * t.read, in_flight / t.latency);
  const double stream = double(p.n) * p.k / rate;
  const double taken =
      per_sm * warps * k_blocks * 128.0 * (kernel_.rows + t.token * p.m) / t.sm_bytes;
  const double most = std::max(stream, taken);
  return t.launch +
         most * std::pow(std::pow(stream / most, t.norm) + std::pow(taken / most, t.norm),
                         1 / t.norm) +
         (waves - 1) * t.wave + t.last * depth * kernel_.rows / 16 + t.split * splits +
         t.a_mb * 1e-6 * tiles * p.m * p.k + t.d_mb * 1e-6 * kernel_.output_bytes * p.m * p.n +
         t.idle * std::max(0.0, t.filled - std::min(1.0, ctas / slots));
}

}  // namespace

void AddSm90Skinny(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const SkinnyKernel& kernel : sm90::SkinnyKernels()) {
    KernelDesc desc = sm90::BlockScaledDesc(kernel.output_bytes);
    desc.tile_m = sm90::kSkinnyTokens, desc.tile_n = kernel.rows, desc.tile_k = 128;
    desc.split_k = true;
    desc.stages = kernel.depth;
    const int warps = sm90::SkinnyRowGroups(1);  // where K is not split
    KernelInfo info;
    info.name = std::string("sm90_fp8_skinny/") + kernel.id;
    info.registers = kernel.registers;
    info.dynamic_smem_size = kernel.SmemBytes(warps, sm90::SkinnyRehearses(kernel, warps, false));
    info.max_active_ctas = sm90::SkinnyResidentCtas(kernel, warps, false);
    info.chunk_size_k = 128;
    kernels.push_back(std::make_unique<Skinny>(kernel, desc, std::move(info)));
  }
}

}  // namespace culet
