// The small-M kernels as culet::Kernels: one for each compiled kernel and number of CTAs that a
// multiprocessor is to hold.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_args.h"
#include "kernels/sm90/small_m.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::SmallMKernel;
using sm90::SmallMLaunch;
using sm90::SmallMLayout;

// Beyond, kernels with large tiles of A are the better family on every shape measured.
constexpr int kMaxRowsOfA = 128;
constexpr int kMaxTokenTiles = 4;

// What PredictUs is made of, in microseconds and bytes. Fitted to 2772 measurements of these
// kernels on one H200, M = 1 to 128 on twelve layers: the launch it prefers takes 1.02 of the best
// one's time in the geometric mean and 1.12 at most; under programmatic dependent launch 1.05
// and 1.18.
struct TimeModel {
  double launch;    // and the first bytes
  double read;      // of the device's read rate
  double sm_bytes;  // a multiprocessor takes in a microsecond, activations included
  double latency;   // bytes in flight = rate * latency
  double block;     // a k-block of one CTA, and for each token
  double block_token;
  double exchange;  // sums over a cluster, and for each 512 sums of a tile
  double exchange_sums;
  double exchange_more;  // for each CTA beyond two
  double store_sums;     // for each 512 sums of a tile
  double wave;           // each wave after the first
  double imbalance;      // of the reading time, for CTAs that some multiprocessors lack
  double mixed;          // of the shorter of reading and multiprocessor time
};
constexpr TimeModel kAlone = {.launch = 1.71,
                              .read = 0.988,
                              .sm_bytes = 78.6e3,
                              .latency = 1.34,
                              .block = 0.0245,
                              .block_token = 0.00126,
                              .exchange = 1.19,
                              .exchange_sums = 0.0314,
                              .exchange_more = 0.579,
                              .store_sums = 0.0775,
                              .wave = 0.383,
                              .imbalance = 0.0,
                              .mixed = 0.0928};
constexpr TimeModel kDependent = {.launch = 1.47,
                                  .read = 1.097,
                                  .sm_bytes = 74.0e3,
                                  .latency = 1.5,
                                  .block = 0.121,
                                  .block_token = 0.00132,
                                  .exchange = 0.16,
                                  .exchange_sums = 0.042,
                                  .exchange_more = 0.47,
                                  .store_sums = 0.0584,
                                  .wave = 0.309,
                                  .imbalance = 0.113,
                                  .mixed = 0.204};

class PreparedSmallM final : public PreparedKernel {
 public:
  explicit PreparedSmallM(const SmallMLaunch& launch) : launch_(launch) {}

  int Launch(float alpha, const void* A, const void* U, float beta, const void*, void* D,
             Workspace&, cudaStream_t stream) const noexcept override {
    if (beta != 0.0f) return static_cast<int>(StatusCode::kInvalidArgument);
    SmallMLaunch launch = launch_;
    if (!sm90::RebindSmallM(A, static_cast<const float*>(U), D, alpha, &launch))
      return static_cast<int>(StatusCode::kInternal);
    return -static_cast<int>(sm90::LaunchSmallM(launch, stream));
  }

 private:
  SmallMLaunch launch_;
};

class SmallM final : public ArgsKernel {
 public:
  SmallM(const SmallMKernel& kernel, int residency, KernelDesc desc, KernelInfo info)
      : ArgsKernel(desc, std::move(info)), kernel_(kernel), residency_(residency) {}

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
    const int k_blocks = CeilDiv(shape.z, 128);
    int splits = std::min(sm90::kSmallMMaxSplits, k_blocks);
    while (splits > 1 && sm90::SmallMStages(kernel_, k_blocks, splits, residency_) <
                             std::min(2, CeilDiv(k_blocks, splits)))
      --splits;
    return splits;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override;

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int, int splits) override {
    SmallMLaunch launch;
    if (args.beta != 0.0f || !Plan(args, splits, &launch))
      return Status(StatusCode::kInvalidArgument,
                    id() + ": no tensor map for these operands; see explain for what is accepted");
    const cudaError_t error = sm90::LoadSmallM(kernel_);
    if (error != cudaSuccess)
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    return std::unique_ptr<PreparedKernel>(std::make_unique<PreparedSmallM>(launch));
  }

  int Run(const GemmArgs& args, int, int splits, Workspace&, cudaStream_t stream) override {
    SmallMLaunch launch;
    if (args.beta != 0.0f || !Plan(args, splits, &launch))
      return static_cast<int>(StatusCode::kInvalidArgument);
    const cudaError_t error = sm90::LoadSmallM(kernel_);
    return -static_cast<int>(error != cudaSuccess ? error : sm90::LaunchSmallM(launch, stream));
  }

 private:
  bool Plan(const GemmArgs& args, int splits, SmallMLaunch* launch) const {
    return sm90::StridesFit(args) &&
           sm90::PlanSmallM(kernel_, sm90::ToBlockScaled(args), splits, residency_, launch);
  }

  const SmallMKernel& kernel_;
  const int residency_;
};

double SmallM::PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                         int, int splits) const noexcept {
  const TimeModel& t = p.pdl ? kDependent : kAlone;
  const double sms = std::max(1, device.units);
  const int k_blocks = CeilDiv(CeilDiv(p.k, 128), splits);
  const double ctas = double(CeilDiv(p.n, kernel_.rows())) * CeilDiv(p.m, kernel_.tokens) * splits;
  const int stages = sm90::SmallMStages(kernel_, CeilDiv(p.k, 128), splits, residency_);
  // Clusters of more than two do not fill every part of the chip: 248 and 240 of 264 places.
  const double slots = sms * residency_ * (splits > 4 ? 0.9 : splits > 2 ? 0.93 : 1.0);
  const double waves = std::ceil(ctas / slots), per_sm = std::ceil(ctas / sms);
  const double in_flight = std::min(ctas, slots) * stages * kernel_.rows() * 128;
  const double rate = std::min(rates.read_gbps * 1e3 * t.read, in_flight / t.latency);
  const double bytes =
      double(p.n) * p.k + double(p.m) * p.k + double(kernel_.output_bytes) * p.m * p.n;
  const double read = bytes / rate;
  const double sm =
      per_sm * k_blocks * (kernel_.rows() + std::min(kernel_.tokens, p.m)) * 128.0 / t.sm_bytes;
  const double chain = k_blocks * (t.block + t.block_token * kernel_.tokens) * waves;
  const double sums = kernel_.tokens * kernel_.rows() / 512.0;
  double us = t.launch +
              std::max({read * (1 + t.imbalance * (per_sm * sms / ctas - 1)), sm, chain}) +
              t.mixed * std::min(read, sm) + (waves - 1) * t.wave + t.store_sums * sums * waves;
  if (splits > 1) us += t.exchange + t.exchange_sums * sums * (1 + t.exchange_more * (splits - 2));
  return us;
}

}  // namespace

void AddSm90SmallM(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const SmallMKernel& kernel : sm90::SmallMKernels()) {
    for (int residency = 1; residency <= 4; ++residency) {
      if ((kernel.residencies >> residency & 1) == 0) continue;
      KernelDesc desc;
      desc.backend = Backend::kNative;
      desc.arch = 900;
      desc.type_a = desc.type_b = DataType::kFloat8_e4m3;
      desc.type_d = kernel.output_bytes == 2 ? DataType::kBfloat16 : DataType::kFloat32;
      desc.quant_a = {QuantType::kK, 128};
      desc.quant_b = {QuantType::kB, 128};
      desc.tile_m = kernel.tokens, desc.tile_n = kernel.rows(), desc.tile_k = 128;
      desc.split_k = true;
      desc.determinism = Determinism::kRepeatable;
      const int stages = sm90::SmallMStages(kernel, 1 << 20, 1, residency);
      desc.stages = stages;
      KernelInfo info;
      info.name = std::string("sm90_fp8_swap/") + kernel.id + "/r" + std::to_string(residency);
      info.registers = kernel.registers;
      info.dynamic_smem_size =
          SmallMLayout::Make(kernel.tokens, kernel.row_groups, kernel.token_groups, stages, 1)
              .total;
      info.max_active_ctas = residency;
      info.chunk_size_k = 128;
      kernels.push_back(std::make_unique<SmallM>(kernel, residency, desc, std::move(info)));
    }
  }
}

}  // namespace culet
