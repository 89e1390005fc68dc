// Verifies and times the Hopper kernels on one GPU, with nothing but the CUDA runtime.
//   sm90_bench verify [substring]
//   sm90_bench bench ANCHORS.csv [--format bf16] [--m 256,512] [--only substring] [--keep 6]
//     [--reps 7] [--log FILE] [--colmajor] [--pdl | --both] [--sample-us 3000]
// verify: exact-integer inputs (equality after one rounding), then normal data against an FP64
// product; poisoned outputs, guard zones, edges of m, n, k and both scale orders; of general
// epilogues D, C and the bias in several types. bench: CUDA graphs over rotating inputs of more
// than 220 MB, a first pass over all candidates, then interleaved medians of the best `keep`.
// --format: the name of a policy in kernels/sm90/policy.h, fp8 (scales of blocks) unless told;
// --gated, --gated-e4m3: the kernels that pair columns, and that quantise besides.
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

// libstdc++'s unused random_device would bind a static link to the newest glibc through this
// symbol.
extern "C" __uint32_t arc4random(void) noexcept { return 4; }

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

struct FamilyRecord {
  const char* name;
  Family::Make make;
};
std::vector<FamilyRecord>& Families() {
  static std::vector<FamilyRecord> families;
  return families;
}

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
// BF16; where there are scales, quantised as amax / 448 of the group.
__global__ void FillOperand(Element type, void* out, int64_t ld, float* scales, int scale_row,
                            int scale_block, int rows, int k, int block_k, int rows_per_scale,
                            bool integers, uint64_t seed) {
  const int kb = blockIdx.x, group = blockIdx.y, k0 = kb * block_k;
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
                 : __bfloat162float(__float2bfloat16(Normal(at))) / scale);
  }
  if (threadIdx.x == 0 && scales != nullptr) scales[group * scale_row + kb * scale_block] = scale;
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
    const int gate = c / 8 * 16 + c % 8;
    const double x = Product(p, type, block_scales, r, gate);
    value = x / (1 + exp(-x)) * Product(p, type, block_scales, r, gate + 8);
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
    FillOperand<<<dim3(blocks, m), 128>>>(type, a, p.lda, sa, p.scale_a_row, p.scale_a_block, m, k,
                                          block_k, 1, integers, seed);
    FillOperand<<<dim3(blocks, groups_b), 512>>>(type, b, p.ldb, sb, p.scale_b_column,
                                                 p.scale_b_block, n, k, block_k, rows_b, integers,
                                                 seed + (1ull << 40));
    CHECK(cudaGetLastError());
    p.a = a, p.b = b, p.scale_a = sa, p.scale_b = sb;
    sm90::EpilogueParams& e = p.epilogue;
    if (HasRowScales(format)) {
      e.scale_a = sa, e.scale_b = sb;
      e.scale_a_step = e.scale_b_step = 1;
    }
    e.d_type = extras.d;
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
      e.ldc = n + n % 2 + 2;
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
    if (extras.c || extras.bias) p.alpha = 2.0f;
    CHECK(cudaGetLastError());
  }
  void Poison() {
    CHECK(cudaMemset(d_base, 0xFF, (size_t(p.m) * p.ldd + 2 * kGuard) * element));
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

struct ReferenceValues {
  std::vector<int> rows, columns;
  std::vector<double> values;
  ReferenceValues(const Data& data)
      : rows(Sample(data.p.m, 64)),
        columns(Sample(data.columns, 256)),
        values(rows.size() * columns.size()) {
    int* r = Allocate<int>(rows.size());
    int* c = Allocate<int>(columns.size());
    double* o = Allocate<double>(values.size());
    CHECK(cudaMemcpy(r, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(c, columns.data(), columns.size() * 4, cudaMemcpyHostToDevice));
    Reference<<<int(values.size() + 7) / 8, 256>>>(data.p, ElementOf(data.format),
                                                   HasBlockScales(data.format), data.gated, r, c,
                                                   int(rows.size()), int(columns.size()), o);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values.data(), o, values.size() * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(r));
    CHECK(cudaFree(c));
    CHECK(cudaFree(o));
  }
};

struct Verdict {
  double relative_l2 = 0;
  long mismatches = 0;
  unsigned unwritten = 0, broken = 0;
};

Verdict Compare(Data& data, const ReferenceValues& reference) {
  static unsigned* counters = Allocate<unsigned>(2);
  Verdict v;
  CHECK(cudaMemset(counters, 0, 8));
  const Problem& p = data.p;
  const OutputType type = p.epilogue.d_type;
  const auto scan = [&](const auto* d) {
    Scan<<<264, 512>>>(d, p.m, data.columns, p.ldd, kGuard, counters, counters + 1);
  };
  if (data.element == 4)
    scan(reinterpret_cast<const uint32_t*>(data.d_base));
  else if (data.element == 2)
    scan(reinterpret_cast<const uint16_t*>(data.d_base));
  else
    scan(data.d_base);
  unsigned host[2];
  CHECK(cudaMemcpy(host, counters, 8, cudaMemcpyDeviceToHost));
  v.unwritten = host[0], v.broken = host[1];
  std::vector<uint8_t> row(size_t(data.columns) * data.element);
  const int groups = (data.columns + 127) / 128;
  std::vector<float> scales(groups);
  const auto e4m3 = [](uint8_t byte) {
    __nv_fp8_e4m3 v;
    v.__x = byte;
    return float(v);
  };
  double error = 0, norm = 0;
  const auto read = [&](int column) {
    const uint8_t* const at = row.data() + size_t(column) * data.element;
    float v = 0;
    if (data.quantised) {
      v = e4m3(*at) * scales[column / 128];
    } else if (type == OutputType::kF32) {
      std::memcpy(&v, at, 4);
    } else if (type == OutputType::kF16) {
      __half h;
      std::memcpy(&h, at, 2);
      v = __half2float(h);
    } else {
      __nv_bfloat16 h;
      std::memcpy(&h, at, 2);
      v = __bfloat162float(h);
    }
    return v;
  };
  const auto rounded = [&](double v) {
    return type == OutputType::kF32   ? float(v)
           : type == OutputType::kF16 ? __half2float(__float2half(float(v)))
                                      : __bfloat162float(__float2bfloat16(float(v)));
  };
  for (size_t i = 0; i < reference.rows.size(); ++i) {
    CHECK(cudaMemcpy(
        row.data(),
        static_cast<const uint8_t*>(p.d) + int64_t(reference.rows[i]) * p.ldd * data.element,
        row.size(), cudaMemcpyDeviceToHost));
    for (int g = 0; data.quantised && g < groups; ++g) {
      const auto& e = p.epilogue;
      CHECK(cudaMemcpy(&scales[g],
                       e.d_scale + reference.rows[i] * e.d_scale_row + g * e.d_scale_block, 4,
                       cudaMemcpyDeviceToHost));
      // The largest value of a group becomes 448, so its scale was its own.
      float most = 0;
      for (int c = g * 128; c < std::min(data.columns, g * 128 + 128); ++c)
        most = std::max(most, std::fabs(e4m3(row[c])));
      if (most != 448 && !(most == 0 && scales[g] == 1)) ++v.broken;
    }
    for (size_t j = 0; j < reference.columns.size(); ++j) {
      const double want = reference.values[i * reference.columns.size() + j];
      const float got = read(reference.columns[j]);
      error += (got - want) * (got - want);
      norm += want * want;
      if (!(got == rounded(want))) ++v.mismatches;
    }
  }
  v.relative_l2 = std::sqrt(error / std::max(norm, 1e-30));
  return v;
}

int Verify(const std::vector<Candidate>& candidates, cudaStream_t stream) {
  struct Shape {
    int m, n, k, pad;
    bool column_major;
  };
  const Shape shapes[] = {
      {512, 512, 512, 0, false},  {512, 512, 128, 0, true},     {256, 256, 1536, 0, false},
      {1, 128, 256, 0, false},    {17, 136, 384, 1, true},      {129, 392, 272, 1, false},
      {257, 520, 656, 2, true},   {1000, 1032, 1040, 1, false}, {300, 2112, 7168, 0, false},
      {2100, 4104, 512, 0, true}, {64, 8, 4096, 1, false},      {8, 2112, 7168, 0, true},
      {5, 136, 1040, 1, false},   {16, 520, 2048, 1, true},     {11, 392, 144, 2, false},
      {16, 4104, 3088, 0, false}, {3, 264, 112, 1, true},       {64, 200, 8336, 1, false},
      {40, 328, 12416, 2, true},  {1000, 8200, 400, 0, false}};  // D's stores outlast its products
  const Extras plain,
      extras[] = {plain,
                  {.d = OutputType::kF32, .c = true, .c_type = OutputType::kF32},
                  {.d = OutputType::kF16, .bias = true, .bias_type = OutputType::kF16},
                  {.d = OutputType::kBf16, .c = true, .bias = true, .bias_of_rows = true},
                  {.d = OutputType::kF32, .bias = true, .bias_type = OutputType::kF32},
                  {.kind = EpilogueKind::kGated},
                  {.kind = EpilogueKind::kGated, .d = OutputType::kF32, .bias = true},
                  {.kind = EpilogueKind::kGatedQuant}};
  struct Turn {
    const FormatInfo* format;
    const Extras* extras;
  };
  std::vector<Turn> turns;
  std::set<const FormatInfo*> formats;
  for (const Candidate& candidate : candidates) formats.insert(candidate.format);
  for (const FormatInfo* format : formats)
    for (const Extras& e : extras) turns.push_back({format, &e});
  int failed = 0, run = 0, refused = 0;
  std::map<std::string, int> bad;
  for (const auto& [format, extra] : turns)
    for (const Shape& s : shapes) {
      for (Fill fill : {Fill::kIntegers, Fill::kNormal}) {
        // A sum of integers must be one of D's values but for its rounding.
        if (extra->d == OutputType::kF16 && fill == Fill::kIntegers && s.k > 1024) continue;
        const auto takes = [&](const Candidate& c) {
          return c.format == format && (c.epilogue == extra->kind ||
                                        (extra == extras && c.epilogue == EpilogueKind::kPlain));
        };
        if (std::none_of(candidates.begin(), candidates.end(), takes)) continue;
        const int n = sm90::IsGated(extra->kind) ? s.n / 16 * 16 : s.n;
        if (n == 0) continue;
        Data data(*format, s.m, n, s.k, fill, s.column_major, s.pad, 1234 + s.m, *extra);
        const ReferenceValues reference(data);
        for (const Candidate& candidate : candidates) {
          if (!takes(candidate)) continue;
          data.Poison();
          const Launcher launch = candidate.plan(data.p);
          if (!launch) {
            ++refused;
            continue;
          }
          for (int repeat = 0; repeat < 2; ++repeat) CHECK(launch(stream));
          const cudaError_t status = cudaStreamSynchronize(stream);
          if (status != cudaSuccess) {
            std::printf("FAIL %s m=%d n=%d k=%d: %s\n", candidate.id.c_str(), s.m, s.n, s.k,
                        cudaGetErrorString(status));
            return 1;
          }
          const Verdict v = Compare(data, reference);
          // What equals the rounded product is right, however far rounding took it; of few elements
          // it can be far: 1.75e-3 is for the 16384 that a large D has looked at.
          // An accumulator of 14 bits cuts off something at each of k / 32 sums (fast FP8): as much
          // again at 4096; one of FP32 a bit of each sum.
          const bool fast = HasRowScales(*format) && format->sums == sm90::Sums::kDirect;
          const double rounding = extra->d == OutputType::kBf16  ? 1.7e-3
                                  : extra->d == OutputType::kF16 ? 2.2e-4
                                                                 : 1e-6;
          const bool exact = fill == Fill::kIntegers && !fast && !data.gated;
          const double limit = ((data.quantised ? 3e-2 : rounding) + (data.gated ? 1e-5 : 0) +
                                (fast                         ? 2e-3 * std::max(1.0, s.k / 4096.0)
                                 : format->element_bytes == 1 ? 3e-4
                                                              : 2e-5)) *
                               (1 + 4 / std::sqrt(double(reference.values.size())));
          const bool ok = v.unwritten == 0 && v.broken == 0 &&
                          (v.mismatches == 0 || (!exact && v.relative_l2 <= limit));
          ++run;
          if (!ok) {
            ++failed;
            if (bad[candidate.id]++ < 3)
              std::printf(
                  "FAIL %s m=%d n=%d k=%d %s: rel %.2e, %ld differ, %u unwritten, %u guards "
                  "broken\n",
                  candidate.id.c_str(), s.m, s.n, s.k,
                  fill == Fill::kIntegers ? "integers" : "normal", v.relative_l2, v.mismatches,
                  v.unwritten, v.broken);
          }
        }
      }
    }
  std::printf("verify: %d runs of %zu candidates, %d refused, %d failed\n", run, candidates.size(),
              refused, failed);
  return failed != 0;
}

struct Anchor {
  std::string layer;
  int m, n, k;
  double first_peer_us, best_peer_us, limit_us;
};

// The peers that a format is compared with, as the anchors call them.
bool IsPeer(const FormatInfo& format, const std::string& peer) {
  if (format.element_bytes == 2) return peer == "cublas_bf16" || peer == "dg_bf16";
  const bool fast = format.sums == sm90::Sums::kDirect;
  return peer == (fast ? "lt_tensor_fast" : "lt_tensor_precise") ||
         peer == (fast ? "torch_row_fast" : "torch_row_precise");
}

// Of either file of anchors: a row a shape with FP8 blocks' peers, or a row a shape and peer.
std::vector<Anchor> ReadAnchors(const char* path, const FormatInfo& format) {
  std::vector<Anchor> anchors;
  std::FILE* f = std::fopen(path, "r");
  if (f == nullptr) return anchors;
  char line[1024];
  while (std::fgets(line, sizeof line, f) != nullptr) {
    std::vector<std::string> cells;
    std::string cell;
    for (const char* c = line; *c != 0 && *c != '\n'; ++c) {
      if (*c == ',') {
        cells.push_back(cell);
        cell.clear();
      } else {
        cell += *c;
      }
    }
    cells.push_back(cell);
    if (cells.size() == 8 && IsPeer(format, cells[4])) {
      const int m = std::atoi(cells[1].c_str());
      const double us = std::atof(cells[5].c_str());
      if (anchors.empty() || anchors.back().layer != cells[0] || anchors.back().m != m)
        anchors.push_back({cells[0], m, std::atoi(cells[2].c_str()), std::atoi(cells[3].c_str()),
                           us, us, std::atof(cells[6].c_str())});
      anchors.back().best_peer_us = std::min(anchors.back().best_peer_us, us);
    }
    if (cells.size() < 10 || cells[0] == "layer" || !HasBlockScales(format)) continue;
    Anchor a{cells[0],
             std::atoi(cells[1].c_str()),
             std::atoi(cells[2].c_str()),
             std::atoi(cells[3].c_str()),
             std::atof(cells[4].c_str()),
             1e30,
             std::atof(cells[9].c_str())};
    for (int i : {4, 5, 6})
      if (!cells[i].empty()) a.best_peer_us = std::min(a.best_peer_us, std::atof(cells[i].c_str()));
    anchors.push_back(a);
  }
  std::fclose(f);
  return anchors;
}

__global__ void Nothing() {}

// A process's first eight launches make its graphs slower, for good: see src/cuda/runtime.cc.
void LeaveTheFirstLaunchesBehind(cudaStream_t stream) {
  for (int i = 0; i < 16; ++i) {
    Nothing<<<1, 32, 0, stream>>>();
    CHECK(cudaStreamSynchronize(stream));
  }
}

constexpr const FormatInfo* kFormats[] = {&sm90::Fp8Block::kInfo, &sm90::Fp8Precise::kInfo,
                                          &sm90::Fp8Fast::kInfo, &sm90::Bf16Direct::kInfo,
                                          &sm90::F16Direct::kInfo};

struct Options {
  std::string only, log;
  std::vector<int> ms;
  int keep = 6, reps = 7;
  double sample_us = 3000;
  bool column_major = false, pdl = false, both = false;
  const FormatInfo* format = &sm90::Fp8Block::kInfo;
  EpilogueKind kind = EpilogueKind::kGeneral;  // of plain kernels, too
};

struct Timed {
  const Candidate* candidate;
  bool pdl;
  cudaGraphExec_t graph;
  double first_us;
  std::vector<double> samples;
};

int Bench(const std::vector<Candidate>& candidates, const std::vector<Anchor>& anchors,
          const Options& options, cudaStream_t stream) {
  std::FILE* log = options.log.empty() ? nullptr : std::fopen(options.log.c_str(), "w");
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  LeaveTheFirstLaunchesBehind(stream);
  double log_dg = 0, log_limit = 0;
  int rows = 0;
  std::printf("%-16s %5s %6s %6s | %9s %6s %6s %6s | %s\n", "layer", "m", "n", "k", "us", "/limit",
              "/1st", "/best", "kernel");
  for (const Anchor& anchor : anchors) {
    if (!options.ms.empty() &&
        std::find(options.ms.begin(), options.ms.end(), anchor.m) == options.ms.end())
      continue;
    const int m = anchor.m, n = anchor.n, k = anchor.k;
    Data data(*options.format, m, n, k, Fill::kNormal, options.column_major, 0, 99,
              {.kind = options.kind});
    const int bytes = options.format->element_bytes;
    const size_t a_bytes = size_t(m) * data.p.lda * bytes, b_bytes = size_t(n) * data.p.ldb * bytes;
    const double set_bytes = double(a_bytes) + double(b_bytes) + 2.0 * m * n,
                 flops = 2.0 * m * n * k;
    const int sets = std::max(1, std::min(48, int(std::ceil(220e6 / set_bytes))));
    const double estimate_us = std::max(flops / 1000e6, set_bytes / 3e6);
    const int calls = std::max({sets, std::min(200, int(options.sample_us / estimate_us)), 4});
    std::vector<Problem> problems(sets, data.p);
    std::vector<void*> owned;
    for (int i = 1; i < sets; ++i) {
      auto* a = Allocate<uint8_t>(a_bytes);
      auto* b = Allocate<uint8_t>(b_bytes);
      auto* d = Allocate<uint8_t>(size_t(m) * data.p.ldd * data.element);
      CHECK(cudaMemcpy(a, data.p.a, a_bytes, cudaMemcpyDeviceToDevice));
      CHECK(cudaMemcpy(b, data.p.b, b_bytes, cudaMemcpyDeviceToDevice));
      problems[i].a = a, problems[i].b = b, problems[i].d = d;
      owned.insert(owned.end(), {a, b, d});
    }
    auto replay = [&](cudaGraphExec_t graph) {
      CHECK(cudaEventRecord(start, stream));
      CHECK(cudaGraphLaunch(graph, stream));
      CHECK(cudaEventRecord(stop, stream));
      CHECK(cudaEventSynchronize(stop));
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, start, stop));
      return double(ms) * 1e3 / calls;
    };
    std::vector<Timed> timed;
    for (size_t turn = 0; turn < candidates.size() * (options.both ? 2 : 1); ++turn) {
      const Candidate& candidate = candidates[options.both ? turn / 2 : turn];
      const bool pdl = options.both ? turn % 2 == 1 : options.pdl;
      for (Problem& p : problems) p.pdl = pdl;
      std::vector<Launcher> launchers;
      for (const Problem& p : problems) {
        Launcher launcher = candidate.plan(p);
        if (!launcher) break;
        launchers.push_back(std::move(launcher));
      }
      if (launchers.size() != problems.size()) continue;
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < calls; ++i) CHECK(launchers[i % sets](stream));
      CHECK(cudaStreamEndCapture(stream, &graph));
      CHECK(cudaGraphInstantiate(&exec, graph, 0));
      CHECK(cudaGraphDestroy(graph));
      replay(exec);
      timed.push_back({&candidate, pdl, exec, replay(exec), {}});
      if (log != nullptr)
        std::fprintf(log, "%s,%d,%d,%d,%d,%s,%.3f\n", anchor.layer.c_str(), m, n, k, pdl,
                     candidate.id.c_str(), timed.back().first_us);
    }
    std::sort(timed.begin(), timed.end(),
              [](const Timed& x, const Timed& y) { return x.first_us < y.first_us; });
    // The best of either way to launch come first.
    int kept[2] = {}, keep = 0;
    for (size_t i = 0; i < timed.size(); ++i)
      if (kept[timed[i].pdl]++ < options.keep)
        std::rotate(timed.begin() + keep, timed.begin() + i, timed.begin() + i + 1), ++keep;
    for (int rep = 0; rep < options.reps; ++rep)
      for (int i = 0; i < keep; ++i) timed[i].samples.push_back(replay(timed[i].graph));
    const Timed* best = nullptr;
    double best_us = 1e30;
    for (int i = 0; i < keep; ++i) {
      std::sort(timed[i].samples.begin(), timed[i].samples.end());
      const double us = timed[i].samples[timed[i].samples.size() / 2];
      if (us < best_us) best_us = us, best = &timed[i];
      if (log != nullptr)
        std::fprintf(log, "%s,%d,%d,%d,%d,%s,%.3f,median\n", anchor.layer.c_str(), m, n, k,
                     timed[i].pdl, timed[i].candidate->id.c_str(), us);
    }
    if (best != nullptr) {
      std::printf("%-16s %5d %6d %6d | %9.2f %6.3f %6.3f %6.3f | %s\n", anchor.layer.c_str(), m, n,
                  k, best_us, best_us / anchor.limit_us, best_us / anchor.first_peer_us,
                  best_us / anchor.best_peer_us, best->candidate->id.c_str());
      log_dg += std::log(best_us / anchor.first_peer_us);
      log_limit += std::log(best_us / anchor.limit_us);
      ++rows;
    }
    for (Timed& t : timed) CHECK(cudaGraphExecDestroy(t.graph));
    for (void* p : owned) CHECK(cudaFree(p));
    std::fflush(stdout);
    if (log != nullptr) std::fflush(log);
  }
  if (rows > 0)
    std::printf("%d rows: geometric mean over limit %.3f, over the first peer %.3f\n", rows,
                std::exp(log_limit / rows), std::exp(log_dg / rows));
  if (log != nullptr) std::fclose(log);
  return 0;
}

}  // namespace

Family::Family(const char* name, Make make) { Families().push_back({name, make}); }

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  Options options;
  std::string path;
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (arg == "--only")
      options.only = value();
    else if (arg == "--log")
      options.log = value();
    else if (arg == "--keep")
      options.keep = std::atoi(value().c_str());
    else if (arg == "--reps")
      options.reps = std::atoi(value().c_str());
    else if (arg == "--colmajor")
      options.column_major = true;
    else if (arg == "--pdl")
      options.pdl = true;
    else if (arg == "--both")
      options.both = true;
    else if (arg == "--sample-us")
      options.sample_us = std::atof(value().c_str());
    else if (arg == "--gated")
      options.kind = EpilogueKind::kGated;
    else if (arg == "--gated-e4m3")
      options.kind = EpilogueKind::kGatedQuant;
    else if (arg == "--format") {
      const std::string name = value();
      options.format = nullptr;
      for (const FormatInfo* format : kFormats)
        if (name == format->name) options.format = format;
      if (options.format == nullptr) {
        std::printf("unknown format %s\n", name.c_str());
        return 2;
      }
    } else if (arg == "--m") {
      std::string list = value();
      for (char* t = std::strtok(list.data(), ","); t != nullptr; t = std::strtok(nullptr, ","))
        options.ms.push_back(std::atoi(t));
    } else
      path = arg;
  }
  if (mode == "verify") options.only = path;
  std::vector<Candidate> candidates;
  for (const FamilyRecord& family : Families())
    for (Candidate& c : family.make())
      if ((options.only.empty() || c.id.find(options.only) != std::string::npos) &&
          (mode != "bench" ||
           (c.format == options.format &&
            (c.epilogue == options.kind ||
             (c.epilogue == EpilogueKind::kPlain && options.kind == EpilogueKind::kGeneral)))))
        candidates.push_back(std::move(c));
  // The card warms up in the course of a pass: in a fixed order the last of several versions of a
  // kernel measured up to 6 % behind the first.
  std::shuffle(candidates.begin(), candidates.end(), std::mt19937(1));
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d SMs, %zu candidates\n", properties.name, properties.multiProcessorCount,
              candidates.size());
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  if (mode == "verify") return Verify(candidates, stream);
  if (mode == "bench")
    return Bench(candidates, ReadAnchors(path.c_str(), *options.format), options, stream);
  std::printf(
      "usage: sm90_bench verify [substring] | bench ANCHORS.csv [--m LIST] [--format NAME] [--only "
      "TEXT] [--keep "
      "N] [--reps N] [--log FILE]\n");
  return 2;
}

}  // namespace culet::bench

int main(int argc, char** argv) { return culet::bench::Main(argc, argv); }
