// Verifies the GPU quantiser BF16 -> E4M3 bit for bit against plain divisions, then times it in
// CUDA graphs over rotating inputs of more than 220 MB, beside a device-to-device copy.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda/quantize_e4m3.h"

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

enum class Fill { kNormal, kAnyBits, kNarrow, kZeros };

__device__ uint32_t Hash(uint64_t x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return static_cast<uint32_t>(x);
}

__global__ void FillInput(uint16_t* out, int64_t ld, int rows, Fill fill, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * ld;
       i += int64_t(gridDim.x) * blockDim.x) {
    const uint32_t h = Hash(seed + i);
    const float u = ((h & 0xFFFF) + 1) * 1.52587890625e-5f, v = (h >> 16) * 1.52587890625e-5f;
    const float normal = sqrtf(-2 * logf(fminf(u, 1.0f))) * cospif(2 * v);
    uint16_t bits = __bfloat16_as_ushort(__float2bfloat16(normal));
    if (fill == Fill::kAnyBits) bits = static_cast<uint16_t>(h);  // NaN, infinities, denormals too
    // Every exponent within 32 of a group's own, every mantissa, both signs.
    if (fill == Fill::kNarrow)
      bits =
          static_cast<uint16_t>((h & 0x807F) | ((100 + Hash(i / 4096) % 30 + (h >> 8) % 32) << 7));
    if (fill == Fill::kZeros) bits = h & 1 ? 0x8000 : 0;
    out[i] = bits;
  }
}

// One thread a group, with IEEE divisions.
__global__ void Check(culet::QuantizeE4m3Args a, unsigned* wrong) {
  const int groups = (a.k + 127) / 128;
  const int64_t index = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (index >= int64_t(a.rows) * groups) return;
  const int64_t row = index / groups, group = index % groups;
  const auto* x = static_cast<const __nv_bfloat16*>(a.source) + row * a.source_ld;
  const auto* q = static_cast<const uint8_t*>(a.values) + row * a.values_ld;
  const int first = int(group) * 128, last = min(a.k, first + 128);
  float amax = 0;
  bool finite = true;
  for (int i = first; i < last; ++i) {
    const float v = __bfloat162float(x[i]);
    finite = finite && isfinite(v);
    amax = fmaxf(amax, fabsf(v));
  }
  const float scale = amax == 0 ? 1.0f : __fdiv_rn(amax, 448.0f);
  const float got = a.scales[row * a.scale_row + group * a.scale_group];
  bool bad = finite ? !(got == scale) : !isnan(got);
  for (int i = first; i < last; ++i) {
    const __nv_fp8_e4m3 want(__fdiv_rn(__bfloat162float(x[i]), scale));
    bad = bad || (finite ? q[i] != want.__x : (q[i] & 0x7F) != 0x7F);
  }
  if (bad) atomicAdd(wrong, 1u);
}

template <class T>
T* Allocate(int64_t count) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, size_t(count) * sizeof(T) + 256));
  return static_cast<T*>(p);
}

int Verify() {
  struct Shape {
    int rows, k, pad;
    bool column_major;
  };
  unsigned* wrong = Allocate<unsigned>(1);
  CHECK(cudaMemset(wrong, 0, 4));
  int cases = 0;
  for (const Shape& s :
       {Shape{1, 128, 0, false}, Shape{3, 7, 1, true}, Shape{17, 1000, 0, true},
        Shape{128, 4096, 0, false}, Shape{33, 1040, 16, false}, Shape{5, 136, 8, true},
        Shape{700, 7168, 0, true}, Shape{4096, 4096, 0, false}, Shape{1031, 520, 3, false},
        Shape{2100, 1096, 0, true}, Shape{2100, 1104, 16, false}}) {
    for (Fill fill : {Fill::kNormal, Fill::kAnyBits, Fill::kNarrow, Fill::kZeros}) {
      culet::QuantizeE4m3Args a;
      const int groups = (s.k + 127) / 128;
      a.rows = s.rows, a.k = s.k, a.source_ld = s.k + s.pad, a.values_ld = s.k + s.pad;
      a.scale_row = s.column_major ? 1 : groups, a.scale_group = s.column_major ? s.rows : 1;
      auto* x = Allocate<uint16_t>(s.rows * a.source_ld);
      a.source = x;
      a.values = Allocate<uint8_t>(s.rows * a.values_ld);
      a.scales = Allocate<float>(int64_t(s.rows) * groups);
      FillInput<<<264, 256>>>(x, a.source_ld, s.rows, fill, 7 + s.k);
      CHECK(cudaMemset(a.values, 0x55, s.rows * a.values_ld));
      CHECK(cudaMemset(a.scales, 0x55, int64_t(s.rows) * groups * 4));
      CHECK(culet::LaunchQuantizeE4m3(a, false, nullptr));
      Check<<<int((int64_t(s.rows) * groups + 127) / 128), 128>>>(a, wrong);
      CHECK(cudaDeviceSynchronize());
      for (void* p : {static_cast<void*>(x), a.values, static_cast<void*>(a.scales)})
        CHECK(cudaFree(p));
      ++cases;
    }
  }
  unsigned host = 0;
  CHECK(cudaMemcpy(&host, wrong, 4, cudaMemcpyDeviceToHost));
  std::printf("quantiser verify: %d cases, %u wrong groups\n", cases, host);
  return host != 0;
}

template <class Launch>
double GraphUs(cudaStream_t stream, int calls, Launch launch) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; ++i) CHECK(launch(i));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<double> us;
  for (int r = 0; r < 9; ++r) {
    CHECK(cudaEventRecord(start, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(stop, stream));
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (r > 1) us.push_back(ms * 1e3 / calls);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

void Bench() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr int64_t kBytes = int64_t{2} << 30;
  auto* in = Allocate<uint8_t>(kBytes);
  auto* out = Allocate<uint8_t>(kBytes);
  FillInput<<<1056, 256>>>(reinterpret_cast<uint16_t*>(in), kBytes / 2, 1, Fill::kNormal, 1);
  CHECK(cudaDeviceSynchronize());
  const double copy_us = GraphUs(stream, 4, [&](int) {
    return cudaMemcpyAsync(out, in, kBytes, cudaMemcpyDeviceToDevice, stream);
  });
  const double copy_tbps = 2.0 * kBytes / copy_us / 1e6;
  std::printf("copy %.2f TB/s\n%6s %6s %9s | %8s %8s | %10s %10s\n", copy_tbps, "rows", "k",
              "MB moved", "us", "us pdl", "of copy", "over floor");
  struct Size {
    int rows, k;
  };
  for (const Size& s : {Size{1, 4096}, Size{16, 4096}, Size{64, 7168}, Size{128, 4096},
                        Size{128, 16384}, Size{512, 4096}, Size{1024, 7168}, Size{2048, 7168},
                        Size{4096, 7168}, Size{8192, 7168}, Size{8192, 16384}}) {
    const int64_t elements = int64_t(s.rows) * s.k;
    const double bytes = 3.0 * elements + elements / 32.0;
    const int sets = int(std::clamp<int64_t>(kBytes / (elements * 2), 1, 48));
    const int calls = std::max(sets, int(std::min(200.0, 3000 / (bytes / 4e6 + 2))));
    double us[2];
    for (int pdl = 0; pdl < 2; ++pdl) {
      us[pdl] = GraphUs(stream, calls, [&](int i) {
        culet::QuantizeE4m3Args a;
        const int64_t at = i % sets;
        a.rows = s.rows, a.k = s.k, a.source_ld = a.values_ld = s.k;
        a.source = in + at * elements * 2;
        a.values = out + at * elements;
        a.scales = reinterpret_cast<float*>(out + kBytes / 2) + at * elements / 128;
        a.scale_row = s.k / 128, a.scale_group = 1;
        return culet::LaunchQuantizeE4m3(a, pdl != 0, stream);
      });
    }
    std::printf("%6d %6d %9.2f | %8.2f %8.2f | %9.1f%% %10.2f\n", s.rows, s.k, bytes / 1e6, us[0],
                us[1], 100 * bytes / us[0] / 1e6 / copy_tbps, us[0] / (1.9 + bytes / 4.5e6));
  }
}

}  // namespace

int main() {
  const int failed = Verify();
  Bench();
  return failed;
}
