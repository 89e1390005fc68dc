// Rows picked from a table and written to a cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/rows.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstddef>

#include "base/e4m3_cache.h"
#include "kernels/cpu/simd_e4m3-inl.h"
#include "kernels/cpu/simd_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

void ConvertRow(const std::byte* from, DataType from_type, std::byte* to, DataType to_type,
                std::size_t count) {
  const F32 d;
  const std::size_t from_size = SizeOf(from_type), to_size = SizeOf(to_type);
  for (std::size_t i = 0; i < count; i += kLanes) {
    StoreRow(d, LoadRow(d, from_type, from + i * from_size, count - i), to_type, to + i * to_size,
             count - i);
  }
}

// E4m3CacheCode of each.
void EncodeHead(const float* from, float scale, std::uint8_t* to, std::size_t count) {
  const F32 d;
  const U32 du32;
  const VF32 divisor = hn::Set(d, scale), most = hn::Set(d, 448.0f);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 value = LoadRow(d, DataType::kFloat32, from + i, count - i);
    const VF32 quotient = hn::Div(value, divisor);
    // 0, or NaN of what is not finite.
    const VF32 nothing = hn::Sub(value, value);
    const auto is_nan = hn::Or(hn::IsNaN(nothing), hn::IsNaN(quotient));
    const VF32 within = hn::Max(hn::Min(quotient, most), hn::Neg(most));
    StoreCodes(hn::IfThenElse(hn::RebindMask(du32, is_nan), hn::Set(du32, std::uint32_t{kE4m3Nan}),
                              E4m3CodesOf(d, within)),
               to + i, count - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet {
HWY_EXPORT(ConvertRow);
HWY_EXPORT(EncodeHead);

namespace ops {
namespace {

constexpr std::int64_t kTaskElements = 16384;

template <class F>
void ForRows(std::int64_t rows, std::int64_t cols, F body) {
  const std::int64_t a_task = std::max<std::int64_t>(1, kTaskElements / cols);
  HostPool().Run(static_cast<int>((rows + a_task - 1) / a_task), [&](int task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * a_task);
    for (std::int64_t row = task * a_task; row < end; ++row) body(row);
  });
}

std::ptrdiff_t RowBytes(std::int64_t cols, DataType type) {
  return static_cast<std::ptrdiff_t>(cols) * static_cast<std::ptrdiff_t>(SizeOf(type));
}

}  // namespace

void PickRows(const void* table, DataType type, std::int64_t table_rows, std::int64_t cols,
              const std::int32_t* indices, float* out, std::int64_t rows, std::int64_t first_row,
              std::int64_t all_rows) {
  const std::ptrdiff_t row_bytes = RowBytes(cols, type);
  ForRows(rows, cols, [=](std::int64_t row) {
    const bool known = indices[row] >= 0 && indices[row] < all_rows;
    const std::int64_t index = indices[row] - first_row;
    if (!known || index < 0 || index >= table_rows) {
      std::fill_n(out + row * cols, cols, known ? 0 : std::numeric_limits<float>::quiet_NaN());
    } else {
      HWY_DYNAMIC_DISPATCH(ConvertRow)
      (static_cast<const std::byte*>(table) + index * row_bytes, type,
       reinterpret_cast<std::byte*>(out + row * cols), DataType::kFloat32,
       static_cast<std::size_t>(cols));
    }
  });
}

void KvWrite(const float* rows, const std::int32_t* slots, void* cache, DataType type,
             std::int64_t cache_rows, std::int64_t cols, std::int64_t m) {
  const std::ptrdiff_t row_bytes = RowBytes(cols, type);
  ForRows(m, cols, [=](std::int64_t row) {
    const std::int64_t slot = slots[row];
    if (slot < 0 || slot >= cache_rows) return;
    HWY_DYNAMIC_DISPATCH(ConvertRow)
    (reinterpret_cast<const std::byte*>(rows + row * cols), DataType::kFloat32,
     static_cast<std::byte*>(cache) + slot * row_bytes, type, static_cast<std::size_t>(cols));
  });
}

void KvWriteE4m3(const float* rows, const std::int32_t* slots, std::uint8_t* cache,
                 std::span<const float> scales, std::int64_t cache_rows, std::int64_t cols,
                 std::int64_t m) {
  const std::int64_t head = cols / static_cast<std::int64_t>(scales.size());
  ForRows(m, cols, [=](std::int64_t row) {
    const std::int64_t slot = slots[row];
    if (slot < 0 || slot >= cache_rows) return;
    for (std::size_t h = 0; h < scales.size(); ++h) {
      const std::int64_t at = static_cast<std::int64_t>(h) * head;
      HWY_DYNAMIC_DISPATCH(EncodeHead)
      (rows + row * cols + at, scales[h], cache + slot * cols + at, static_cast<std::size_t>(head));
    }
  });
}

void QuantizeRowsBy(float scale, const float* x, std::int64_t rows, std::int64_t cols,
                    std::uint8_t* values, float* scales) {
  ForRows(rows, cols, [=](std::int64_t row) {
    HWY_DYNAMIC_DISPATCH(EncodeHead)
    (x + row * cols, scale, values + row * cols, static_cast<std::size_t>(cols));
    scales[row] = scale;
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
