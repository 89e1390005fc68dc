// The inputs, outputs and FP64 references of sm90_bench, on the device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "bench/sm90_bench.h"

#define CHECK(x)                                                                           \
  do {                                                                                     \
    cudaError_t e_ = (x);                                                                  \
    if (e_ != cudaSuccess) {                                                               \
      std::printf("CUDA error %s in line %d: %s\n", #x, __LINE__, cudaGetErrorString(e_)); \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

namespace culet::bench {
namespace {

enum class Fill { kNormal, kIntegers };

__device__ uint32_t Hash(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return static_cast<uint32_t>(x);
}
__device__ float Normal(uint64_t seed) {
  const float u = (Hash(seed * 2) + 1.0f) * 2.3283064e-10f, v = Hash(seed * 2 + 1) * 2.3283064e-10f;
  return sqrtf(-2.0f * logf(fminf(u, 1.0f))) * cospif(2.0f * v);
}

using sm90::EpilogueKind;
using sm90::FormatInfo;
using sm90::OutputType;

bool HasBlockScales(const FormatInfo& format) { return format.sums == sm90::Sums::kBlockScaled; }
bool HasRowScales(const FormatInfo& format) {
  return format.element_bytes == 1 && !HasBlockScales(format);
}

// How an operand's elements are stored.
enum class Element { kE4m3, kBf16, kF16 };
Element ElementOf(const FormatInfo& format) {
  return format.element_bytes == 1            ? Element::kE4m3
         : format.type == DataType::kBfloat16 ? Element::kBf16
                                              : Element::kF16;
}

__device__ void Put(Element type, void* out, int64_t at, float v) {
  if (type == Element::kE4m3)
    static_cast<__nv_fp8_e4m3*>(out)[at] = __nv_fp8_e4m3(v);
  else if (type == Element::kBf16)
    static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16(v);
  else
    static_cast<__half*>(out)[at] = __float2half(v);
}
__device__ float Get(Element type, const void* in, int64_t at) {
  if (type == Element::kE4m3) return float(static_cast<const __nv_fp8_e4m3*>(in)[at]);
  if (type == Element::kBf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(in)[at]);
  return __half2float(static_cast<const __half*>(in)[at]);
}
__device__ float Get(OutputType type, const void* in, int64_t at) {
  if (type == OutputType::kF32) return static_cast<const float*>(in)[at];
  return Get(type == OutputType::kBf16 ? Element::kBf16 : Element::kF16, in, at);
}

// One block a (row group x block_k of k): rows_per_scale is 1 (A) or 128 (B). Values rounded to
// BF16; where there are scales, quantised as amax / 448 of the group. Normal values have the
// standard deviation `spread`.
__global__ void FillOperand(Element type, void* out, int64_t ld, float* scales, int scale_row,
                            int scale_block, int rows, int k, int block_k, int rows_per_scale,
                            bool integers, float spread, uint64_t seed) {
  const int kb = blockIdx.y, group = blockIdx.x, k0 = kb * block_k;
  const int first = group * rows_per_scale, last = min(rows, first + rows_per_scale);
  __shared__ float amax;
  if (threadIdx.x == 0) amax = 1e-4f;
  __syncthreads();
  if (!integers && scales != nullptr) {
    float most = 0.0f;
    for (int64_t i = threadIdx.x; i < int64_t(last - first) * block_k; i += blockDim.x) {
      const int r = first + int(i / block_k), c = k0 + int(i % block_k);
      if (c < k)
        most = fmaxf(most,
                     fabsf(__bfloat162float(__float2bfloat16(Normal(seed + uint64_t(r) * k + c)))));
    }
    for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(&amax), __float_as_int(most));
    __syncthreads();
  }
  const float scale = scales == nullptr ? 1.0f
                      : integers ? exp2f(float(int(Hash(seed + 77 + group * 131 + kb) % 3) - 1))
                                 : amax / 448.0f;
  for (int64_t i = threadIdx.x; i < int64_t(last - first) * block_k; i += blockDim.x) {
    const int r = first + int(i / block_k), c = k0 + int(i % block_k);
    if (c >= k) continue;
    const uint64_t at = seed + uint64_t(r) * k + c;
    Put(type, out, int64_t(r) * ld + c,
        integers ? float(int(Hash(at) % 7) - 3)
                 : __bfloat162float(__float2bfloat16(Normal(at))) *
                       (scales == nullptr ? spread : 1.0f / scale));
  }
  if (threadIdx.x == 0 && scales != nullptr)
    scales[group * scale_row + kb * scale_block] = integers ? scale : scale * spread;
}

// C or a bias: small integers, which all types hold.
__global__ void FillAddend(OutputType type, void* out, int64_t count, uint64_t seed) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  const float v = float(int(Hash(seed + i) % 31) - 15);
  if (type == OutputType::kF32)
    static_cast<float*>(out)[i] = v;
  else
    Put(type == OutputType::kBf16 ? Element::kBf16 : Element::kF16, out, i, v);
}

// Element (r, c) of the product with its scales, C and bias; in all lanes.
__device__ double Product(const Problem& p, Element type, bool block_scales, int r, int c) {
  double sum = 0;
  for (int i = threadIdx.x % 32; i < p.k; i += 32) {
    const int kb = i / 128;
    double v = double(Get(type, p.a, int64_t(r) * p.lda + i)) *
               double(Get(type, p.b, int64_t(c) * p.ldb + i));
    if (block_scales)
      v *= double(p.scale_a[r * p.scale_a_row + kb * p.scale_a_block]) *
           double(p.scale_b[(c / 128) * p.scale_b_column + kb * p.scale_b_block]);
    sum += v;
  }
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
  const sm90::EpilogueParams& e = p.epilogue;
  sum *= double(p.alpha);
  if (e.scale_a != nullptr) sum *= double(e.scale_a[r * e.scale_a_step]);
  if (e.scale_b != nullptr) sum *= double(e.scale_b[c * e.scale_b_step]);
  if (e.c != nullptr) sum += double(e.beta) * Get(e.c_type, e.c, r * e.ldc + c);
  if (e.bias != nullptr)
    sum += Get(e.bias_type, e.bias, int64_t(c) * e.bias_step + int64_t(r) * e.bias_row_step);
  return sum;
}

// Elements of D. `gated`: column c of D is silu(gate) * up of two columns of the product.
__global__ void Reference(Problem p, Element type, bool block_scales, bool gated, const int* rows,
                          const int* columns, int row_count, int column_count, double* out) {
  const int index = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (index >= row_count * column_count) return;
  const int r = rows[index / column_count], c = columns[index % column_count];
  double value;
  if (gated) {
    const int up_column = p.epilogue.up_column, gate = up_column != 0 ? c : c / 8 * 16 + c % 8;
    const double x = Product(p, type, block_scales, r, gate);
    value = x / (1 + exp(-x)) *
            Product(p, type, block_scales, r, gate + (up_column != 0 ? up_column : 8));
  } else {
    value = Product(p, type, block_scales, r, c);
  }
  if (threadIdx.x % 32 == 0) out[index] = value;
}

// Elements that still hold the poison, and guard elements (around the matrix, and between n and
// ldd) that no longer do.
template <class Word>
__global__ void Scan(const Word* d, int m, int n, int64_t ldd, int64_t guard, unsigned* unwritten,
                     unsigned* broken) {
  constexpr Word kPoison = static_cast<Word>(~Word{0});
  const int64_t total = guard + int64_t(m) * ldd + guard;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < total;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t at = i - guard;
    const bool inside = at >= 0 && at < int64_t(m) * ldd && at % ldd < n;
    if (inside && d[i] == kPoison) atomicAdd(unwritten, 1u);
    if (!inside && d[i] != kPoison) atomicAdd(broken, 1u);
  }
}

template <class T>
T* Allocate(size_t count) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, count * sizeof(T) + 256));
  return static_cast<T*>(p);
}

constexpr int64_t kGuard = 4096;

// What a general epilogue adds, and where to.
struct Extras {
  EpilogueKind kind = EpilogueKind::kGeneral;
  OutputType d = OutputType::kBf16;
  bool c = false, bias = false, bias_of_rows = false;
  OutputType c_type = OutputType::kBf16, bias_type = OutputType::kBf16;
  float alpha = 1;      // without C and bias
  bool halves = false;  // gate's columns in front of up's, not by eights
};

// A problem with its own memory.
struct Data {
  Problem p;
  const FormatInfo& format;
  uint8_t* d_base = nullptr;
  std::vector<void*> owned;
  int element = 2;  // bytes of D's
  int columns;      // of D
  bool gated, quantised;

  template <class T>
  T* Own(size_t count) {
    T* const memory = Allocate<T>(count);
    owned.push_back(memory);
    return memory;
  }

  Data(const FormatInfo& format, int m, int n, int k, Fill fill, bool column_major_scales, int pad,
       uint64_t seed, const Extras& extras = {})
      : format(format),
        columns(sm90::IsGated(extras.kind) ? n / 2 : n),
        gated(sm90::IsGated(extras.kind)),
        quantised(extras.kind == EpilogueKind::kGatedQuant) {
    const Element type = ElementOf(format);
    const int bytes = format.element_bytes, block_k = HasBlockScales(format) ? 128 : k;
    const int blocks = (k + block_k - 1) / block_k;
    const int rows_b = HasBlockScales(format) ? 128 : 1, groups_b = (n + rows_b - 1) / rows_b;
    const bool scaled = bytes == 1, integers = fill == Fill::kIntegers;
    p.m = m, p.n = n, p.k = k;
    // Rows of 16 bytes, whatever k.
    const int aligned_k = (k * bytes + 15) / 16 * 16 / bytes;
    p.lda = aligned_k + pad * 16 / bytes, p.ldb = aligned_k + pad * 32 / bytes;
    p.ldd = (columns + 15) / 16 * 16 + pad * 16;
    p.scale_a_row = column_major_scales ? 1 : blocks;
    p.scale_a_block = column_major_scales ? m + pad * 3 : 1;
    p.scale_b_column = blocks;
    p.scale_b_block = 1;
    auto* a = Own<uint8_t>(size_t(m) * p.lda * bytes);
    auto* b = Own<uint8_t>(size_t(n) * p.ldb * bytes);
    // 0x7F is NaN in E4M3, 0x7FFF in the others: padding must never reach a result.
    CHECK(cudaMemset(a, bytes == 1 ? 0x7F : 0xFF, size_t(m) * p.lda * bytes));
    CHECK(cudaMemset(b, bytes == 1 ? 0x7F : 0xFF, size_t(n) * p.ldb * bytes));
    float* const sa = scaled ? Own<float>(size_t(m + pad * 3) * blocks) : nullptr;
    float* const sb = scaled ? Own<float>(size_t(groups_b) * blocks) : nullptr;
    // Gates as a model has them, not of a deviation of sqrt(k): what they cost may depend on it.
    const float spread = gated ? 1.0f / std::sqrt(float(k)) : 1.0f;
    // Rows are along x: a vocabulary has more than y takes.
    FillOperand<<<dim3(m, blocks), 128>>>(type, a, p.lda, sa, p.scale_a_row, p.scale_a_block, m, k,
                                          block_k, 1, integers, 1.0f, seed);
    FillOperand<<<dim3(groups_b, blocks), 512>>>(type, b, p.ldb, sb, p.scale_b_column,
                                                 p.scale_b_block, n, k, block_k, rows_b, integers,
                                                 spread, seed + (1ull << 40));
    CHECK(cudaGetLastError());
    p.a = a, p.b = b, p.scale_a = sa, p.scale_b = sb;
    sm90::EpilogueParams& e = p.epilogue;
    if (HasRowScales(format)) {
      e.scale_a = sa, e.scale_b = sb;
      e.scale_a_step = e.scale_b_step = 1;
    }
    e.d_type = extras.d;
    if (extras.halves) e.up_column = n / 2;
    element = quantised ? 1 : sm90::BytesOf(extras.d);
    if (quantised) {
      const int groups = (columns + 127) / 128;
      e.d_scale = Own<float>(size_t(m) * groups);
      e.d_scale_row = column_major_scales ? 1 : groups;
      e.d_scale_block = column_major_scales ? m : 1;
      CHECK(cudaMemset(e.d_scale, 0xFF, size_t(m) * groups * 4));
    }
    d_base = Own<uint8_t>((size_t(m) * p.ldd + 2 * kGuard) * element);
    p.d = d_base + kGuard * element;
    if (extras.c) {
      e.c_type = extras.c_type;
      e.ldc = (n + 7) / 8 * 8 + 8;  // rows at multiples of 16 bytes, as kernels ask for
      e.beta = -0.5f;
      const int64_t count = int64_t(m) * e.ldc;
      void* const c = Own<float>(count);
      FillAddend<<<int(count + 255) / 256, 256>>>(e.c_type, c, count, seed + 5);
      e.c = c;
    }
    if (extras.bias) {
      e.bias_type = extras.bias_type;
      e.bias_step = extras.bias_of_rows ? 0 : 1;
      e.bias_row_step = 1 - e.bias_step;
      const int count = std::max(m, n);
      void* const bias = Own<float>(count);
      FillAddend<<<(count + 255) / 256, 256>>>(e.bias_type, bias, count, seed + 6);
      e.bias = bias;
    }
    p.alpha = extras.c || extras.bias ? 2.0f : extras.alpha;
    CHECK(cudaGetLastError());
  }
  size_t d_bytes() const { return (size_t(p.m) * p.ldd + 2 * kGuard) * element; }
  size_t scale_bytes() const { return quantised ? size_t(p.m) * ((columns + 127) / 128) * 4 : 0; }
  void Poison() {
    CHECK(cudaMemset(d_base, 0xFF, d_bytes()));
    CHECK(cudaDeviceSynchronize());  // the launch comes on a stream that does not wait for this one
  }
  Data(const Data&) = delete;
  ~Data() {
    for (void* x : owned) CHECK(cudaFree(x));
  }
};

std::vector<int> Sample(int extent, int count) {
  std::vector<int> v;
  if (extent <= count) {
    for (int i = 0; i < extent; ++i) v.push_back(i);
    return v;
  }
  for (int i : {0, 1, 63, 64, 127, 128, 191, 192, 255, 256, extent - 1, extent - 8, extent - 9,
                extent - 65})
    if (i >= 0 && i < extent) v.push_back(i);
  uint32_t x = 12345;
  while (int(v.size()) < count) {
    x = x * 1664525u + 1013904223u;
    v.push_back(int(x % uint32_t(extent)));
  }
  return v;
}

}  // namespace
}  // namespace culet::bench
