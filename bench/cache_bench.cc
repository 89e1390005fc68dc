// Look-ups in a DispatchCache of 10,000 entries, and the cost of its text form.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "culet/dispatch_cache.h"

namespace culet {
namespace {

constexpr int kEntries = 10'000;

class NullKernel final : public ArgsKernel {
 public:
  NullKernel() : ArgsKernel(KernelDesc{}, KernelInfo{.name = "bench/null"}) {}
  int Run(const GemmArgs&, int, int, Workspace&, cudaStream_t) override { return 0; }
};

NullKernel& Kernel0() {
  static NullKernel kernel;
  return kernel;
}

// 100 weight shapes with 100 batch sizes each, in random order: every look-up takes another path.
std::vector<GemmDesc> Problems() {
  std::vector<GemmDesc> problems;
  for (int i = 0; i < kEntries; ++i) {
    GemmDesc desc;
    desc.a.type = desc.b.type = desc.d.type = DataType::kBfloat16;
    desc.n = 512 * (1 + i / 1000);
    desc.k = 512 * (1 + i / 100 % 10);
    desc.m = 2 * (1 + i % 100);
    problems.push_back(desc);
  }
  std::ranges::shuffle(problems, std::mt19937(1));
  return problems;
}

DispatchCache FilledCache() {
  DispatchCache cache({&Kernel0()}, "bench");
  LaunchSpec spec{.kernel = &Kernel0(), .time_us = 1.0 / 3, .origin = Origin::kMeasured};
  for (const GemmDesc& desc : Problems()) cache.Insert(desc, spec);
  return cache;
}

void BM_FindHit(benchmark::State& state) {
  const DispatchCache cache = FilledCache();
  const auto problems = Problems();
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.Find(problems[i]));
    i = i + 1 < problems.size() ? i + 1 : 0;
  }
}
BENCHMARK(BM_FindHit);

void BM_FindMiss(benchmark::State& state) {
  const DispatchCache cache = FilledCache();
  auto problems = Problems();
  for (GemmDesc& desc : problems) desc.m += 1;
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.Find(problems[i]));
    i = i + 1 < problems.size() ? i + 1 : 0;
  }
}
BENCHMARK(BM_FindMiss);

void BM_LowerBound(benchmark::State& state) {
  const DispatchCache cache = FilledCache();
  auto problems = Problems();
  for (GemmDesc& desc : problems) desc.m += 1;
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.LowerBound(problems[i]));
    i = i + 1 < problems.size() ? i + 1 : 0;
  }
}
BENCHMARK(BM_LowerBound);

void BM_Export(benchmark::State& state) {
  const DispatchCache cache = FilledCache();
  for (auto _ : state) {
    std::ostringstream text;
    benchmark::DoNotOptimize(cache.Export(text));
  }
  state.SetItemsProcessed(state.iterations() * kEntries);
}
BENCHMARK(BM_Export)->Unit(benchmark::kMillisecond);

void BM_Import(benchmark::State& state) {
  std::ostringstream text;
  FilledCache().Export(text);
  for (auto _ : state) {
    DispatchCache cache({&Kernel0()}, "bench");
    std::istringstream stream(text.str());
    benchmark::DoNotOptimize(cache.Import(stream));
  }
  state.SetItemsProcessed(state.iterations() * kEntries);
}
BENCHMARK(BM_Import)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace culet

BENCHMARK_MAIN();
