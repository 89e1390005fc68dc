#include "kernels/cpu/simd_store.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_store.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

void StoreSumsOfRow(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                    const float* sums, ExactElements& exact) {
  StoreSums(args, row, col, count, sums, exact);
}

void RestoreSumsOfRow(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                      ExactElements& exact) {
  const F32 d;
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t left = count - i;
    const auto column = col + static_cast<std::int64_t>(i);
    const VF32 value = LoadRowOf(d, args.D, args.Ddesc, row, column, left);
    if (HWY_LIKELY(AllFinite(value))) continue;
    StoreFinite(d, value, args, row, column, left,
                [&](std::int64_t lane) { return exact.Of(row, column + lane); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace culet {

HWY_EXPORT(StoreSumsOfRow);
HWY_EXPORT(RestoreSumsOfRow);

void StoreRowOfSums(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                    const float* sums, ExactElements& exact) {
  HWY_DYNAMIC_DISPATCH(StoreSumsOfRow)(args, row, col, count, sums, exact);
}

void RestoreRow(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                ExactElements& exact) {
  HWY_DYNAMIC_DISPATCH(RestoreSumsOfRow)(args, row, col, count, exact);
}

}  // namespace culet
#endif  // HWY_ONCE
