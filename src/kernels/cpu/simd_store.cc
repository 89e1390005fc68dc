#include "kernels/cpu/simd_store.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_store.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

void StoreSumsOfRow(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                    const float* sums) {
  StoreSums(args, row, col, count, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace culet {

HWY_EXPORT(StoreSumsOfRow);

void StoreRowOfSums(const GemmArgs& args, std::int64_t row, std::int64_t col, std::size_t count,
                    const float* sums) {
  HWY_DYNAMIC_DISPATCH(StoreSumsOfRow)(args, row, col, count, sums);
}

}  // namespace culet
#endif  // HWY_ONCE
