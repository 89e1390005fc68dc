// Products of 16-bit activations by codes of 4 and 8 bits as culet::Kernels, on any GPU from
// compute capability 8.0 on (kernels/cuda_ops/code_product.h).
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "culet/scratch.h"
#include "kernels/catalog.h"
#include "kernels/cuda/codes.h"
#include "kernels/cuda_ops/code_product.h"

namespace culet {
namespace {

using cuda_ops::CodeProductKernel;
using cuda_ops::CodeProductParams;

constexpr int kLeastArch = 800;

bool IsE4m3(const CodeProductKernel& kernel) noexcept {
  return kernel.codes == DataType::kFloat8_e4m3;
}

// Bytes of shared memory that a CTA may have.
int SmemOf(int arch) noexcept {
  if (arch == 800 || arch == 870) return 163 * 1024;
  return arch == 900 || arch == 1000 || arch == 1030 ? 227 * 1024 : 99 * 1024;
}

// What PredictUs is made of: instructions that a weight and an octet of tokens take of the 128 that
// a multiprocessor issues a clock, and what a launch, its end and a part of K add. Fitted to u4 on
// an H200, squares of 4096 and 8192, 1 to 16 tokens: waiting is counted as instructions.
constexpr double kLanes = 128 * 0.7, kProductLanes = 128 * 0.3;
constexpr double kWeightInstructions = 1.75, kOctetInstructions = 0.16;
constexpr double kLaunchUs = 4.2, kDependentUs = 3.5;
constexpr double kSplitUs = 1.3, kPartUs = 0.05;
constexpr double kReadShare = 0.9;
// The same of the kernels for few tokens; what tokens add to a row is shared by the rows of a warp.
constexpr double kStreamInstructions = 0.5, kStreamOctet = 2.75, kStreamTokens = 70;
constexpr double kStreamUs = 2.2, kStreamDependentUs = 1.5;
// The same of those that bring codes straight to registers, and of tiles of tokens. Fitted to
// squares of 8192 and to 8192 by 28672 on an H200, 1 to 256 tokens. A CTA that has a multiprocessor
// to itself waits more.
constexpr double kDirectLanes = 128 * 0.6, kDirectUs = 3.2, kDirectDependentUs = 2.5;
constexpr double kAlone = 1.2;
constexpr double kTileWeight = 5.2, kTileOctet = 0.13, kTileTokens = 74, kTileSplitUs = 5;
constexpr double kStreamCacheBytes = 36;  // of a clock
constexpr double kCacheGbps = 5500;       // what tokens and codes that are read again come at

// What a weight takes beside one of u4 in the kernels for any number of tokens.
double ProductCostOf(DataType codes) noexcept {
  if (codes == DataType::kUint4) return 1;
  return codes == DataType::kFloat8_e4m3 ? 1.27 : 1.6;
}

// What a weight takes of kDirectLanes, and what eight tokens add to each row of a CTA.
struct DirectCost {
  double weight, tokens;
};
DirectCost DirectCostOf(DataType codes) noexcept {
  if (codes == DataType::kUint4) return {2.5, 32};
  return codes == DataType::kFloat4_e2m1 ? DirectCost{3.3, 30} : DirectCost{3.1, 83};
}

// Bytes from a row to the next, of which a CTA has 64.
constexpr std::int64_t kMostDirectBytes = 1 << 25;

double CeilDiv(double a, double b) noexcept { return std::ceil(a / b); }

// Aligned rows of the activations along K; D and C in either order.
CodeProductParams ParamsOf(const CodeProductKernel& kernel, const GemmArgs& args, int splits) {
  const Operation& op = args.operation;
  const auto strides = [](const MatrixLayout& layout) {
    const bool rows = layout.order == Order::kRowMajor;
    return std::pair(rows ? layout.ld : 1, rows ? std::int64_t{1} : layout.ld);
  };
  CodeProductParams p;
  p.x = args.A;
  p.x_stride = args.Adesc.ld;
  p.codes = args.B;
  p.code_stride = BytesOf(args.Bdesc.type, args.Bdesc.ld);
  p.scales = args.V;
  p.scale_type = args.Vdesc.type;
  p.zeros = op.zero_b.data;
  p.zero_type = op.zero_b.type;
  std::tie(p.scale_k_stride, p.scale_row_stride) = strides(args.Vdesc);
  const ScaleGroup group = ScaleGroupOf(op.quant_b, args.Bdesc.cols, args.Bdesc.rows);
  p.group = group.k, p.group_rows = group.outer;
  p.d = args.D;
  p.d_type = args.Ddesc.type;
  std::tie(p.d_row, p.d_col) = strides(args.Ddesc);
  if (args.Cdesc.type != DataType::kNull && args.beta != 0.0f) {
    p.c = args.C;
    p.c_type = args.Cdesc.type;
    std::tie(p.c_row, p.c_col) = strides(args.Cdesc);
  }
  p.bias = op.bias.data;
  p.bias_type = op.bias.type;
  p.bias_row = op.bias.axis == Bias::Axis::kM ? 1 : 0;
  p.bias_col = 1 - p.bias_row;
  p.gated = IsGated(op.epilogue);
  p.halves = p.gated && op.gate_order == GateOrder::kHalves;
  p.alpha = args.alpha;
  p.beta = args.beta;
  p.m = args.Adesc.rows, p.n = args.Bdesc.cols, p.k = args.Adesc.cols;
  p.splits = std::clamp(splits, 1, cuda_ops::MaxCodeSplits(kernel, p.k));
  p.early = op.pdl;
  p.chain = op.pdl_chain;
  return p;
}

cudaError_t LaunchCodes(const CodeProductKernel& kernel, CodeProductParams params, bool pdl,
                        const Workspace& workspace, cudaStream_t stream) {
  params.partials = static_cast<float*>(workspace.partials);
  params.arrived = static_cast<int*>(workspace.barriers);
  return cuda_ops::CodeProduct(kernel, params, {stream, pdl});
}

class PreparedCodes final : public PreparedKernel {
 public:
  PreparedCodes(const CodeProductKernel& kernel, const CodeProductParams& params,
                const MatrixLayout& c, bool pdl)
      : kernel_(kernel), params_(params), c_(c), pdl_(pdl) {}

  int Launch(float alpha, const void* A, const void*, float beta, const void* C, void* D,
             Workspace& workspace, cudaStream_t stream) const noexcept override {
    if (beta != 0.0f && c_.type == DataType::kNull) {
      return static_cast<int>(StatusCode::kInvalidArgument);
    }
    CodeProductParams params = params_;
    params.alpha = alpha;
    params.beta = beta;
    params.x = A;
    params.d = D;
    params.c = beta != 0.0f ? C : nullptr;
    params.c_type = c_.type;
    params.c_row = c_.order == Order::kRowMajor ? c_.ld : 1;
    params.c_col = c_.order == Order::kRowMajor ? 1 : c_.ld;
    return -static_cast<int>(LaunchCodes(kernel_, params, pdl_, workspace, stream));
  }

 private:
  const CodeProductKernel& kernel_;
  CodeProductParams params_;
  MatrixLayout c_;
  bool pdl_;
};

class CodesKernel final : public ArgsKernel {
 public:
  CodesKernel(const CodeProductKernel& kernel, KernelDesc desc, KernelInfo info)
      : ArgsKernel(std::move(desc), std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (p.b.type != kernel_.codes) return Feasibility::Refuse("B is of another type");
    if (p.a.type != kernel_.x) return Feasibility::Refuse("A is of another 16-bit type");
    if (p.m > kernel_.most) return Feasibility::Refuse("made for fewer rows of A");
    if (const Feasibility codes = WhyNotCodes(p, kernel_.group_step, IsE4m3(kernel_)); !codes.ok())
      return codes;
    if (kernel_.direct) {
      if (const Feasibility direct = WhyNotDirect(p); !direct.ok()) return direct;
    } else if (kernel_.streams && p.b.scale_type == DataType::kFloat32) {
      return Feasibility::Refuse("takes scales of 16 bits and UE8M0 only");
    }
    if (p.epilogue == Epilogue::kGatedSiluQuant) return Feasibility::Refuse("makes no codes");
    // The rest is what is said of numbers.
    return Kernel::why(WithoutCodes(p));
  }

  int GetMaxSplits(const int4& shape, int, std::size_t barriers,
                   std::size_t partials) const override {
    const auto one = cuda_ops::CodeProductWorkspace(kernel_, shape.x, shape.y, 2);
    if (one.counters > barriers) return 1;
    const auto held = static_cast<int>(
        std::min<std::size_t>(partials / (one.partials / 2), cuda_ops::kMostCodeSplits));
    return std::clamp(held, 1, cuda_ops::MaxCodeSplits(kernel_, shape.z));
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int splits) const noexcept override {
    const auto memory = cuda_ops::CodeProductWorkspace(
        kernel_, p.m, p.n, std::clamp(splits, 1, cuda_ops::MaxCodeSplits(kernel_, p.k)));
    WorkspaceSize size;
    size.barriers = memory.counters;
    size.partials = memory.partials;
    return size;
  }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int, int splits) override {
    if (const cudaError_t error = cuda_ops::LoadCodeProduct(kernel_); error != cudaSuccess) {
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    }
    if (kernel_.direct && BytesOf(args.Bdesc.type, args.Bdesc.ld) > kMostDirectBytes) {
      return Status(StatusCode::kInvalidArgument,
                    id() + ": columns of B are " + std::to_string(args.Bdesc.ld) +
                        " elements apart; it takes up to 2^25 bytes: choose another kernel, or "
                        "copy B");
    }
    return std::unique_ptr<PreparedKernel>(std::make_unique<PreparedCodes>(
        kernel_, ParamsOf(kernel_, args, splits), args.Cdesc, args.operation.pdl));
  }

  int Run(const GemmArgs& args, int, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    if (const cudaError_t error = cuda_ops::LoadCodeProduct(kernel_); error != cudaSuccess) {
      return -static_cast<int>(error);
    }
    return -static_cast<int>(LaunchCodes(kernel_, ParamsOf(kernel_, args, splits),
                                         args.operation.pdl, workspace, stream));
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    if (kernel_.direct) return DirectUs(p, device, rates, splits);
    return kernel_.streams ? StreamUs(p, device, rates, splits)
                           : ProductUs(p, device, rates, splits);
  }

 private:
  Feasibility WhyNotDirect(const GemmDesc& p) const noexcept {
    const DataType scales = p.b.scale_type;
    if (p.b.type == DataType::kFloat4_e2m1) {
      if (scales != DataType::kFloat8_ue8m0) return Feasibility::Refuse("takes UE8M0 scales only");
    } else if (IsE4m3(kernel_)) {
      if (p.b.quant.type != QuantType::kRow || scales == DataType::kFloat8_ue8m0) {
        return Feasibility::Refuse("takes scales of columns of B that are numbers");
      }
    } else {
      if (scales != DataType::kFloat16 && scales != DataType::kBfloat16) {
        return Feasibility::Refuse("takes scales of float16 and bfloat16 only");
      }
      if (p.b.zero_type != DataType::kNull && p.b.zero_type != DataType::kBfloat16) {
        return Feasibility::Refuse("takes zero points of bfloat16 only");
      }
    }
    // Offsets within a CTA's rows are 32 bits.
    if (p.k > kMostDirectBytes) return Feasibility::Refuse("takes columns of B up to 2^25 bytes");
    return Feasibility::Ok();
  }

  // Memory, instructions and the cache bound it together; CTAs that share a multiprocessor share
  // what it can do.
  double StreamUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                  int splits) const noexcept {
    const double sms = std::max(1, device.units);
    const double clock = device.clock_mhz > 0 ? device.clock_mhz : 1700;
    const double each = CeilDiv(CeilDiv(p.n, kernel_.rows) * CeilDiv(p.m, kernel_.tokens) * splits,
                                sms);  // CTAs of a multiprocessor
    const double octets = CeilDiv(std::min(p.m, kernel_.tokens), 8);
    const double weights = kernel_.rows * static_cast<double>(p.k) / splits * each;
    const double instructions =
        weights * (kStreamInstructions + octets * (kStreamOctet + kStreamTokens / kernel_.rows));
    const double bytes = weights * BitsOf(p.b.type) / 8.0 +
                         std::min(p.m, kernel_.tokens) * 2.0 * p.k / splits * each;
    const double memory = MinimumBytes(p) / (rates.read_gbps * 1e3 * kReadShare);
    return (p.pdl ? kStreamDependentUs : kStreamUs) +
           std::max(
               {memory, instructions / (kLanes * clock), bytes / (kStreamCacheBytes * clock)}) +
           (splits > 1 ? kSplitUs + kPartUs * splits : 0.0);
  }

  double DirectUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                  int splits) const noexcept {
    const double sms = std::max(1, device.units);
    const double clock = device.clock_mhz > 0 ? device.clock_mhz : 1700;
    // CTAs of a multiprocessor. Those of one wave are spread evenly enough.
    const double ctas = CeilDiv(p.n, kernel_.rows) * CeilDiv(p.m, kernel_.tokens) * splits;
    const double places = sms * kernel_.ctas;
    const double each =
        ctas <= places ? std::max(1.0, ctas / sms) : CeilDiv(ctas, places) * kernel_.ctas;
    const double octets = CeilDiv(std::min(p.m, kernel_.tokens), 8);
    const DirectCost cost = DirectCostOf(p.b.type);
    const double each_weight =
        kernel_.tiles ? kTileWeight + octets * (kTileOctet + kTileTokens / kernel_.rows)
                      : (cost.weight + cost.tokens * octets / kernel_.rows) *
                            (kernel_.ctas == 1 ? kAlone : 1.0);
    const double weights = kernel_.rows * static_cast<double>(p.k) / splits * each;
    const double memory = MinimumBytes(p) / (rates.read_gbps * 1e3 * kReadShare);
    const double split =
        splits > 1 ? (kernel_.tiles ? kTileSplitUs : kSplitUs) + kPartUs * splits : 0.0;
    return (p.pdl ? kDirectDependentUs : kDirectUs) +
           std::max(memory, weights * each_weight / (kDirectLanes * clock)) + split;
  }

  double ProductUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                   int splits) const noexcept {
    const double sms = std::max(1, device.units), n = p.n, k = p.k;
    const double panels = CeilDiv(n, kernel_.rows), tiles = CeilDiv(p.m, kernel_.tokens);
    const double octets = CeilDiv(std::min(p.m, kernel_.tokens), 8);
    // A CTA that has its multiprocessor to itself reads and computes at most half as fast.
    const double ctas = panels * splits * tiles, places = sms * kernel_.ctas;
    const double waves = ctas <= places ? std::min(1.0, ctas / sms) : 1.0;
    const double idle =
        ctas <= places ? std::max(1.0, 1.2 * sms / ctas) : CeilDiv(ctas, sms) * sms / ctas;
    const double clock = device.clock_mhz > 0 ? device.clock_mhz : 1700;
    const double instructions =
        n * k * tiles * ProductCostOf(p.b.type) *
        (kWeightInstructions + kOctetInstructions * octets * (1 + 4.0 / kernel_.rows * 16 / 4));
    const double compute =
        instructions / (kProductLanes * sms * clock) * idle / std::max(waves, 0.5);
    const double code_bytes = static_cast<double>(BytesOf(p.b.type, std::int64_t{p.k})) * n;
    const double memory = MinimumBytes(p) / (rates.read_gbps * 1e3 * kReadShare) * idle;
    const double again = (panels * std::min(p.m, kernel_.tokens) * k * 2 + code_bytes) * tiles /
                         (kCacheGbps * 1e3) * idle;
    const double fixed = p.pdl ? kDependentUs : kLaunchUs;
    return fixed + std::max({compute, memory, again}) +
           (splits > 1 ? kSplitUs + kPartUs * splits : 0.0);
  }

  const CodeProductKernel& kernel_;
};

}  // namespace

void AddCudaCodes(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch < kLeastArch) return;
  for (const CodeProductKernel* kernel : cuda_ops::CodeProductKernels()) {
    const int smem = kernel->MostSmemBytes();
    if (smem > SmemOf(device.arch)) continue;
    KernelDesc desc;
    desc.backend = Backend::kNative;
    desc.arch = device.arch;
    desc.zero_points = kernel->codes == DataType::kUint4 || kernel->codes == DataType::kInt8;
    desc.tile_m = kernel->tokens;
    desc.tile_n = kernel->rows;
    desc.tile_k = kernel->block_k;
    desc.stages = kernel->stages;
    desc.split_k = true;
    desc.any_epilogue = desc.gate_halves = kernel->streams;
    desc.determinism = Determinism::kRepeatable;
    desc.pdl = device.arch >= 900;
    KernelInfo info;
    info.name = std::string("cuda_codes/") + kernel->id;
    info.dynamic_smem_size = smem;
    info.registers = kernel->registers;
    info.max_active_ctas = std::min(kernel->ctas, (SmemOf(device.arch) + 1024) / (smem + 1024));
    info.chunk_size_k = kernel->block_k;
    kernels.push_back(std::make_unique<CodesKernel>(*kernel, std::move(desc), std::move(info)));
  }
}

}  // namespace culet
