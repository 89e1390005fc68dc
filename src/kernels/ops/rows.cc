// Rows picked from a table and written to a cache.
#include <algorithm>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/row_float.h"

namespace culet::ops {
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

}  // namespace

void PickRows(const void* table, DataType type, std::int64_t table_rows, std::int64_t cols,
              const std::int32_t* indices, float* out, std::int64_t rows) {
  ForRows(rows, cols, [=](std::int64_t row) {
    const std::int64_t index = indices[row];
    if (index < 0 || index >= table_rows) {
      std::fill_n(out + row * cols, cols, std::numeric_limits<float>::quiet_NaN());
    } else {
      LoadFloats(table, type, index * cols, cols, out + row * cols);
    }
  });
}

void KvWrite(const float* rows, const std::int32_t* slots, void* cache, DataType type,
             std::int64_t cache_rows, std::int64_t cols, std::int64_t m) {
  ForRows(m, cols, [=](std::int64_t row) {
    const std::int64_t slot = slots[row];
    if (slot < 0 || slot >= cache_rows) return;
    StoreFloats(rows + row * cols, cache, type, slot * cols, cols);
  });
}

}  // namespace culet::ops
