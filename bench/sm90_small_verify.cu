// Verifies the small-M family on one GPU: exact integers, normal data against an FP64 product, all
// edges, guard zones, repeats, and the programmatic-dependent-launch contract.
//   sm90_small_verify [quick | tiny]
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/sm90/small_m.h"

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

namespace {

using culet::sm90::SmallMKernel;
using culet::sm90::SmallMLaunch;
using culet::sm90::BlockScaledProblem;

constexpr int64_t kGuard = 1024;

__device__ uint32_t Hash(uint64_t x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return static_cast<uint32_t>(x);
}

// Integers -3..3 keep every sum of 128 products below 2^14; otherwise roughly normal values.
__global__ void FillValues(uint8_t* out, int64_t ld, int rows, int k, bool integers,
                           uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < int64_t(rows) * ld;
       i += int64_t(gridDim.x) * blockDim.x) {
    const uint64_t at = seed + i;
    float v = float(int(Hash(at) % 7) - 3);
    if (!integers) {
      v = 0;
      for (int j = 0; j < 4; ++j) v += float(Hash(at * 4 + j)) * 2.3283064e-10f - 0.5f;
      v *= 180.0f;
    }
    // 0x7F is NaN: padding must never reach a result.
    out[i] = i % ld < k ? __nv_fp8_e4m3(v).__x : 0x7F;
  }
}
__global__ void FillScales(float* out, int count, bool integers, uint64_t seed) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    out[i] = integers ? exp2f(float(int(Hash(seed + i) % 3) - 1))
                      : 0.002f + 0.008f * float(Hash(seed + i)) * 2.3283064e-10f;
}

// One warp an element.
__global__ void Reference(BlockScaledProblem p, double* out) {
  const int64_t index = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (index >= int64_t(p.m) * p.n) return;
  const int r = int(index / p.n), c = int(index % p.n);
  const auto* a = static_cast<const uint8_t*>(p.a) + r * p.lda;
  const auto* b = static_cast<const uint8_t*>(p.b) + c * p.ldb;
  double sum = 0;
  for (int i = lane; i < p.k; i += 32) {
    __nv_fp8_e4m3 x, y;
    x.__x = a[i], y.__x = b[i];
    sum += double(float(x)) * double(float(y)) *
           double(p.scale_a[int64_t(r) * p.scale_a_row + int64_t(i / 128) * p.scale_a_block]) *
           double(p.scale_b[(c / 128) * p.scale_b_column + (i / 128) * p.scale_b_block]);
  }
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) out[index] = sum;
}

struct Totals {
  double error, norm;
  unsigned mismatches, unwritten, broken, changed;
};

// Compares the output with the reference, with the first repeat, and its guards with the poison.
__global__ void Compare(const uint16_t* base, int64_t d_at, int64_t size, BlockScaledProblem p,
                        const double* want, uint16_t* first, bool is_first, Totals* totals) {
  double error = 0, norm = 0;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < size;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t at = i - d_at;
    if (at < 0 || at >= p.m * p.ldd || at % p.ldd >= p.n) {
      if (base[i] != 0xFFFF) atomicAdd(&totals->broken, 1u);
      continue;
    }
    if (base[i] == 0xFFFF) atomicAdd(&totals->unwritten, 1u);
    if (is_first)
      first[i] = base[i];
    else if (first[i] != base[i])
      atomicAdd(&totals->changed, 1u);
    const double w = want[(at / p.ldd) * p.n + at % p.ldd];
    const float got = __uint_as_float(uint32_t(base[i]) << 16);
    // Round to nearest even by hand: the reference is exact in FP32 for integers.
    uint32_t bits = __float_as_uint(float(w));
    bits += 0x7FFF + ((bits >> 16) & 1);
    if (!(got == __uint_as_float(bits & 0xFFFF0000u))) atomicAdd(&totals->mismatches, 1u);
    error += (got - w) * (got - w), norm += w * w;
  }
  atomicAdd(&totals->error, error), atomicAdd(&totals->norm, norm);
}

// The kernel before, under PDL: lets its dependent start at once, keeps A and its scales poisoned
// for a while, checks that nobody has touched D, and writes A only at its end.
__global__ void Predecessor(uint8_t* a, const uint8_t* good_a, int64_t a_bytes, float* scales,
                            const float* good_scales, int count, const uint16_t* d, int64_t d_count,
                            unsigned* early) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  const int64_t me = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  const long long start = clock64();
  while (clock64() - start < 40000) {
  }
  for (int64_t i = me; i < d_count; i += step)
    if (d[i] != 0xFFFF) atomicAdd(early, 1u);
  for (int64_t i = me; i < a_bytes; i += step) a[i] = good_a[i];
  for (int64_t i = me; i < count; i += step) scales[i] = good_scales[i];
}

template <class T>
T* Allocate(int64_t count) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, size_t(count) * sizeof(T) + 256));
  return static_cast<T*>(p);
}

struct Shape {
  int m, n, k, pad;
  bool column_major;
};

struct Data {
  BlockScaledProblem p;
  uint8_t *a, *good_a, *b;
  float *sa, *good_sa, *sb;
  uint16_t *base, *first;
  double* want;
  int64_t a_bytes, sa_count, size, d_at;
  explicit Data(const Shape& s, bool integers) {
    const int blocks = (s.k + 127) / 128, columns = (s.n + 127) / 128;
    p.m = s.m, p.n = s.n, p.k = s.k;
    p.lda = (s.k + 15) / 16 * 16 + s.pad * 16, p.ldb = (s.k + 15) / 16 * 16 + s.pad * 32;
    p.ldd = s.n + s.pad;
    p.scale_a_row = s.column_major ? 1 : blocks + s.pad;
    p.scale_a_block = s.column_major ? s.m + s.pad : 1;
    p.scale_b_column = blocks, p.scale_b_block = 1;
    a_bytes = s.m * p.lda;
    sa_count = s.column_major ? int64_t(s.m + s.pad) * blocks : int64_t(s.m) * (blocks + s.pad);
    a = Allocate<uint8_t>(a_bytes), good_a = Allocate<uint8_t>(a_bytes);
    b = Allocate<uint8_t>(s.n * p.ldb);
    sa = Allocate<float>(sa_count), good_sa = Allocate<float>(sa_count);
    sb = Allocate<float>(int64_t(columns) * blocks);
    d_at = kGuard + (s.pad & 1);  // odd: D is not even 4-byte aligned
    size = d_at + s.m * p.ldd + kGuard;
    base = Allocate<uint16_t>(size), first = Allocate<uint16_t>(size);
    want = Allocate<double>(int64_t(s.m) * s.n);
    FillValues<<<264, 256>>>(a, p.lda, s.m, s.k, integers, 11);
    FillValues<<<264, 256>>>(b, p.ldb, s.n, s.k, integers, 1ull << 40);
    FillScales<<<64, 256>>>(sa, int(sa_count), integers, 1ull << 50);
    FillScales<<<64, 256>>>(sb, columns * blocks, integers, 1ull << 51);
    CHECK(cudaMemcpy(good_a, a, a_bytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(good_sa, sa, sa_count * 4, cudaMemcpyDeviceToDevice));
    p.a = a, p.b = b, p.scale_a = sa, p.scale_b = sb, p.d = base + d_at;
    Reference<<<int((int64_t(s.m) * s.n + 7) / 8), 256>>>(p, want);
    CHECK(cudaGetLastError());
  }
  void Poison() { CHECK(cudaMemsetAsync(base, 0xFF, size * 2, nullptr)); }
  ~Data() {
    for (void* x : {(void*)a, (void*)good_a, (void*)b, (void*)sa, (void*)good_sa, (void*)sb,
                    (void*)base, (void*)first, (void*)want})
      CHECK(cudaFree(x));
  }
};

struct Counts {
  int run = 0, failed = 0, refused = 0;
};

void Report(const Totals& t, unsigned early, bool integers, const SmallMKernel& kernel,
            const Shape& s, int splits, int residency, const char* what, double* worst,
            Counts* counts) {
  const double relative = std::sqrt(t.error / std::max(t.norm, 1e-300));
  ++counts->run;
  if (!integers) *worst = std::max(*worst, relative);
  // One rounding to BF16 costs 1.65e-3 on average and 1.95e-3 at most.
  const double bound = int64_t{s.m} * s.n >= 4096 ? 1.75e-3 : 1.96e-3;
  const bool right = integers ? t.mismatches == 0 : relative <= bound;
  if (right && t.unwritten == 0 && t.broken == 0 && t.changed == 0 && early == 0) return;
  if (++counts->failed <= 20)
    std::printf(
        "FAIL %s c%d r%d m=%d n=%d k=%d pad=%d %s %s: rel %.2e, %u differ, %u unwritten, %u "
        "guards, "
        "%u changed, %u early\n",
        kernel.id, splits, residency, s.m, s.n, s.k, s.pad, integers ? "integers" : "normal", what,
        relative, t.mismatches, t.unwritten, t.broken, t.changed, early);
}

void VerifyOne(Data& data, const Shape& s, const SmallMKernel& kernel, int splits, int residency,
               bool integers, int most_repeats, Totals* totals, double* worst, Counts* counts) {
  SmallMLaunch launch;
  if (!culet::sm90::PlanSmallM(kernel, data.p, splits, residency, &launch)) {
    ++counts->refused;
    return;
  }
  CHECK(cudaMemsetAsync(totals, 0, sizeof(Totals), nullptr));
  const int repeats = integers ? 2 : most_repeats;
  for (int i = 0; i < repeats; ++i) {
    data.Poison();
    CHECK(culet::sm90::LaunchSmallM(launch, nullptr));
    Compare<<<132, 256>>>(data.base, data.d_at, data.size, data.p, data.want, data.first, i == 0,
                          totals);
  }
  Totals host;
  CHECK(cudaMemcpy(&host, totals, sizeof host, cudaMemcpyDeviceToHost));
  Report(host, 0, integers, kernel, s, splits, residency, "plain", worst, counts);
  if (!integers) return;
  launch.params.early_weights = 1;
  // The same behind a predecessor that writes A late; three in a row, so launches overlap.
  static unsigned* early = Allocate<unsigned>(1);
  CHECK(cudaMemsetAsync(totals, 0, sizeof(Totals), nullptr));
  CHECK(cudaMemsetAsync(early, 0, 4, nullptr));
  for (int i = 0; i < 3; ++i) {
    data.Poison();
    CHECK(cudaMemsetAsync(data.a, 0x7F, data.a_bytes, nullptr));
    CHECK(cudaMemsetAsync(data.sa, 0xFF, data.sa_count * 4, nullptr));
    Predecessor<<<16, 128>>>(data.a, data.good_a, data.a_bytes, data.sa, data.good_sa,
                             int(data.sa_count), data.base, data.size, early);
    CHECK(culet::sm90::LaunchSmallM(launch, nullptr));
    if (i == 2) CHECK(culet::sm90::LaunchSmallM(launch, nullptr));
    Compare<<<132, 256>>>(data.base, data.d_at, data.size, data.p, data.want, data.first, i == 0,
                          totals);
  }
  unsigned early_host;
  CHECK(cudaMemcpy(&host, totals, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&early_host, early, 4, cudaMemcpyDeviceToHost));
  Report(host, early_host, integers, kernel, s, splits, residency, "pdl", worst, counts);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "quick") == 0;
  const bool tiny = argc > 1 && std::strcmp(argv[1], "tiny") == 0;  // for compute-sanitizer
  std::vector<Shape> shapes = {
      {1, 64, 128, 0, false},      {1, 77, 144, 1, true},    {3, 128, 256, 0, true},
      {8, 136, 384, 2, false},     {16, 200, 1040, 3, true}, {17, 2112, 2048, 0, false},
      {33, 392, 272, 1, false},    {64, 576, 2048, 0, true}, {65, 1000, 1040, 5, false},
      {128, 1032, 4096, 0, false}, {128, 129, 16, 1, true},  {200, 320, 640, 0, false}};
  if (!quick) shapes.push_back({64, 2112, 7168, 0, false});
  if (tiny) shapes = {{3, 72, 400, 1, false}, {70, 136, 528, 0, true}};
  auto* totals = Allocate<Totals>(1);
  Counts counts;
  double worst = 0;
  for (const SmallMKernel& kernel : culet::sm90::SmallMKernels())
    CHECK(culet::sm90::LoadSmallM(kernel));
  for (const Shape& s : shapes) {
    for (bool integers : {true, false}) {
      Data data(s, integers);
      for (const SmallMKernel& kernel : culet::sm90::SmallMKernels()) {
        if (s.m > 2 * kernel.tokens) continue;
        for (int splits : {1, 2, 3, 4, 8})
          for (int residency : {1, 2, 4}) {
            if (tiny && (residency != 2 || splits == 2 || splits == 8)) continue;
            VerifyOne(data, s, kernel, splits, residency, integers, tiny ? 2 : 20, totals, &worst,
                      &counts);
          }
      }
      const cudaError_t status = cudaDeviceSynchronize();
      if (status != cudaSuccess) {
        std::printf("FAIL m=%d n=%d k=%d: %s\n", s.m, s.n, s.k, cudaGetErrorString(status));
        return 1;
      }
    }
  }
  std::printf("small-M verify: %d runs, %d refused, %d failed, worst relative L2 %.3e\n",
              counts.run, counts.refused, counts.failed, worst);
  return counts.failed != 0;
}
