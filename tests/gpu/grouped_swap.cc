// The grouped kernels (kernels/sm90/grouped/swap.h) on integers, against sums in double.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "grouped.h"
#include "jobs.h"
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/grouped/swap.h"
#include "on_device.h"

namespace culet {
namespace {

using sm90::GroupedSkinnyKernel;
using sm90::GroupedSwapKernel;

constexpr int kRows = 700, kGuardRows = 3, kSms = 132;

struct Case {
  const char* name;
  std::vector<int> starts, counts;  // no counts: a group ends where the next one starts
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"contiguous", {0, 0, 1, 8, 136, 265, 565, 629, 700}, {}},
      {"few", {0, 1, 1, 4, 13, 13, 29, 30, 31}, {}},
      {"with gaps", {5, 40, 180, 181, 330, 470, 640, 690}, {30, 127, 1, 128, 9, 150, 45, 10}},
      {"one has all", {0, 0, 0, 0, 0, 700, 700, 700, 700}, {}},
      {"none", {0, 0, 0, 0, 0, 0, 0, 0, 0}, {}},
      {"offsets beyond the rows", {-5, 100, 100, 690, 2000000000, -2000000000, -7, 0, 0}, {}},
      {"beyond the rows",
       {-5, 100, 690, 2000000000, 650, 200, 300, 400},
       {10, -3, 2000000000, 2000000000, 7, 13, 1, 2}},
  };
  return cases;
}

// What a launch is checked with besides its groups.
struct Options {
  int n, k;
  bool gathers = false, factors = false, bias = false, clamped = false;
  DataType output = DataType::kBfloat16;
  int splits = 1;
};

std::string IdOf(const GroupedSwapKernel& kernel) { return kernel.id; }
std::string IdOf(const GroupedSkinnyKernel& kernel) { return kernel.Id(); }

// Why the kernel does not launch the problem, or null.
const char* Start(const GroupedSwapKernel& kernel, const sm90::GroupedProblem& p, int splits,
                  const std::string& name) {
  if (const char* const why = WhyNotGrouped(p, *kernel.format, kernel.gated)) return why;
  sm90::GroupedSwapLaunch launch;
  if (!PlanGroupedSwap(kernel, p, splits, kSms, &launch)) return "no plan";
  CheckCuda(sm90::LoadKernel(kernel.function, kernel.smem_bytes), name);
  CheckCuda(launch.Start(nullptr), name);
  return nullptr;
}
const char* Start(const GroupedSkinnyKernel& kernel, const sm90::GroupedProblem& p, int splits,
                  const std::string& name) {
  if (const char* const why = WhyNotGroupedSkinny(p, *kernel.format, kernel.gated)) return why;
  const sm90::GroupedSkinnyLaunch launch = PlanGroupedSkinny(kernel, p, splits, kSms);
  CheckCuda(Load(kernel), name);
  CheckCuda(launch.Start(nullptr), name);
  return nullptr;
}

template <class Kernel>
std::string NameOf(const Kernel& kernel, const Case& c, const Options& o) {
  return fmt::format("{}/k{} n={} k={} {}{}{}{}{} to {}", IdOf(kernel), o.splits, o.n, o.k, c.name,
                     o.gathers ? ", gathered" : "", o.factors ? ", factors" : "",
                     o.bias ? ", bias" : "", o.clamped ? ", clamped" : "",
                     o.output == DataType::kFloat32 ? "f32" : "bf16");
}

template <class Kernel>
bool Check(const Kernel& kernel, const Case& c, const Options& o) {
  const bool fp8 = kernel.format->element_bytes == 1, gated = kernel.gated;
  const int groups = 8, parts = gated ? 2 : 1, a_rows = o.gathers ? 90 : kRows;
  const int k_blocks = (o.k + 127) / 128, n_blocks = (o.n + 127) / 128;
  std::mt19937 random(static_cast<unsigned>(o.n * 7 + o.k + o.splits));
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const auto pick = [&](std::size_t count, int most) {
    std::vector<float> values(count);
    for (float& x : values)
      x = static_cast<float>(static_cast<int>(random() % (2 * most + 1)) - most);
    return values;
  };
  const std::vector<float> a = pick(size(std::int64_t{a_rows} * o.k), 3);
  const std::vector<float> b = pick(size(std::int64_t{groups} * parts * o.n * o.k), 2);
  const auto codes = [&](const std::vector<float>& values) {
    std::vector<std::uint8_t> bytes(values.size() * (fp8 ? 1 : 2));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (fp8) {
        bytes[i] = FloatToFloat8E4m3(values[i]);
      } else {
        const std::uint16_t half = kernel.format->type == DataType::kFloat16
                                       ? FloatToFloat16(values[i])
                                       : FloatToBfloat16(values[i]);
        bytes[2 * i] = static_cast<std::uint8_t>(half);
        bytes[2 * i + 1] = static_cast<std::uint8_t>(half >> 8);
      }
    }
    return bytes;
  };
  const auto scales = [&](std::int64_t count) {
    std::vector<float> values(size(count));
    for (float& x : values) x = static_cast<float>(1 << random() % 3) / 2;
    return values;
  };
  // Gated values go through exp: small arguments keep errors relative.
  const float shrink = gated ? 1.0f / 64 : 1.0f;
  std::vector<float> scale_a = scales(std::int64_t{a_rows} * k_blocks);
  for (float& x : scale_a) x *= shrink;
  const std::vector<float> scale_b = scales(std::int64_t{groups} * parts * n_blocks * k_blocks);
  const std::vector<float> bias = pick(size(std::int64_t{groups} * parts * o.n), 3);
  const std::vector<float> factors = scales(kRows);
  std::vector<int> index(kRows);
  for (int& x : index) x = static_cast<int>(random() % (2 * size(a_rows)));
  if (o.gathers) index[3] = 2 * a_rows + 5, index[4] = -7;
  const OnDevice<std::uint8_t> da(codes(a)), db(codes(b));
  const OnDevice<float> dsa(scale_a), dsb(scale_b), dbias(bias), dfactors(factors);
  std::vector<int> factor_index(kRows);
  for (int i = 0; i < kRows; ++i) factor_index[size(i)] = (i * 13) % kRows;
  const OnDevice<int> starts(c.starts), counts(c.counts.empty() ? c.starts : c.counts), di(index),
      dfi(factor_index);
  std::vector<const void*> biases;
  for (int g = 0; g < groups * parts; ++g) biases.push_back(dbias.data() + std::int64_t{g} * o.n);
  const OnDevice<const void*> dbiases(biases);
  const std::size_t width = o.output == DataType::kFloat32 ? 4 : 2;
  const std::size_t elements = size(std::int64_t{kRows + 2 * kGuardRows} * o.n);
  const OnDevice<std::uint8_t> d(std::vector<std::uint8_t>(elements * width, 0xff));

  sm90::GroupedProblem p;
  p.groups = groups, p.rows = kRows, p.a_rows = a_rows, p.n = o.n, p.k = o.k;
  p.starts = starts.data();
  if (!c.counts.empty()) p.counts = counts.data();
  if (o.gathers) p.index = di.data(), p.per_row = 2;
  p.a = da.data(), p.lda = o.k, p.scale_a = dsa.data();
  p.scale_a_row = k_blocks, p.scale_a_block = 1;
  p.b = db.data(), p.b_group_rows = std::int64_t{parts} * o.n, p.up_rows = o.n;
  p.scale_b = dsb.data(), p.scale_b_group = std::int64_t{parts} * n_blocks * k_blocks;
  p.scale_b_up = std::int64_t{n_blocks} * k_blocks;
  if (o.bias) p.bias = dbiases.data();
  if (o.factors) p.factors = dfactors.data(), p.factor_index = dfi.data();
  p.d = d.data() + size(std::int64_t{kGuardRows} * o.n) * width;
  p.ldd = o.n, p.d_type = o.output;
  if (o.clamped) p.gate = sm90::GroupedGate::kClamped, p.limit = 2, p.slope = 1.702f;
  const std::string name = NameOf(kernel, c, o);
  if (const char* const why = Start(kernel, p, o.splits, name); why != nullptr) {
    fmt::print("grouped: {}: {}\n", name, why);
    return false;
  }
  CheckCuda(cudaDeviceSynchronize(), name);
  std::vector<std::uint8_t> found(elements * width);
  CheckCuda(cudaMemcpy(found.data(), d.data(), found.size(), cudaMemcpyDeviceToHost), name);

  const auto sum_of = [&](int source, int g, int part, int column) {
    double sum = 0;
    const std::int64_t matrix = std::int64_t{g} * parts + part;
    for (int block = 0; block < k_blocks && source >= 0; ++block) {
      double products = 0;
      for (int i = block * 128; i < std::min(o.k, block * 128 + 128); ++i) {
        products += static_cast<double>(a[size(std::int64_t{source} * o.k + i)]) *
                    b[size((matrix * o.n + column) * o.k + i)];
      }
      const double scale =
          fp8 ? static_cast<double>(scale_a[size(std::int64_t{source} * k_blocks + block)]) *
                    scale_b[size((matrix * n_blocks + column / 128) * k_blocks + block)]
              : 1.0;
      sum += products * scale;
    }
    return sum;
  };
  std::vector<double> expected(elements, std::nan(""));
  for (int g = 0; g < groups; ++g) {
    const std::int64_t start = c.starts[size(g)];
    const std::int64_t end = std::min<std::int64_t>(
        c.counts.empty() ? c.starts[size(g) + 1] : start + std::max(c.counts[size(g)], 0), kRows);
    for (std::int64_t row = std::max<std::int64_t>(start, 0); row < end; ++row) {
      int source = static_cast<int>(row);
      if (o.gathers) source = index[size(row)] < 0 ? -1 : index[size(row)] / 2;
      if (source >= a_rows) source = -1;
      for (int column = 0; column < o.n; ++column) {
        double value[2] = {};
        for (int part = 0; part < parts; ++part) {
          double x = sum_of(source, g, part, column);
          if (o.factors) x *= factors[size(factor_index[size(row)])];
          if (o.bias) x += bias[size((std::int64_t{g} * parts + part) * o.n + column)];
          value[part] = x;
        }
        double result = value[0];
        if (gated && o.clamped) {
          const double gate = std::min(value[0], 2.0), up = std::clamp(value[1], -2.0, 2.0);
          result = gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
        } else if (gated) {
          result = value[0] / (1 + std::exp(-value[0])) * value[1];
        }
        expected[size((row + kGuardRows) * o.n + column)] = result;
      }
    }
  }
  for (std::size_t i = 0; i < elements; ++i) {
    bool right = true;
    double got = 0;
    if (std::isnan(expected[i])) {
      for (std::size_t j = 0; j < width; ++j) right = right && found[i * width + j] == 0xff;
    } else {
      std::uint32_t bits = 0;
      for (std::size_t j = 0; j < width; ++j)
        bits |= std::uint32_t{found[i * width + j]} << (8 * j);
      float value = 0;
      if (width == 4) {
        std::memcpy(&value, &bits, 4);
      } else {
        value = Bfloat16ToFloat(static_cast<std::uint16_t>(bits));
      }
      got = static_cast<double>(value);
      const double bound = (gated ? 2e-5 : 0) * std::abs(expected[i]) + (gated ? 1e-6 : 0);
      // Plain sums are exact, and rounded once.
      right = width == 2 && !gated ? static_cast<std::uint16_t>(bits) ==
                                         FloatToBfloat16(static_cast<float>(expected[i]))
                                   : std::abs(got - expected[i]) <=
                                         bound + (width == 2 ? std::abs(expected[i]) / 250 : 0);
    }
    if (right) continue;
    fmt::print("grouped: {}: row {} column {} is {} instead of {}\n", name,
               static_cast<std::int64_t>(i) / o.n - kGuardRows, static_cast<std::int64_t>(i) % o.n,
               got, expected[i]);
    return false;
  }
  return true;
}

// How many of a kernel's launches are wrong. `most_splits`: 1, or at least 4.
template <class Kernel>
int CountWrong(const Kernel& kernel, int most_splits, int* count) {
  int wrong = 0;
  for (const Case& c : Cases()) {
    std::vector<Options> options = {{.n = 128, .k = 128}, {.n = 264, .k = 1040}};
    if (kernel.format->element_bytes == 1 && kernel.gated) options[1].n = 192;
    options.push_back({.n = 320, .k = 400, .gathers = true, .output = DataType::kFloat32});
    options.push_back({.n = 64, .k = 80, .gathers = true, .factors = true, .bias = true});
    if (kernel.gated) {
      options.push_back({.n = 128, .k = 272, .bias = true, .clamped = true});
    }
    if (most_splits > 1) {
      options.push_back({.n = 128, .k = 1040, .splits = 2});
      options.push_back({.n = 320, .k = 528, .gathers = true, .bias = true, .splits = 4});
    }
    for (const Options& o : options) {
      wrong += Check(kernel, c, o) ? 0 : 1;
      ++*count;
    }
  }
  return wrong;
}

}  // namespace

bool CheckGroupedSwaps() {
  int count = 0, wrong = 0;
  for (const GroupedSwapKernel& kernel : sm90::GroupedSwapKernels())
    wrong += CountWrong(kernel, kernel.split_tokens > 0 ? sm90::kMostGroupedSplits : 1, &count);
  for (const GroupedSkinnyKernel& kernel : sm90::GroupedSkinnyKernels())
    wrong += CountWrong(kernel, sm90::kMostGroupedWarps, &count);
  if (wrong == 0) fmt::print("grouped swap and skinny: {} launches right\n", count);
  return wrong == 0;
}

}  // namespace culet
