// What becomes of FP32 sums: alpha, C, bias, the gate, and the one rounding to D's type. An element
// that is not finite is computed again in double precision, so that infinities and NaN are those of
// docs/numerics.md whatever a kernel's order of additions.
#if defined(CULET_SIMD_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CULET_SIMD_STORE_INL_H_
#undef CULET_SIMD_STORE_INL_H_
#else
#define CULET_SIMD_STORE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_types.h"
#include "culet/problem.h"
#include "kernels/cpu/simd_exact.h"
#include "kernels/cpu/simd_exp-inl.h"
#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/cpu/simd_problem.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// Elements [row, col .. col + count) as FP32, count <= kLanes; zeros behind them.
HWY_INLINE VF32 LoadRowOf(F32 d, const void* data, const MatrixLayout& layout, std::int64_t row,
                          std::int64_t col, std::size_t count) {
  if (HWY_LIKELY(layout.order == Order::kRowMajor)) {
    return LoadRow(d, layout.type, ElementAt(data, layout, row, col), count);
  }
  const std::size_t size = SizeOf(layout.type);
  alignas(64) std::byte buffer[kLanes * sizeof(float)] = {};
  for (std::size_t i = 0; i < std::min(count, kLanes); ++i) {
    std::memcpy(buffer + i * size, ElementAt(data, layout, row, col + static_cast<std::int64_t>(i)),
                size);
  }
  return LoadFull(d, layout.type, buffer);
}

// D[row, col .. col + count) = v, rounded once.
HWY_INLINE void StoreRowOf(F32 d, VF32 v, const GemmArgs& args, std::int64_t row, std::int64_t col,
                           std::size_t count) {
  const MatrixLayout& layout = args.Ddesc;
  const auto at = [&](std::int64_t column) {
    return const_cast<void*>(ElementAt(args.D, layout, row, column));
  };
  if (HWY_LIKELY(layout.order == Order::kRowMajor)) {
    return StoreRow(d, v, layout.type, at(col), count);
  }
  const std::size_t size = SizeOf(layout.type);
  alignas(64) std::byte buffer[kLanes * sizeof(float)];
  StoreFull(d, v, layout.type, buffer);
  for (std::size_t i = 0; i < std::min(count, kLanes); ++i) {
    std::memcpy(at(col + static_cast<std::int64_t>(i)), buffer + i * size, size);
  }
}

HWY_INLINE bool AllFinite(VF32 v) {
  const U32 du32;
  const VU32 magnitude = hn::And(hn::BitCast(du32, v), hn::Set(du32, 0x7fffffffu));
  return hn::AllTrue(du32, hn::Lt(magnitude, hn::Set(du32, 0x7f800000u)));
}

// The lanes of a vector of D that are not finite, in double precision.
struct ExactLanes {
  std::size_t count = 0;
  std::size_t lane[kLanes];
  double value[kLanes];
};

// exact(lane) of each of the first `count` lanes that is not finite. C may be D: before D is
// stored.
template <class F>
HWY_NOINLINE ExactLanes ExactOf(VF32 v, std::size_t count, F exact) {
  ExactLanes found;
  alignas(64) float lanes[kLanes];
  hn::Store(v, F32(), lanes);
  for (std::size_t i = 0; i < std::min(count, kLanes); ++i) {
    if (std::isfinite(lanes[i])) continue;
    found.lane[found.count] = i;
    found.value[found.count++] = exact(static_cast<std::int64_t>(i));
  }
  return found;
}

// D[row, col .. col + count) = v, rounded once; what is not finite as exact(lane).
template <class F>
HWY_INLINE void StoreFinite(F32 d, VF32 v, const GemmArgs& args, std::int64_t row, std::int64_t col,
                            std::size_t count, F exact) {
  if (HWY_LIKELY(AllFinite(v))) return StoreRowOf(d, v, args, row, col, count);
  const ExactLanes lanes = ExactOf(v, count, exact);
  StoreRowOf(d, v, args, row, col, count);
  for (std::size_t i = 0; i < lanes.count; ++i) {
    const std::int64_t at = col + static_cast<std::int64_t>(lanes.lane[i]);
    StoreFromDouble(const_cast<void*>(ElementAt(args.D, args.Ddesc, row, at)), args.Ddesc.type, 0,
                    lanes.value[i]);
  }
}

// alpha * sums + beta * C + bias, a vector at a time.
class Finish {
 public:
  HWY_INLINE Finish(const GemmArgs& args, std::int64_t row)
      : args_(args), row_(row), has_c_(args.beta != 0.0f) {
    const Bias& bias = args.operation.bias;
    if (bias.data == nullptr) return;
    if (bias.axis == Bias::Axis::kN) {
      columns_ = static_cast<const std::byte*>(bias.data);
    } else {
      adds_row_ = true;
      of_row_ = static_cast<float>(LoadAsDouble(bias.data, bias.type, row));
    }
  }

  // Of columns [column, column + left); lanes behind them are anything.
  HWY_INLINE VF32 operator()(F32 d, const float* HWY_RESTRICT sums, std::int64_t column,
                             std::size_t left) const {
    VF32 value = hn::Mul(hn::Set(d, args_.alpha), hn::LoadU(d, sums));
    if (has_c_) {
      value = hn::MulAdd(hn::Set(d, args_.beta),
                         LoadRowOf(d, args_.C, args_.Cdesc, row_, column, left), value);
    }
    if (columns_ != nullptr) {
      const DataType type = args_.operation.bias.type;
      value = hn::Add(
          value,
          LoadRow(d, type, columns_ + static_cast<std::size_t>(column) * SizeOf(type), left));
    }
    if (adds_row_) value = hn::Add(value, hn::Set(d, of_row_));
    return value;
  }

 private:
  const GemmArgs& args_;
  std::int64_t row_;
  bool has_c_;
  const std::byte* columns_ = nullptr;
  bool adds_row_ = false;
  float of_row_ = 0;
};

// D[row, col .. col + count) = alpha * sums + beta * C + bias, rounded once. `sums` may be read up
// to the next multiple of Lanes(d).
inline void StoreSums(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                      const float* HWY_RESTRICT sums, ExactElements& exact) {
  const F32 d;
  const Finish finish(args, row);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t left = count - i;
    const auto column = col + static_cast<std::int64_t>(i);
    StoreFinite(d, finish(d, sums + i, column, left), args, row, column, left,
                [&](std::int64_t lane) { return exact.Of(row, column + lane); });
  }
}

// Columns of a gated D that a strip of kScaleBlock columns of B makes.
inline constexpr std::size_t kGatedStrip = kScaleBlock / 2;

// The gated D[row, col .. col + count), count <= kGatedStrip, of its columns' sums: by
// eights as they lie in B; in halves `count` of gates, and those of ups from sums[ups]
// on. Rounded once to D, or to FP32 in `values`, the row of D that is quantised from there.
inline void StoreGated(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                       const float* HWY_RESTRICT sums, std::size_t ups, float* HWY_RESTRICT values,
                       ExactElements& exact) {
  const F32 d;
  const Finish finish(args, row);
  alignas(64) float gate[kGatedStrip + kLanes], up[kGatedStrip + kLanes];
  const auto finish_all = [&](const float* from, std::int64_t column, std::size_t columns,
                              float* to) HWY_ATTR {
    for (std::size_t i = 0; i < columns; i += kLanes) {
      hn::StoreU(finish(d, from + i, column + static_cast<std::int64_t>(i), columns - i), d,
                 to + i);
    }
  };
  if (args.operation.gate_order == GateOrder::kHalves) {
    finish_all(sums, col, count, gate);
    finish_all(sums + ups, args.Bdesc.cols / 2 + col, count, up);
  } else {
    constexpr std::size_t kEight = 8;
    alignas(64) float both[2 * kGatedStrip + kLanes];
    finish_all(sums, 2 * col, 2 * count, both);
    for (std::size_t i = 0; i < count; i += kEight) {
      std::memcpy(gate + i, both + 2 * i, kEight * sizeof(float));
      std::memcpy(up + i, both + 2 * i + kEight, kEight * sizeof(float));
    }
  }
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t left = count - i;
    const auto column = col + static_cast<std::int64_t>(i);
    const VF32 value = hn::Mul(SiluOf(d, hn::Load(d, gate + i)), hn::Load(d, up + i));
    const auto exact_of = [&](std::int64_t lane) { return exact.OfGated(row, column + lane); };
    if (values == nullptr) {
      StoreFinite(d, value, args, row, column, left, exact_of);
      continue;
    }
    float* const to = values + column;
    StoreRow(d, value, DataType::kFloat32, to, left);
    if (HWY_LIKELY(AllFinite(value))) continue;
    const ExactLanes lanes = ExactOf(value, left, exact_of);
    for (std::size_t j = 0; j < lanes.count; ++j) {
      StoreFromDouble(to, DataType::kFloat32, static_cast<std::int64_t>(lanes.lane[j]),
                      lanes.value[j]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
