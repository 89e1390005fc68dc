// sm90_bench verify: every candidate against FP64 references, with guards around poisoned outputs.
#pragma once

#include "bench/sm90_data.cuh"

namespace culet::bench {
namespace {

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
  unsigned unstable = 0;  // bytes of D that depend on what shared memory held before
};

constexpr int kSharedBytes = 232448;  // of a CTA, at most

// What a kernel finds in shared memory: what lies beyond a matrix is not loaded.
__global__ void FillShared(uint32_t word) {
  extern __shared__ uint32_t words[];
  volatile uint32_t* const to = words;
  for (int i = threadIdx.x; i < kSharedBytes / 4; i += blockDim.x) to[i] = word;
}

__global__ void CountDifferences(const uint8_t* a, const uint8_t* b, size_t bytes,
                                 unsigned* count) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes; i += step)
    if (a[i] != b[i]) atomicAdd(count, 1u);
}

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
  v.relative_l2 = std::sqrt(error / std::max(norm, 1e-300));
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
                  {.kind = EpilogueKind::kGated, .bias = true, .halves = true},
                  {.kind = EpilogueKind::kGatedQuant},
                  {.kind = EpilogueKind::kGatedQuant, .halves = true},
                  // Scales that FP32 cannot invert.
                  {.kind = EpilogueKind::kGatedQuant, .alpha = 0x1p-56f}};
  struct Turn {
    const FormatInfo* format;
    const Extras* extras;
  };
  std::vector<Turn> turns;
  std::set<const FormatInfo*> formats;
  for (const Candidate& candidate : candidates) formats.insert(candidate.format);
  for (const FormatInfo* format : formats)
    for (const Extras& e : extras) turns.push_back({format, &e});
  CHECK(
      cudaFuncSetAttribute(FillShared, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  unsigned* const unstable = Allocate<unsigned>(1);
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
        const int pairs = extra->halves && HasBlockScales(*format) ? 256 : 16;  // of columns
        const int n = sm90::IsGated(extra->kind) ? s.n / pairs * pairs : s.n;
        if (n == 0) continue;
        Data data(*format, s.m, n, s.k, fill, s.column_major, s.pad, 1234 + s.m, *extra);
        const ReferenceValues reference(data);
        uint8_t* const first = Allocate<uint8_t>(data.d_bytes() + data.scale_bytes());
        for (const Candidate& candidate : candidates) {
          if (!takes(candidate)) continue;
          data.Poison();
          const Launcher launch = candidate.plan(data.p);
          if (!launch) {
            ++refused;
            continue;
          }
          // Once with zeros in shared memory, once with NaN.
          for (int repeat = 0; repeat < 2; ++repeat) {
            FillShared<<<data.p.sms, 1024, kSharedBytes, stream>>>(repeat == 0 ? 0 : ~0u);
            CHECK(launch(stream));
            if (repeat > 0) continue;
            CHECK(cudaMemcpyAsync(first, data.d_base, data.d_bytes(), cudaMemcpyDeviceToDevice,
                                  stream));
            CHECK(cudaMemcpyAsync(first + data.d_bytes(), data.p.epilogue.d_scale,
                                  data.scale_bytes(), cudaMemcpyDeviceToDevice, stream));
          }
          CHECK(cudaMemsetAsync(unstable, 0, sizeof(unsigned), stream));
          const auto count = [&](const uint8_t* before, const void* after, size_t bytes) {
            CountDifferences<<<1024, 256, 0, stream>>>(before, static_cast<const uint8_t*>(after),
                                                       bytes, unstable);
          };
          count(first, data.d_base, data.d_bytes());
          count(first + data.d_bytes(), data.p.epilogue.d_scale, data.scale_bytes());
          const cudaError_t status = cudaStreamSynchronize(stream);
          if (status != cudaSuccess) {
            std::printf("FAIL %s m=%d n=%d k=%d: %s\n", candidate.id.c_str(), s.m, s.n, s.k,
                        cudaGetErrorString(status));
            return 1;
          }
          Verdict v = Compare(data, reference);
          CHECK(cudaMemcpy(&v.unstable, unstable, sizeof(unsigned), cudaMemcpyDeviceToHost));
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
          const bool ok = v.unwritten == 0 && v.broken == 0 && v.unstable == 0 &&
                          (v.mismatches == 0 || (!exact && v.relative_l2 <= limit));
          ++run;
          if (!ok) {
            ++failed;
            if (bad[candidate.id]++ < 3)
              std::printf(
                  "FAIL %s m=%d n=%d k=%d %s: rel %.2e, %ld differ, %u unwritten, %u guards "
                  "broken, %u bytes of what shared memory held\n",
                  candidate.id.c_str(), s.m, s.n, s.k,
                  fill == Fill::kIntegers ? "integers" : "normal", v.relative_l2, v.mismatches,
                  v.unwritten, v.broken, v.unstable);
          }
        }
        CHECK(cudaFree(first));
      }
    }
  CHECK(cudaFree(unstable));
  std::printf("verify: %d runs of %zu candidates, %d refused, %d failed\n", run, candidates.size(),
              refused, failed);
  return failed != 0;
}

}  // namespace
}  // namespace culet::bench
