// Verifies and times the Hopper block-scaled FP8 kernels on one GPU, with nothing but the CUDA
// runtime.
//   sm90_bench verify [substring]
//   sm90_bench bench ANCHORS.csv [--m 256,512] [--only substring] [--keep 6] [--reps 7] [--log
//   FILE] [--colmajor] [--pdl | --both] [--sample-us 3000]
// verify: exact-integer inputs (equality after one rounding), then normal data against an FP64
// product; poisoned outputs, guard zones, edges of m, n, k and both scale orders. bench: CUDA
// graphs over rotating inputs of more than 220 MB, a first pass over all candidates, then
// interleaved medians of the best `keep`.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
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

// One block a (row group x 128 of k): rows_per_scale is 1 (A) or 128 (B). Values rounded to BF16,
// then quantised as amax / 448.
__global__ void FillOperand(uint8_t* out, int64_t ld, float* scales, int scale_row, int scale_block,
                            int rows, int k, int rows_per_scale, bool integers, uint64_t seed) {
  const int kb = blockIdx.x, group = blockIdx.y, k0 = kb * 128;
  const int first = group * rows_per_scale, last = min(rows, first + rows_per_scale);
  __shared__ float amax;
  if (threadIdx.x == 0) amax = 1e-4f;
  __syncthreads();
  if (!integers) {
    float most = 0.0f;
    for (int i = threadIdx.x; i < (last - first) * 128; i += blockDim.x) {
      const int r = first + i / 128, c = k0 + i % 128;
      if (c < k)
        most = fmaxf(most,
                     fabsf(__bfloat162float(__float2bfloat16(Normal(seed + uint64_t(r) * k + c)))));
    }
    for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(&amax), __float_as_int(most));
    __syncthreads();
  }
  const float scale =
      integers ? exp2f(float(int(Hash(seed + 77 + group * 131 + kb) % 3) - 1)) : amax / 448.0f;
  for (int i = threadIdx.x; i < (last - first) * 128; i += blockDim.x) {
    const int r = first + i / 128, c = k0 + i % 128;
    if (c >= k) continue;
    const uint64_t at = seed + uint64_t(r) * k + c;
    const float v = integers ? float(int(Hash(at) % 7) - 3)
                             : __bfloat162float(__float2bfloat16(Normal(at))) / scale;
    __nv_fp8_e4m3 q(v);
    out[int64_t(r) * ld + c] = q.__x;
  }
  if (threadIdx.x == 0) scales[group * scale_row + kb * scale_block] = scale;
}

__global__ void Reference(Problem p, const int* rows, const int* columns, int row_count,
                          int column_count, double* out) {
  const int index = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (index >= row_count * column_count) return;
  const int r = rows[index / column_count], c = columns[index % column_count];
  const auto* a = static_cast<const uint8_t*>(p.a) + int64_t(r) * p.lda;
  const auto* b = static_cast<const uint8_t*>(p.b) + int64_t(c) * p.ldb;
  double sum = 0;
  for (int i = lane; i < p.k; i += 32) {
    const int kb = i / 128;
    __nv_fp8_e4m3 x, y;
    x.__x = a[i];
    y.__x = b[i];
    sum += double(float(x)) * double(float(y)) *
           double(p.scale_a[r * p.scale_a_row + kb * p.scale_a_block]) *
           double(p.scale_b[(c / 128) * p.scale_b_column + kb * p.scale_b_block]);
  }
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) out[index] = sum;
}

// Elements that still hold the poison, and guard elements (around the matrix, and between n and
// ldd) that no longer do.
__global__ void Scan(const uint16_t* d, int m, int n, int64_t ldd, int64_t guard,
                     unsigned* unwritten, unsigned* broken) {
  const int64_t total = guard + int64_t(m) * ldd + guard;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < total;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t at = i - guard;
    const bool inside = at >= 0 && at < int64_t(m) * ldd && at % ldd < n;
    if (inside && d[i] == 0xFFFF) atomicAdd(unwritten, 1u);
    if (!inside && d[i] != 0xFFFF) atomicAdd(broken, 1u);
  }
}

template <class T>
T* Allocate(size_t count) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, count * sizeof(T) + 256));
  return static_cast<T*>(p);
}

constexpr int64_t kGuard = 4096;

// A problem with its own memory.
struct Data {
  Problem p;
  uint16_t* d_base = nullptr;
  Data(int m, int n, int k, Fill fill, bool column_major_scales, int pad, uint64_t seed) {
    const int blocks = (k + 127) / 128, columns = (n + 127) / 128;
    p.m = m, p.n = n, p.k = k;
    p.lda = k + pad * 16, p.ldb = k + pad * 32, p.ldd = n + pad * 8;
    p.scale_a_row = column_major_scales ? 1 : blocks;
    p.scale_a_block = column_major_scales ? m + pad * 3 : 1;
    p.scale_b_column = blocks;
    p.scale_b_block = 1;
    auto* a = Allocate<uint8_t>(size_t(m) * p.lda);
    auto* b = Allocate<uint8_t>(size_t(n) * p.ldb);
    // 0x7F is NaN: padding must never reach a result.
    CHECK(cudaMemset(a, 0x7F, size_t(m) * p.lda));
    CHECK(cudaMemset(b, 0x7F, size_t(n) * p.ldb));
    auto* sa = Allocate<float>(size_t(m + pad * 3) * blocks);
    auto* sb = Allocate<float>(size_t(columns) * blocks);
    d_base = Allocate<uint16_t>(size_t(m) * p.ldd + 2 * kGuard);
    FillOperand<<<dim3(blocks, m), 128>>>(a, p.lda, sa, p.scale_a_row, p.scale_a_block, m, k, 1,
                                          fill == Fill::kIntegers, seed);
    FillOperand<<<dim3(blocks, columns), 512>>>(b, p.ldb, sb, p.scale_b_column, p.scale_b_block, n,
                                                k, 128, fill == Fill::kIntegers,
                                                seed + (1ull << 40));
    CHECK(cudaGetLastError());
    p.a = a, p.b = b, p.scale_a = sa, p.scale_b = sb, p.d = d_base + kGuard;
  }
  void Poison() {
    CHECK(cudaMemset(d_base, 0xFF, (size_t(p.m) * p.ldd + 2 * kGuard) * 2));
    CHECK(cudaDeviceSynchronize());  // the launch comes on a stream that does not wait for this one
  }
  ~Data() {
    for (const void* x : {p.a, p.b, static_cast<const void*>(p.scale_a),
                          static_cast<const void*>(p.scale_b), static_cast<const void*>(d_base)})
      CHECK(cudaFree(const_cast<void*>(x)));
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
  ReferenceValues(const Problem& p)
      : rows(Sample(p.m, 64)), columns(Sample(p.n, 256)), values(rows.size() * columns.size()) {
    int* r = Allocate<int>(rows.size());
    int* c = Allocate<int>(columns.size());
    double* o = Allocate<double>(values.size());
    CHECK(cudaMemcpy(r, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(c, columns.data(), columns.size() * 4, cudaMemcpyHostToDevice));
    Reference<<<int(values.size() + 7) / 8, 256>>>(p, r, c, int(rows.size()), int(columns.size()),
                                                   o);
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
  Scan<<<264, 512>>>(data.d_base, p.m, p.n, p.ldd, kGuard, counters, counters + 1);
  unsigned host[2];
  CHECK(cudaMemcpy(host, counters, 8, cudaMemcpyDeviceToHost));
  v.unwritten = host[0], v.broken = host[1];
  std::vector<uint16_t> row(p.n);
  double error = 0, norm = 0;
  for (size_t i = 0; i < reference.rows.size(); ++i) {
    CHECK(cudaMemcpy(row.data(),
                     static_cast<const uint16_t*>(p.d) + int64_t(reference.rows[i]) * p.ldd,
                     size_t(p.n) * 2, cudaMemcpyDeviceToHost));
    for (size_t j = 0; j < reference.columns.size(); ++j) {
      const double want = reference.values[i * reference.columns.size() + j];
      const uint32_t bits = uint32_t(row[reference.columns[j]]) << 16;
      float got;
      std::memcpy(&got, &bits, 4);
      error += (got - want) * (got - want);
      norm += want * want;
      if (!(double(got) == double(__bfloat162float(__float2bfloat16(float(want)))))) ++v.mismatches;
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
  int failed = 0, run = 0, refused = 0;
  std::map<std::string, int> bad;
  for (const Shape& s : shapes) {
    for (Fill fill : {Fill::kIntegers, Fill::kNormal}) {
      Data data(s.m, s.n, s.k, fill, s.column_major, s.pad, 1234 + s.m);
      const ReferenceValues reference(data.p);
      for (const Candidate& candidate : candidates) {
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
        const double limit = 1.7e-3 * (1 + 4 / std::sqrt(double(reference.values.size())));
        const bool ok = v.unwritten == 0 && v.broken == 0 &&
                        (v.mismatches == 0 || (fill == Fill::kNormal && v.relative_l2 <= limit));
        ++run;
        if (!ok) {
          ++failed;
          if (bad[candidate.id]++ < 3)
            std::printf(
                "FAIL %s m=%d n=%d k=%d %s: rel %.2e, %ld differ, %u unwritten, %u guards broken\n",
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
  double deep_gemm_us, best_peer_us, limit_us;
};

std::vector<Anchor> ReadAnchors(const char* path) {
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
    if (cells.size() < 10 || cells[0] == "layer") continue;
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

struct Options {
  std::string only, log;
  std::vector<int> ms;
  int keep = 6, reps = 7;
  double sample_us = 3000;
  bool column_major = false, pdl = false, both = false;
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
              "/DG", "/best", "kernel");
  for (const Anchor& anchor : anchors) {
    if (!options.ms.empty() &&
        std::find(options.ms.begin(), options.ms.end(), anchor.m) == options.ms.end())
      continue;
    const int m = anchor.m, n = anchor.n, k = anchor.k;
    Data data(m, n, k, Fill::kNormal, options.column_major, 0, 99);
    const double set_bytes = double(m) * k + double(n) * k + 2.0 * m * n, flops = 2.0 * m * n * k;
    const int sets = std::max(1, std::min(48, int(std::ceil(220e6 / set_bytes))));
    const double estimate_us = std::max(flops / 1000e6, set_bytes / 3e6);
    const int calls = std::max({sets, std::min(200, int(options.sample_us / estimate_us)), 4});
    std::vector<Problem> problems(sets, data.p);
    std::vector<void*> owned;
    for (int i = 1; i < sets; ++i) {
      auto* a = Allocate<uint8_t>(size_t(m) * k);
      auto* b = Allocate<uint8_t>(size_t(n) * k);
      auto* d = Allocate<uint16_t>(size_t(m) * n);
      CHECK(cudaMemcpy(a, data.p.a, size_t(m) * k, cudaMemcpyDeviceToDevice));
      CHECK(cudaMemcpy(b, data.p.b, size_t(n) * k, cudaMemcpyDeviceToDevice));
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
                  k, best_us, best_us / anchor.limit_us, best_us / anchor.deep_gemm_us,
                  best_us / anchor.best_peer_us, best->candidate->id.c_str());
      log_dg += std::log(best_us / anchor.deep_gemm_us);
      log_limit += std::log(best_us / anchor.limit_us);
      ++rows;
    }
    for (Timed& t : timed) CHECK(cudaGraphExecDestroy(t.graph));
    for (void* p : owned) CHECK(cudaFree(p));
    std::fflush(stdout);
    if (log != nullptr) std::fflush(log);
  }
  if (rows > 0)
    std::printf("%d rows: geometric mean over limit %.3f, over DeepGEMM's anchor %.3f\n", rows,
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
    else if (arg == "--m") {
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
      if (options.only.empty() || c.id.find(options.only) != std::string::npos)
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
  if (mode == "bench") return Bench(candidates, ReadAnchors(path.c_str()), options, stream);
  std::printf(
      "usage: sm90_bench verify [substring] | bench ANCHORS.csv [--m LIST] [--only TEXT] [--keep "
      "N] [--reps N] [--log FILE]\n");
  return 2;
}

}  // namespace culet::bench

int main(int argc, char** argv) { return culet::bench::Main(argc, argv); }
