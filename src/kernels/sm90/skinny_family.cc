// The skinny kernels as culet::Kernels.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_args.h"
#include "kernels/sm90/skinny.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::SkinnyKernel;
using sm90::SkinnyLaunch;

// What PredictUs is made of, in microseconds and bytes. Fitted to 1724 and 1293 measurements of
// these kernels on one H200, M = 1 to 8 on twelve layers, with the scale of sm90_fp8_swap's
// predictions: the launch it prefers takes 1.016 of the best one's time in the geometric mean
// and 1.06 at most; under programmatic dependent launch 1.05 and 1.16.
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
  double a_bytes;   // of A, which each tile of rows reads again, a microsecond
  double d_bytes;   // of D, likewise
  double idle;      // places left free, up to the share `filled`
  double filled;
};
constexpr TimeModel kAlone = {.launch = 1.789,
                              .read = 0.994,
                              .latency = 0.846,
                              .sm_bytes = 142.1e3,
                              .token = 1.845,
                              .norm = 2.152,
                              .wave = 0.424,
                              .last = 0.061,
                              .split = 0.030,
                              .a_bytes = 74e6,
                              .d_bytes = 1.46e6,
                              .idle = 1.699,
                              .filled = 0.424};
constexpr TimeModel kDependent = {.launch = 1.154,
                                  .read = 0.954,
                                  .latency = 0.001,
                                  .sm_bytes = 153.9e3,
                                  .token = 1.872,
                                  .norm = 2.505,
                                  .wave = 0.643,
                                  .last = 0.004,
                                  .split = 0.024,
                                  .a_bytes = 28e6,
                                  .d_bytes = 0.538e6,
                                  .idle = 3.798,
                                  .filled = 0.713};

class PreparedSkinny final : public PreparedKernel {
 public:
  explicit PreparedSkinny(const SkinnyLaunch& launch) : launch_(launch) {}

  int Launch(float alpha, const void* A, const void* U, float beta, const void*, void* D,
             Workspace&, cudaStream_t stream) const noexcept override {
    if (beta != 0.0f) return static_cast<int>(StatusCode::kInvalidArgument);
    SkinnyLaunch launch = launch_;
    sm90::RebindSkinny(A, static_cast<const float*>(U), D, alpha, &launch);
    return -static_cast<int>(sm90::LaunchSkinny(launch, stream));
  }

 private:
  SkinnyLaunch launch_;
};

class Skinny final : public ArgsKernel {
 public:
  Skinny(const SkinnyKernel& kernel, KernelDesc desc, KernelInfo info)
      : ArgsKernel(desc, std::move(info)), kernel_(kernel) {}

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

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int, int splits) override {
    SkinnyLaunch launch;
    if (args.beta != 0.0f || !Plan(args, splits, &launch))
      return Status(StatusCode::kInvalidArgument,
                    id() + ": pitches beyond 2^31; see explain for what is accepted");
    const cudaError_t error = sm90::LoadSkinny(kernel_);
    if (error != cudaSuccess)
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    return std::unique_ptr<PreparedKernel>(std::make_unique<PreparedSkinny>(launch));
  }

  int Run(const GemmArgs& args, int, int splits, Workspace&, cudaStream_t stream) override {
    SkinnyLaunch launch;
    if (args.beta != 0.0f || !Plan(args, splits, &launch))
      return static_cast<int>(StatusCode::kInvalidArgument);
    const cudaError_t error = sm90::LoadSkinny(kernel_);
    return -static_cast<int>(error != cudaSuccess ? error : sm90::LaunchSkinny(launch, stream));
  }

 private:
  bool Plan(const GemmArgs& args, int splits, SkinnyLaunch* launch) const {
    return sm90::StridesFit(args) &&
           sm90::PlanSkinny(kernel_, sm90::ToBlockScaled(args), splits, launch);
  }

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
  const double slots = sms * std::max(1, sm90::SkinnyResidentCtas(kernel_, warps));
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
         tiles * p.m * p.k / t.a_bytes + double(kernel_.output_bytes) * p.m * p.n / t.d_bytes +
         t.idle * std::max(0.0, t.filled - std::min(1.0, ctas / slots));
}

}  // namespace

void AddSm90Skinny(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const SkinnyKernel& kernel : sm90::SkinnyKernels()) {
    KernelDesc desc;
    desc.backend = Backend::kNative;
    desc.arch = 900;
    desc.type_a = desc.type_b = DataType::kFloat8_e4m3;
    desc.type_d = kernel.output_bytes == 2 ? DataType::kBfloat16 : DataType::kFloat32;
    desc.quant_a = {QuantType::kK, 128};
    desc.quant_b = {QuantType::kB, 128};
    desc.tile_m = sm90::kSkinnyTokens, desc.tile_n = kernel.rows, desc.tile_k = 128;
    desc.split_k = true;
    desc.determinism = Determinism::kRepeatable;
    desc.stages = kernel.depth;
    KernelInfo info;
    info.name = std::string("sm90_fp8_skinny/") + kernel.id;
    info.registers = kernel.registers;
    info.dynamic_smem_size = kernel.SmemBytes(sm90::SkinnyRowGroups(1));
    info.max_active_ctas = sm90::SkinnyResidentCtas(kernel, sm90::SkinnyRowGroups(1));
    info.chunk_size_k = 128;
    kernels.push_back(std::make_unique<Skinny>(kernel, desc, std::move(info)));
  }
}

}  // namespace culet
