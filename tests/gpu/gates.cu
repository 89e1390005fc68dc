#include "gates.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "jobs.h"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/values.cuh"
#include "kernels/sm90/product/silu.cuh"

namespace culet {
namespace {

constexpr int kThreads = 256, kBlocks = 4096;

struct Finding {
  unsigned long long wrong = 0, judged = 0;
  float x = 0, found = 0;  // one that is wrong
};

// The smallest normal number times the largest gate whose exponential still is one: where results
// are flushed to zero, that is how far off they are.
constexpr double kFlushed = 0x1p-119;
constexpr double kLastPlace = 0x1p-23;

__device__ bool IsNear(float found, double expected, double share, double amount) {
  if (isnan(expected)) return isnan(found);
  if (isinf(expected) || isinf(found)) return found == static_cast<float>(expected);
  return fabs(found - expected) <= share * fabs(expected) + amount;
}

__device__ double SiluInDouble(double x) { return x / (1 + exp(-x)); }

// Functors: whether there is a result for x, what it is, and whether it is right.
struct OpsSilu {
  __device__ bool operator()(float x, float& found, bool& right) const {
    found = cuda_ops::Silu(x);
    right = IsNear(found, SiluInDouble(x), 6 * kLastPlace, kFlushed);
    return true;
  }
};
struct HopperSilu {
  __device__ bool operator()(float x, float& found, bool& right) const {
    found = sm90::Silu(x);
    const double size = isfinite(x) ? fmin(fabs(double{x}), 128.0) : 0;
    right = IsNear(found, SiluInDouble(x), (5 + size) * kLastPlace, kFlushed);
    return true;
  }
};
// x beside three others; right only if all four are, and if it gives a result where it must.
struct HopperGateFour {
  int others;
  __device__ bool operator()(float x, float& found, bool& right) const {
    constexpr float kOthers[][3] = {{0, 0, 0}, {-20, 3, 1e30f}, {-1, -2, -60}, {87, -30, -30}};
    const float* const o = kOthers[others];
    const float gate[4] = {o[0], x, o[1], o[2]}, up[4] = {1, -0.5f, 2, 1e-3f};
    float out[4];
    const bool given = sm90::GateFour(gate, up, out);
    double below = 0;
    for (const float g : gate) below += fmin(double{g}, 0.0);
    right = given || isnan(x) || below < -84;
    found = out[1];
    for (int i = 0; i < 4 && given; ++i) {
      const double size = isfinite(gate[i]) ? fmin(fabs(double{gate[i]}), 128.0) : 0;
      right &= IsNear(out[i], SiluInDouble(gate[i]) * up[i], (12 + size) * kLastPlace, kFlushed);
    }
    return given || !right;
  }
};
struct Exp2 {
  __device__ bool operator()(float x, float& found, bool& right) const {
    found = cuda_ops::FastExp2(x);
    right = IsNear(found, exp2(double{x}), 3 * kLastPlace, 0x1p-126);
    return true;
  }
};

template <class F>
__global__ void CheckAll(F function, Finding* finding) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  unsigned long long wrong = 0, judged = 0;
  for (std::uint64_t bits = blockIdx.x * kThreads + threadIdx.x; bits < kAll;
       bits += std::uint64_t{kBlocks} * kThreads) {
    const float x = __uint_as_float(static_cast<std::uint32_t>(bits));
    float found = 0;
    bool right = false;
    if (!function(x, found, right)) continue;
    ++judged;
    if (right) continue;
    if (wrong++ == 0) finding->x = x, finding->found = found;
  }
  atomicAdd(&finding->judged, judged);
  if (wrong > 0) atomicAdd(&finding->wrong, wrong);
}

template <class F>
bool Check(const char* name, F function) {
  Finding* finding = nullptr;
  CheckCuda(cudaMallocManaged(&finding, sizeof(Finding)), "cudaMallocManaged");
  *finding = {};
  CheckAll<<<kBlocks, kThreads>>>(function, finding);
  CheckCuda(cudaGetLastError(), name);
  CheckCuda(cudaDeviceSynchronize(), name);
  const Finding found = *finding;
  CheckCuda(cudaFree(finding), "cudaFree");
  std::printf("gates: %s: %llu numbers, %llu wrong", name, found.judged, found.wrong);
  if (found.wrong > 0) std::printf(", %.9g of %.9g", found.found, found.x);
  std::printf("\n");
  return found.wrong == 0 && found.judged > 0;
}

}  // namespace

bool CheckGates() {
  bool right = Check("silu of operations", OpsSilu{});
  right &= Check("silu of gated products", HopperSilu{});
  for (int others = 0; others < 4; ++others) {
    right &= Check("silu of gated products by fours", HopperGateFour{others});
  }
  return right & Check("powers of two in softmaxes", Exp2{});
}

}  // namespace culet
