#include "kernels/cpu/simd_quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_quantize.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_e4m3-inl.h"
#include "kernels/cpu/simd_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

template <DataType kType>
HWY_INLINE const void* From(const void* x, std::size_t i) {
  return static_cast<const std::byte*>(x) +
         i * (kType == DataType::kFloat32 ? sizeof(float) : sizeof(std::uint16_t));
}

template <DataType kType>
HWY_INLINE float LargestOfType(const void* x, std::size_t count) {
  const F32 d;
  VF32 largest = hn::Zero(d), nothing = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 value = LoadRow(d, kType, From<kType>(x, i), count - i);
    largest = hn::Max(largest, hn::Abs(value));
    nothing = hn::Add(nothing, hn::Sub(value, value));  // 0, or NaN from then on
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest)) + hn::GetLane(hn::SumOfLanes(d, nothing));
}

template <DataType kType>
HWY_INLINE void EncodeType(const void* x, float scale, std::size_t count, std::uint8_t* codes) {
  const F32 d;
  const VF32 divisor = hn::Set(d, scale);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 value = hn::Div(LoadRow(d, kType, From<kType>(x, i), count - i), divisor);
    StoreCodes(E4m3CodesOf(d, value), codes + i, count - i);
  }
}

float LargestOf(const void* x, DataType type, std::size_t count) {
  switch (type) {
    case DataType::kFloat16:
      return LargestOfType<DataType::kFloat16>(x, count);
    case DataType::kBfloat16:
      return LargestOfType<DataType::kBfloat16>(x, count);
    default:
      return LargestOfType<DataType::kFloat32>(x, count);
  }
}

// Of finite x / scale whose magnitude rounds to 448 at most.
void Encode(const void* x, DataType type, float scale, std::size_t count, std::uint8_t* codes) {
  switch (type) {
    case DataType::kFloat16:
      return EncodeType<DataType::kFloat16>(x, scale, count, codes);
    case DataType::kBfloat16:
      return EncodeType<DataType::kBfloat16>(x, scale, count, codes);
    default:
      return EncodeType<DataType::kFloat32>(x, scale, count, codes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/e4m3_group.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"

namespace culet {
namespace {

HWY_EXPORT(LargestOf);
HWY_EXPORT(Encode);

}  // namespace

float LargestMagnitude(const void* x, DataType type, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestOf)(x, type, count);
}

void EncodeE4m3(const void* x, DataType type, float scale, std::size_t count, std::uint8_t* codes) {
  // Beside a subnormal scale quotients are beyond the format, beside a NaN none is a number.
  if (scale >= std::numeric_limits<float>::min()) {
    HWY_DYNAMIC_DISPATCH(Encode)(x, type, scale, count, codes);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(LoadAsDouble(x, type, static_cast<std::int64_t>(i)));
    codes[i] = FloatToFloat8E4m3(value / scale);
  }
}

float QuantizeGroupOf(const float* x, std::size_t count, std::uint8_t* codes) {
  const float amax = LargestMagnitude(x, DataType::kFloat32, count);
  const float scale = ScaleOfE4m3Group(amax, !std::isnan(amax));
  EncodeE4m3(x, DataType::kFloat32, scale, count, codes);
  return scale;
}

void QuantizeRowsOfD(const GemmArgs& args, std::int64_t first, int rows, const float* values,
                     int threads) {
  constexpr std::int64_t kGroup = 128, kTaskGroups = 128;
  constexpr std::uint8_t kNan = 0x7f;
  const OutputQuant& w = args.operation.quant_d;
  const std::int64_t width = args.Ddesc.cols, groups = (width + kGroup - 1) / kGroup;
  const std::int64_t all = rows * groups;
  HostPool().Run(
      static_cast<int>((all + kTaskGroups - 1) / kTaskGroups),
      [&](int task, int) {
        const std::int64_t end = std::min(all, (task + 1) * kTaskGroups);
        for (std::int64_t at = task * kTaskGroups; at < end; ++at) {
          const std::int64_t row = at / groups, group = at % groups, col = group * kGroup;
          const auto count = static_cast<std::size_t>(std::min(kGroup, width - col));
          auto* const codes =
              static_cast<std::uint8_t*>(args.D) + IndexOf(args.Ddesc, first + row, col);
          const float scale = QuantizeGroupOf(values + row * width + col, count, codes);
          // The positive NaN, whatever the sign of what made it.
          if (std::isnan(scale)) std::fill_n(codes, count, kNan);
          static_cast<float*>(w.scales)[IndexOf(w.layout, first + row, group)] = scale;
        }
      },
      threads);
}

}  // namespace culet
#endif  // HWY_ONCE
