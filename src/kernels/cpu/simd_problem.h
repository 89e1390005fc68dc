// What the SIMD families share before any vector is touched: which problems they take, and how
// many threads may work.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/problem.h"
#include "culet/scratch.h"

namespace culet {

/// Elements along k (and along n for B) that share a scale.
inline constexpr int kScaleBlock = 128;

constexpr bool IsSimdFloat(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

/// Whether a scale holds for all of K.
constexpr bool IsWholeScale(const QuantDesc& quant) noexcept {
  return quant.type == QuantType::kTensor || quant.type == QuantType::kRow;
}

/// D as a family stores it: in rows, or in either order where that costs nothing.
enum class StoresD { kRows, kEitherOrder };

/// Whether each column of B has scales of its own within K, as the operands of a weight's gradient
/// have.
constexpr bool IsGroupedWeight(const QuantDesc& quant) noexcept {
  return quant == QuantDesc{QuantType::kK, kScaleBlock};
}

/// The preconditions of every SIMD family; what a family adds is its own.
constexpr Feasibility SimdWhy(const GemmDesc& p, StoresD stores = StoresD::kRows) noexcept {
  const bool quantised = p.epilogue == Epilogue::kGatedSiluQuant;
  const auto absent_or_float = [](DataType type) {
    return type == DataType::kNull || IsSimdFloat(type);
  };
  if (p.b.type == DataType::kFloat8_e4m3 || p.a.type == DataType::kFloat8_e4m3) {
    if (p.a.type != p.b.type) return Feasibility::Refuse("takes E4M3 only for both A and B");
    if (IsWholeScale(p.a.quant) != IsWholeScale(p.b.quant)) {
      return Feasibility::Refuse("takes scales of blocks only for both A and B");
    }
    constexpr QuantDesc kLine{QuantType::kK, kScaleBlock}, kBlock{QuantType::kB, kScaleBlock};
    // Scales of the other operand's shape are those of a problem that was transposed.
    const bool exchanged =
        stores == StoresD::kEitherOrder && p.a.quant == kBlock && p.b.quant == kLine;
    if (!IsWholeScale(p.a.quant) && p.a.quant != kLine && !exchanged) {
      return Feasibility::Refuse(
          "E4M3 A needs one scale for 1 x 128 elements, for a row, or for the whole matrix");
    }
    if (!IsWholeScale(p.b.quant) && !IsGroupedWeight(p.b.quant) && p.b.quant != kBlock &&
        !exchanged) {
      return Feasibility::Refuse(
          "E4M3 B needs one scale for 128 x 128 elements, for 128 of a column, for a column, or "
          "for the whole matrix");
    }
    if (p.a.scale_type != DataType::kFloat32 || p.b.scale_type != DataType::kFloat32) {
      return Feasibility::Refuse("takes float32 scales only");
    }
  } else {
    if (!IsSimdFloat(p.a.type) || !IsSimdFloat(p.b.type)) {
      return Feasibility::Refuse("takes float32, float16, bfloat16 and float8_e4m3 operands only");
    }
    if (p.a.quant != QuantDesc{} || p.b.quant != QuantDesc{}) {
      return Feasibility::Refuse("takes scales with E4M3 operands only");
    }
  }
  if (!IsSimdFloat(p.d.type) && !quantised) {
    return Feasibility::Refuse("writes float32, float16 and bfloat16 only");
  }
  if (!absent_or_float(p.c.type) || !absent_or_float(p.type_bias)) {
    return Feasibility::Refuse("reads C and bias as float32, float16 or bfloat16 only");
  }
  if (IsGated(p.epilogue) && p.d.order != Order::kRowMajor) {
    return Feasibility::Refuse("writes a gated D in row-major order only");
  }
  if (stores == StoresD::kEitherOrder) return Feasibility::Ok();
  if (p.d.order != Order::kRowMajor) return Feasibility::Refuse("writes D in row-major order only");
  if (p.c.type != DataType::kNull && p.c.order != Order::kRowMajor) {
    return Feasibility::Refuse("reads C in row-major order only");
  }
  return Feasibility::Ok();
}

/// The scales of one operand, by its elements.
class ScaleView {
 public:
  static ScaleView OfA(const GemmArgs& args) noexcept {
    const MatrixLayout& u = args.Udesc;
    return {args.U, ScaleGroupOf(args.operation.quant_a, args.Adesc.rows, args.Adesc.cols),
            u.order == Order::kRowMajor ? u.ld : 1, u.order == Order::kRowMajor ? 1 : u.ld};
  }
  static ScaleView OfB(const GemmArgs& args) noexcept {
    const MatrixLayout& v = args.Vdesc;
    return {args.V, ScaleGroupOf(args.operation.quant_b, args.Bdesc.cols, args.Bdesc.rows),
            v.order == Order::kRowMajor ? 1 : v.ld, v.order == Order::kRowMajor ? v.ld : 1};
  }

  /// The scale of element k of row (B: column) `outer`.
  float at(std::int64_t outer, std::int64_t k) const noexcept { return *from(outer, k); }
  const float* from(std::int64_t outer, std::int64_t k) const noexcept {
    return data_ + outer / group_.outer * outer_stride_ + k / group_.k * k_stride_;
  }
  /// Floats between the scales of k and k + kScaleBlock; 0 where one holds for all of K.
  std::int64_t block_step() const noexcept { return group_.k == kScaleBlock ? k_stride_ : 0; }

 private:
  ScaleView(const void* data, ScaleGroup group, std::int64_t outer_stride,
            std::int64_t k_stride) noexcept
      : data_(static_cast<const float*>(data)),
        group_(group),
        outer_stride_(outer_stride),
        k_stride_(k_stride) {}

  const float* data_;
  ScaleGroup group_;
  std::int64_t outer_stride_, k_stride_;
};

/// B's scales as the families apply them: those of blocks and of the whole matrix within K, one
/// for each column to the sums, those of groups of each column to the sums of a group.
class WeightScales {
 public:
  /// `groups_apart`: the family multiplies the sums of each group of K by scales of their own.
  explicit WeightScales(const GemmArgs& args, bool groups_apart = false) noexcept
      : view_(ScaleView::OfB(args)),
        by_column_(args.operation.quant_b.type == QuantType::kRow),
        by_group_(groups_apart && IsGroupedWeight(args.operation.quant_b)) {}

  /// The scale of column `col` at k = 0; the one of the i-th block of K is step() * i floats on.
  const float* within_k(std::int64_t col) const noexcept {
    static constexpr float kOne = 1.0f;
    return by_column_ || by_group_ ? &kOne : view_.from(col, 0);
  }
  std::int64_t step() const noexcept { return by_column_ || by_group_ ? 0 : view_.block_step(); }

  /// Whether each column has scales of its own within K: CopyGroup gives those of the group of `k`.
  bool by_group() const noexcept { return by_group_; }
  void CopyGroup(std::int64_t col, std::size_t count, std::int64_t k,
                 float* scales) const noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      scales[i] = view_.at(col + static_cast<std::int64_t>(i), k);
    }
  }

  /// Multiplies the sums of columns [col, col + count) by what is left.
  void Apply(std::int64_t col, std::size_t count, float* sums) const noexcept {
    if (!by_column_) return;
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] *= view_.at(col + static_cast<std::int64_t>(i), 0);
    }
  }

 private:
  ScaleView view_;
  bool by_column_, by_group_;
};

/// What limits a product's time on the host, in microseconds, each as if alone.
struct SimdCosts {
  double memory_us;  ///< moving every operand once, at the kernel's share of the read rate
  double row_us;     ///< the multiply-adds of one row of D, at the whole FP32 rate
  double imbalance;  ///< >= 1: threads that idle in the last round of strips
};

inline SimdCosts CostsOf(const GemmDesc& p, const KernelInfo& info, const DeviceInfo& device,
                         const HardwareRates& rates) noexcept {
  constexpr double kPerUs = 1e3;  // 1e9 a second, as a number a microsecond
  const double threads = p.sm_budget > 0 ? std::min(p.sm_budget, device.units) : device.units;
  const double share = threads / std::max(1, device.units);
  const double strips = (p.n + kScaleBlock - 1) / kScaleBlock;
  SimdCosts costs;
  // Rows of a D that is quantised are written and read as FP32 before.
  const double between =
      p.epilogue == Epilogue::kGatedSiluQuant ? 2.0 * sizeof(float) * p.m * ColumnsOfD(p) : 0.0;
  // One thread draws more than its share of the memory's rate: about double, up to all of it.
  costs.memory_us = (MinimumBytes(p) + between) /
                    (rates.read_gbps * info.bandwidth_share * std::min(1.0, 2 * share) * kPerUs);
  costs.row_us = 2.0 * p.n * p.k / (rates.gflops * share * kPerUs);
  costs.imbalance = std::ceil(strips / threads) * threads / strips;
  return costs;
}

constexpr std::size_t RoundUpTo(std::size_t value, std::size_t step) noexcept {
  return (value + step - 1) / step * step;
}

/// What both families state of a kernel whose tile is rows x cols of D.
inline KernelDesc SimdDesc(int rows, int cols) {
  KernelDesc desc;
  desc.backend = Backend::kNative;
  desc.tile_m = rows;
  desc.tile_n = cols;
  desc.determinism = Determinism::kRepeatable;
  desc.any_epilogue = true;
  desc.gate_halves = true;
  return desc;
}

inline KernelInfo SimdInfo(const char* name, double bandwidth_share, double matrix_share) {
  KernelInfo info;
  info.name = name;
  info.bandwidth_share = bandwidth_share;
  info.matrix_share = matrix_share;
  info.launch_us = 4;  // two fork-joins
  return info;
}

}  // namespace culet
