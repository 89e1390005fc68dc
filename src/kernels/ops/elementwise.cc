// Element-wise operations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/elementwise.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_exp-inl.h"
#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/ops/gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {
namespace {

// out[i] = function(a[i], b[i]); out may be a or b.
template <class F>
HWY_INLINE void ForVectors(const float* a, const float* b, float* out, std::size_t n, F function) {
  const F32 d;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(function(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i == n) return;
  const VF32 last = function(d, LoadRow(d, DataType::kFloat32, a + i, n - i),
                             LoadRow(d, DataType::kFloat32, b + i, n - i));
  StoreRow(d, last, DataType::kFloat32, out + i, n - i);
}

}  // namespace

void AddRange(const float* a, const float* b, float* out, std::size_t n) {
  ForVectors(a, b, out, n, [](F32, VF32 x, VF32 y) { return hn::Add(x, y); });
}
void MulRange(const float* a, const float* b, float* out, std::size_t n) {
  ForVectors(a, b, out, n, [](F32, VF32 x, VF32 y) { return hn::Mul(x, y); });
}
void SiluRange(const float* a, const float*, float* out, std::size_t n) {
  ForVectors(a, a, out, n, [](F32 d, VF32 x, VF32) { return SiluOf(d, x); });
}
void SwiGluRange(const float* a, const float* b, float* out, std::size_t n) {
  ForVectors(a, b, out, n, [](F32 d, VF32 x, VF32 y) { return hn::Mul(SiluOf(d, x), y); });
}

void GeGluRange(const float* a, const float* b, float* out, std::size_t n) {
  ForVectors(a, b, out, n, [](F32 d, VF32 x, VF32 y) { return hn::Mul(GeluOf(d, x), y); });
}
void ClampedSwiGluRange(const float* a, const float* b, float limit, float slope, float* out,
                        std::size_t n) {
  ForVectors(a, b, out, n, [=](F32 d, VF32 x, VF32 y) {
    const VF32 most = hn::Set(d, limit), least = hn::Set(d, -limit), by = hn::Set(d, slope);
    // Comparisons that a NaN fails, so that it stays one.
    const VF32 gate = hn::IfThenElse(hn::Gt(x, most), most, x);
    VF32 up = hn::IfThenElse(hn::Gt(y, most), most, y);
    up = hn::IfThenElse(hn::Lt(y, least), least, up);
    return hn::Mul(hn::Div(SiluOf(d, hn::Mul(by, gate)), by), hn::Add(up, hn::Set(d, 1.0f)));
  });
}
void SigmoidGateRange(const float* a, const float* b, float* out, std::size_t n) {
  ForVectors(a, b, out, n, [](F32 d, VF32 x, VF32 y) {
    // By exp(-|y|), which never overflows.
    const VF32 one = hn::Set(d, 1.0f), power = ExpOf(d, hn::Neg(hn::Abs(y)));
    const VF32 share = hn::IfThenElse(hn::Lt(y, hn::Zero(d)), power, one);
    return hn::Mul(x, hn::Div(share, hn::Add(one, power)));
  });
}
void ScaleByRange(const float* a, float by, float* out, std::size_t n) {
  ForVectors(a, a, out, n, [by](F32 d, VF32 x, VF32) { return hn::Mul(x, hn::Set(d, by)); });
}
void SoftCapRange(const float* a, float cap, float* out, std::size_t n) {
  ForVectors(a, a, out, n, [cap](F32 d, VF32 x, VF32) { return SoftCapOf(d, x, cap); });
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/row_parts.h"

namespace culet {
HWY_EXPORT(AddRange);
HWY_EXPORT(MulRange);
HWY_EXPORT(SiluRange);
HWY_EXPORT(SwiGluRange);
HWY_EXPORT(GeGluRange);
HWY_EXPORT(ClampedSwiGluRange);
HWY_EXPORT(SigmoidGateRange);
HWY_EXPORT(ScaleByRange);
HWY_EXPORT(SoftCapRange);

namespace ops {
namespace {

// Elements a task: some microseconds, as long as waking another thread takes.
constexpr std::size_t kChunk = 16384;

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
    HWY_DYNAMIC_DISPATCH(AddRange)(a + i, b + i, out + i, end - i);
  });
}
void Mul(const float* a, const float* b, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(MulRange)(a + i, b + i, out + i, end - i);
  });
}
void Silu(const float* x, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(SiluRange)(x + i, x + i, out + i, end - i);
  });
}
void SwiGlu(const float* gate, const float* up, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(SwiGluRange)(gate + i, up + i, out + i, end - i);
  });
}

void GeGlu(const float* gate, const float* up, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(GeGluRange)(gate + i, up + i, out + i, end - i);
  });
}
void ClampedSwiGlu(const float* gate, const float* up, float limit, float slope, float* out,
                   std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(ClampedSwiGluRange)(gate + i, up + i, limit, slope, out + i, end - i);
  });
}
void SigmoidGate(const float* x, const float* gate, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(SigmoidGateRange)(x + i, gate + i, out + i, end - i);
  });
}
void Scale(const float* x, float by, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(ScaleByRange)(x + i, by, out + i, end - i);
  });
}
void SoftCap(const float* x, float cap, float* out, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(SoftCapRange)(x + i, cap, out + i, end - i);
  });
}

void SwiGluElements(const float* gate, const float* up, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(SwiGluRange)(gate, up, out, n);
}

void Cast(const void* x, DataType from, void* out, DataType to, std::size_t n) {
  ForChunks(n, [=](std::size_t i, std::size_t end) {
    for (; i < end; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      StoreFromDouble(out, to, at, LoadAsDouble(x, from, at));
    }
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
