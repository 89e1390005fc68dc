// Element-wise operations.
#include <algorithm>
#include <cmath>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {
namespace {

constexpr std::size_t kChunk = 8192;  // elements a task: some microseconds

template <class F>
void ForChunks(std::size_t n, F body) {
  HostPool().Run(static_cast<int>((n + kChunk - 1) / kChunk), [&](int task, int) {
    const std::size_t first = static_cast<std::size_t>(task) * kChunk;
    body(first, std::min(n, first + kChunk));
  });
}

}  // namespace

void Add(const float* a, const float* b, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    for (; i < end; ++i) out[i] = a[i] + b[i];
  });
}

void Mul(const float* a, const float* b, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    for (; i < end; ++i) out[i] = a[i] * b[i];
  });
}

void Silu(const float* x, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    for (; i < end; ++i) out[i] = x[i] / (1 + std::exp(-x[i]));
  });
}

void SwiGlu(const float* gate, const float* up, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    for (; i < end; ++i) out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  });
}

void Cast(const void* x, DataType from, void* out, DataType to, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    for (; i < end; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      StoreFromDouble(out, to, at, LoadAsDouble(x, from, at));
    }
  });
}

}  // namespace culet::ops
