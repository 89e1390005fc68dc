// cpu_simd/u4, /e2m1, /int8 and /e4m3: any number of rows, weights that are codes of 4 or 8 bits
// with scales and zero points of groups; rows that are not quantised.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_u4.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_u4-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

template <class Coding>
void CodesProduct(const GemmArgs& args, const U4Buffers& buffers) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  RunU4<kU4RowsOf32, Coding>(args, buffers);
#else
  RunU4<kU4RowsOf16, Coding>(args, buffers);
#endif
}

void U4Product(const GemmArgs& args, const U4Buffers& buffers) {
  switch (args.Bdesc.type) {
    case DataType::kUint4:
      return CodesProduct<U4Coding>(args, buffers);
    case DataType::kFloat4_e2m1:
      return CodesProduct<E2m1Coding>(args, buffers);
    case DataType::kFloat8_e4m3:
      return CodesProduct<E4m3Coding>(args, buffers);
    default:
      return CodesProduct<Int8Coding>(args, buffers);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <memory>
#include <utility>

#include "kernels/catalog.h"

namespace culet {
namespace {

HWY_EXPORT(U4Product);

class U4Kernel final : public ArgsKernel {
 public:
  U4Kernel(DataType type, const KernelDesc& desc, KernelInfo info)
      : ArgsKernel(desc, std::move(info)), type_(type) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (p.b.type != type_) {
      return Feasibility::Refuse(type_ == DataType::kUint4         ? "takes B of uint4 only"
                                 : type_ == DataType::kFloat4_e2m1 ? "takes B of float4_e2m1 only"
                                 : type_ == DataType::kFloat8_e4m3
                                     ? "takes B of float8_e4m3 only, and A in 16 or 32 bits"
                                     : "takes B of int8 only");
    }
    // The rest is what the families say of weights that are not quantised.
    GemmDesc plain = p;
    plain.b.type = DataType::kFloat32;
    plain.b.quant = {};
    if (const Feasibility base = Kernel::why(plain); !base.ok()) return base;
    if (const Feasibility shared = SimdWhy(plain); !shared.ok()) return shared;
    if (p.b.order != Order::kColMajor) {
      return Feasibility::Refuse("takes B in column-major order only, k contiguous");
    }
    const int size = p.b.quant.group_size;
    const bool steps = size > 0 && size % kU4Step == 0;
    const bool groups = p.b.quant.type == QuantType::kK && (steps || size == kU4SmallGroup);
    const bool blocks = p.b.quant.type == QuantType::kB && steps;
    if (!groups && !blocks && !IsWholeScale(p.b.quant)) {
      return Feasibility::Refuse(
          "takes scales of the matrix, a column, groups of 16 or a multiple of 32 elements of one, "
          "or blocks of such a multiple");
    }
    if (!IsSimdFloat(p.b.scale_type) && p.b.scale_type != DataType::kFloat8_ue8m0) {
      return Feasibility::Refuse("takes float32, float16, bfloat16 and UE8M0 scales only");
    }
    const DataType zero = p.b.zero_type;
    if (zero != DataType::kNull && zero != DataType::kUint4 && !IsSimdFloat(zero)) {
      return Feasibility::Refuse("takes zero points of uint4, float32, float16 and bfloat16 only");
    }
    return Feasibility::Ok();
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    const auto m = static_cast<std::size_t>(p.m), k = static_cast<std::size_t>(p.k);
    WorkspaceSize size;
    size.partials = (U4SharedFloats(m, k) +
                     static_cast<std::size_t>(Threads(p.sm_budget)) * Own(p.b.quant, p.m, p.k)) *
                    sizeof(float);
    return size;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int) const noexcept override {
    const SimdCosts costs = CostsOf(p, info(), device, rates);
    // A vector of weights costs about two multiply-adds to decode, without the look-up twice that.
    const double decode = desc().tile_m == kU4RowsOf32 ? 2.0 : 3.5;
    const double tiles = std::ceil(static_cast<double>(p.m) / desc().tile_m);
    const double rows = p.m / tiles;
    const double efficiency = rows / (rows + decode);
    const double compute_us = p.m * costs.row_us / (info().matrix_share * efficiency);
    return std::max(info().launch_us, rates.launch_us) +
           std::sqrt(costs.memory_us * costs.memory_us + compute_us * compute_us) * costs.imbalance;
  }

  int Run(const GemmArgs& args, int, int, Workspace& workspace, cudaStream_t) override {
    const int m = args.Adesc.rows, k = args.Adesc.cols;
    const std::size_t shared =
        U4SharedFloats(static_cast<std::size_t>(m), static_cast<std::size_t>(k));
    const std::size_t own = Own(args.operation.quant_b, m, k);
    const std::size_t floats = workspace.partials_size / sizeof(float);
    if (workspace.partials == nullptr || floats < shared + own) {
      return static_cast<int>(StatusCode::kResourceExhausted);
    }
    // A workspace made for fewer threads than there are now limits them.
    auto* const data = static_cast<float*>(workspace.partials);
    const auto fitting = static_cast<int>(std::min<std::size_t>((floats - shared) / own, 1 << 16));
    HWY_DYNAMIC_DISPATCH(U4Product)
    (args, {data, data + shared, std::min(fitting, Threads(args.operation.sm_budget))});
    return 0;
  }

 private:
  static int Threads(int sm_budget) noexcept {
    const int threads = HostThreads();
    return sm_budget > 0 ? std::min(sm_budget, threads) : threads;
  }
  static std::size_t Own(const QuantDesc& quant, int m, int k) noexcept {
    const auto group = static_cast<std::size_t>(ScaleGroupOf(quant, 1, k).k);
    return U4ThreadFloats(static_cast<std::size_t>(m),
                          (static_cast<std::size_t>(k) + group - 1) / group);
  }

  DataType type_;
};

}  // namespace

void AddCpuSimdU4(const DeviceInfo&, KernelList& kernels) {
  const bool many = (SimdTargets() & (HWY_AVX3 | HWY_AVX3_DL)) != 0;
  KernelDesc desc = SimdDesc(many ? kU4RowsOf32 : kU4RowsOf16, kU4Cols);
  desc.zero_points = true;
  desc.any_epilogue = desc.gate_halves = false;
  struct Named {
    DataType type;
    const char* name;
  };
  for (const Named& each :
       {Named{DataType::kUint4, "cpu_simd/u4"}, Named{DataType::kFloat4_e2m1, "cpu_simd/e2m1"},
        Named{DataType::kInt8, "cpu_simd/int8"}, Named{DataType::kFloat8_e4m3, "cpu_simd/e4m3"}}) {
    kernels.push_back(std::make_unique<U4Kernel>(each.type, desc, SimdInfo(each.name, 0.9, 0.8)));
  }
}

}  // namespace culet
#endif  // HWY_ONCE
