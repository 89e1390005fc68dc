// cpu_simd/skinny: up to 16 rows, each weight read once and converted in registers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_skinny.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_rows-inl.h"
#include "kernels/cpu/simd_skinny-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// The special decoder of K-major weights, if there is one.
template <class Decoder>
struct KMajor {
  using Type = Decoder;
};
#if HWY_TARGET == HWY_SCALAR
template <>
struct KMajor<DecodeE4m3> {
  using Type = DecodePlainE4m3;
};
#endif

// K-major weights: tiles of kMaxRows x kCols; N-major: of kMaxRowsN rows x four vectors.
template <class Decoder, int kMaxRows, int kCols, int kMaxRowsN>
void RunEitherOrder(const GemmArgs& args, float* buffer, float* values) {
  if (args.Bdesc.order == Order::kColMajor) {
    return RunSkinny<typename KMajor<Decoder>::Type, kMaxRows, kCols>(args, buffer, values);
  }
  if constexpr (kMaxRowsN > 0) RunSkinnyRows<Decoder, kMaxRowsN>(args, buffer, values);
}

template <int kMaxRows, int kCols, int kMaxRowsN>
void RunAnyType(const GemmArgs& args, float* buffer, float* values) {
  switch (args.Bdesc.type) {
    case DataType::kFloat16:
      return RunEitherOrder<DecodeF16, kMaxRows, kCols, kMaxRowsN>(args, buffer, values);
    case DataType::kBfloat16:
      return RunEitherOrder<DecodeBf16, kMaxRows, kCols, kMaxRowsN>(args, buffer, values);
    case DataType::kFloat8_e4m3:
      return RunEitherOrder<DecodeE4m3, kMaxRows, kCols, kMaxRowsN>(args, buffer, values);
    default:
      return RunEitherOrder<DecodeF32, kMaxRows, kCols, kMaxRowsN>(args, buffer, values);
  }
}

// Tiles for 32 vector registers, with most columns or with most rows, and for 16.
void SkinnyM6N4(const GemmArgs& a, float* buffer, float* values) {
  RunAnyType<6, 4, 6>(a, buffer, values);
}
void SkinnyM8N3(const GemmArgs& a, float* buffer, float* values) {
  RunAnyType<8, 3, 0>(a, buffer, values);
}
void SkinnyM4N2(const GemmArgs& a, float* buffer, float* values) {
  RunAnyType<4, 2, 2>(a, buffer, values);
}
// One row alone needs columns, so that multiply-adds need not wait for each other.
void SkinnyM1N4(const GemmArgs& a, float* buffer, float* values) {
  RunAnyType<1, 4, 1>(a, buffer, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <memory>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/cpu/simd_quantize.h"

namespace culet {
namespace {

HWY_EXPORT(SkinnyM6N4);
HWY_EXPORT(SkinnyM8N3);
HWY_EXPORT(SkinnyM4N2);
HWY_EXPORT(SkinnyM1N4);

void RunM6N4(const GemmArgs& a, float* b, float* v) { HWY_DYNAMIC_DISPATCH(SkinnyM6N4)(a, b, v); }
void RunM8N3(const GemmArgs& a, float* b, float* v) { HWY_DYNAMIC_DISPATCH(SkinnyM8N3)(a, b, v); }
void RunM4N2(const GemmArgs& a, float* b, float* v) { HWY_DYNAMIC_DISPATCH(SkinnyM4N2)(a, b, v); }
void RunM1N4(const GemmArgs& a, float* b, float* v) { HWY_DYNAMIC_DISPATCH(SkinnyM1N4)(a, b, v); }

// Converted activations, and their scales behind them, up to a line of memory.
std::size_t ActivationFloats(int m, int k) noexcept {
  const auto depth = static_cast<std::size_t>(k);
  const std::size_t scales = RoundUpTo(depth, kScaleBlock) / kScaleBlock;
  return RoundUpTo(static_cast<std::size_t>(m) * (RoundUpTo(depth, kSkinnyPad) + scales), 16);
}

// Then the rows of a D that is quantised.
std::size_t BufferBytes(int m, int n, int k, Epilogue epilogue) noexcept {
  const std::size_t values = epilogue == Epilogue::kGatedSiluQuant
                                 ? static_cast<std::size_t>(m) * (static_cast<std::size_t>(n) / 2)
                                 : 0;
  return (ActivationFloats(m, k) + values) * sizeof(float);
}

constexpr double kShareOfE4m3 = 0.6;  // of the FP32 rate, whatever the tile

class SkinnyKernel final : public ArgsKernel {
 public:
  using Function = void (*)(const GemmArgs&, float* buffer, float* values);

  SkinnyKernel(KernelDesc desc, KernelInfo info, Function function)
      : ArgsKernel(desc, std::move(info)), function_(function) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility shared = SimdWhy(p, StoresD::kEitherOrder); !shared.ok()) return shared;
    if (p.m > kSkinnyMaxRows) return Feasibility::Refuse("takes at most 16 rows");
    if (IsGroupedWeight(p.b.quant) && p.a.quant.type != QuantType::kB) {
      return Feasibility::Refuse("takes no scales of 128 elements of a column of B");
    }
    if (desc().tile_m == 1 && p.m > 1) return Feasibility::Refuse("takes one row only");
    if (p.b.order != Order::kColMajor && desc().tile_m > 6) {
      return Feasibility::Refuse("its tile is for B in column-major order, k contiguous");
    }
    if (p.b.order != Order::kColMajor && p.b.quant.type == QuantType::kK) {
      return Feasibility::Refuse("takes scales of each column's groups with k contiguous only");
    }
    if (p.b.order != Order::kColMajor && p.gate_order == GateOrder::kHalves) {
      return Feasibility::Refuse("takes gate and up one behind the other with k contiguous only");
    }
    return Feasibility::Ok();
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    WorkspaceSize size;
    size.partials = BufferBytes(p.m, p.n, p.k, p.epilogue);
    return size;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int) const noexcept override {
    const SimdCosts costs = CostsOf(p, info(), device, rates);
    // Beside its multiply-adds a tile loads each row and decodes each column: so many of them each
    // costs, for one vector. With E4M3 a row's scales and its second set of sums weigh most; large
    // tiles wait for columns that do not fit the first cache, but where they have a row or two:
    // then the columns that they read side by side make them the faster ones. Fitted to times at m
    // = 1, 2, 8 and 16.
    const double tiles = std::ceil(static_cast<double>(p.m) / desc().tile_m);
    const double rows = p.m / tiles, cols = desc().tile_n;
    double load = 0.5, decode = p.b.type == DataType::kFloat32 ? 0.0 : 1.0;
    double share = info().matrix_share;
    if (p.b.type == DataType::kFloat8_e4m3) {
      load = 2.25;
      decode = 0.2;
      share = kShareOfE4m3;
    } else {
      constexpr double kWait = 4.0, kRowsThatWait = 4.0;
      if (desc().tile_m >= 6)
        decode += (kWait - decode) * std::min(1.0, (rows - 1) / (kRowsThatWait - 1));
      if (p.b.type == DataType::kFloat32 && HasManyRegisters(SimdTargets())) share *= 0.8;
    }
    const double efficiency = rows * cols / (rows * cols + load * rows + decode * cols);
    const double compute_us = p.m * costs.row_us / (share * efficiency);
    // Loads wait and multiply-adds overlap in part: measured times lie along the root of squares.
    return std::max(info().launch_us, rates.launch_us) +
           std::sqrt(costs.memory_us * costs.memory_us + compute_us * compute_us) * costs.imbalance;
  }

  int Run(const GemmArgs& args, int, int, Workspace& workspace, cudaStream_t) override {
    const int m = args.Adesc.rows, k = args.Adesc.cols;
    const Epilogue epilogue = args.operation.epilogue;
    if (workspace.partials == nullptr ||
        workspace.partials_size < BufferBytes(m, args.Bdesc.cols, k, epilogue)) {
      return static_cast<int>(StatusCode::kResourceExhausted);
    }
    auto* const buffer = static_cast<float*>(workspace.partials);
    const bool quantised = epilogue == Epilogue::kGatedSiluQuant;
    float* const values = quantised ? buffer + ActivationFloats(m, k) : nullptr;
    function_(args, buffer, values);
    if (quantised) QuantizeRowsOfD(args, 0, m, values, args.operation.sm_budget);
    return 0;
  }

 private:
  Function function_;
};

}  // namespace

void AddCpuSimdSkinny(const DeviceInfo&, KernelList& kernels) {
  // Measured on two cores of a Xeon with AVX-512 at n = 4096, k = 8192: 0.90 to 0.97 of the read
  // rate at m = 1; the shares of the FP32 rate, with PredictUs's efficiency, at m = 8 and 16.
  const auto add = [&](const char* name, int rows, int cols, double matrix_share,
                       SkinnyKernel::Function function) {
    kernels.push_back(std::make_unique<SkinnyKernel>(SimdDesc(rows, cols),
                                                     SimdInfo(name, 0.9, matrix_share), function));
  };
  if (HasManyRegisters(SimdTargets())) {
    add("cpu_simd/skinny/m6n4", 6, 4, 0.85, RunM6N4);
    add("cpu_simd/skinny/m8n3", 8, 3, 0.7, RunM8N3);
    add("cpu_simd/skinny/m4n2", 4, 2, 0.42, RunM4N2);
  } else {
    add("cpu_simd/skinny/m1n4", 1, 4, 0.6, RunM1N4);
    add("cpu_simd/skinny/m4n2", 4, 2, 0.6, RunM4N2);
  }
}

}  // namespace culet
#endif  // HWY_ONCE
