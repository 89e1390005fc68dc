// The skinny kernels for Hopper compiled for the CPU, beside products in double. What a kernel may
// not read before the kernel before it has ended is NaN until then.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "host_cuda/host_cuda.h"
#include "kernels/sm90/skinny/fused.h"

namespace culet::sm90 {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Numbers of few bits, so that products and sums are exact in FP32 and in every order.
std::vector<float> Small(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8;
  return values;
}

std::vector<std::uint8_t> Coded(const std::vector<float>& values, DataType type) {
  std::vector<std::uint8_t> bytes;
  for (const float v : values) {
    if (type == DataType::kFloat8_e4m3) {
      bytes.push_back(FloatToFloat8E4m3(v));
      continue;
    }
    const std::uint16_t half = type == DataType::kBfloat16 ? FloatToBfloat16(v) : FloatToFloat16(v);
    bytes.push_back(static_cast<std::uint8_t>(half));
    bytes.push_back(static_cast<std::uint8_t>(half >> 8));
  }
  return bytes;
}

// Bytes in which every element of 8 and 16 bits is NaN.
std::vector<std::uint8_t> Unknown(std::size_t bytes) {
  return std::vector<std::uint8_t>(bytes, 0xFF);
}

/// A launch in which `later` becomes `now` only when the kernel waits, until which `untouched`.
template <class Launch, class Untouched>
std::string Run(const Launch& launch, bool pdl, std::vector<std::uint8_t>& later,
                const std::vector<std::uint8_t>& now, const Untouched& untouched) {
  later = pdl ? Unknown(now.size()) : now;
  bool wrote = false;
  if (pdl) {
    host_cuda::OnWait([&] {
      wrote = !untouched();
      std::ranges::copy(now, later.begin());
    });
  }
  const cudaError_t error = launch();
  host_cuda::OnWait(nullptr);
  return error != cudaSuccess ? host_cuda::Fault() : wrote ? "wrote before it waited" : "";
}

bool AllNan(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float v) { return std::isnan(v); });
}

struct Shape {
  int m, n, k;
};

// `held`: without a bias, which a launch that holds its weights leaves to the others.
void CheckPlain(const SkinnyKernel& kernel, Shape shape, int splits, bool pdl, bool held = false) {
  SCOPED_TRACE(kernel.Id() + " m " + std::to_string(shape.m) + " n " + std::to_string(shape.n) +
               " k " + std::to_string(shape.k) + " splits " + std::to_string(splits) +
               (pdl ? " pdl" : ""));
  const auto [m, n, k] = shape;
  const std::vector<float> a = Small(std::size_t(m) * k, 1), b = Small(std::size_t(n) * k, 2);
  const int blocks = (k + 127) / 128, columns = (n + 127) / 128;
  const bool scaled = kernel.format->sums == Sums::kBlockScaled;
  std::vector<float> u(std::size_t(m) * blocks, 1), v(std::size_t(columns) * blocks, 1);
  for (std::size_t i = 0; i < u.size() && scaled; ++i) u[i] = static_cast<float>(1 + i % 3);
  for (std::size_t i = 0; i < v.size() && scaled; ++i) v[i] = 0.5f * static_cast<float>(1 + i % 2);
  const auto a_now = Coded(a, kernel.format->type), b_coded = Coded(b, kernel.format->type);
  std::vector<std::uint8_t> a_later(a_now.size());
  std::vector<float> d(std::size_t(m) * n, kNan);
  std::vector<std::uint16_t> half(d.size(), 0xFFFF);
  const bool narrow = kernel.epilogue == EpilogueKind::kPlain && kernel.output != OutputType::kF32;
  const std::vector<float> bias = Small(std::size_t(n), 3);

  ProductProblem problem;
  problem.m = m, problem.n = n, problem.k = k;
  problem.lda = problem.ldb = k, problem.ldd = n;
  problem.a = a_later.data(), problem.b = b_coded.data();
  problem.d = narrow ? static_cast<void*>(half.data()) : d.data();
  problem.scale_a = u.data(), problem.scale_b = v.data();
  problem.scale_a_row = blocks, problem.scale_a_block = 1;
  problem.scale_b_column = blocks, problem.scale_b_block = 1;
  problem.alpha = 2;
  problem.pdl = pdl;
  problem.pdl_chain = pdl && m > 1;
  problem.epilogue.d_type = OutputType::kF32;
  problem.epilogue.bias = held ? nullptr : bias.data();
  problem.epilogue.bias_type = OutputType::kF32;
  SkinnyLaunch launch;
  ASSERT_TRUE(PlanSkinny(kernel, problem, splits, &launch));
  // The next kernel's weights may be written by the preceding kernel, unless the problem excludes
  // it.
  ASSERT_EQ(launch.params.early_next, problem.pdl_chain ? 1 : 0);
  ASSERT_EQ(launch.Function(), held && kernel.held != nullptr ? kernel.held : kernel.function);
  ASSERT_EQ(Load(kernel), cudaSuccess);
  const auto untouched = [&] {
    return AllNan(d) && std::ranges::all_of(half, [](std::uint16_t h) { return h == 0xFFFF; });
  };
  ASSERT_EQ(Run([&] { return launch.Start(nullptr); }, pdl, a_later, a_now, untouched), "");
  const bool general = kernel.epilogue == EpilogueKind::kGeneral && !held;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int x = 0; x < k; ++x) {
        sum += double(a[std::size_t(i) * k + x]) * b[std::size_t(j) * k + x] *
               u[std::size_t(i) * blocks + x / 128] * v[std::size_t(j / 128) * blocks + x / 128];
      }
      sum = 2 * sum + (general ? bias[j] : 0);
      const std::size_t at = std::size_t(i) * n + j;
      const double got = narrow ? Bfloat16ToFloat(half[at]) : d[at];
      ASSERT_NEAR(got, sum, narrow ? std::abs(sum) / 256 : 0) << i << ", " << j;
    }
  }
}

TEST(HostSkinny, AllKernelsMultiply) {
  for (const SkinnyKernel& kernel : SkinnyKernels()) {
    const int align = 16 / kernel.format->element_bytes;
    for (const bool pdl : {false, true}) {
      CheckPlain(kernel, {1, 72, 3 * kernel.block_k() + align}, 2, pdl);
      CheckPlain(kernel, {8, 50, 5 * kernel.block_k()}, 4, pdl);
      CheckPlain(kernel, {3, 7, 9 * kernel.block_k() - align}, 1, pdl);
    }
    const int of_warp = kernel.depth() * kernel.block_k();
    CheckPlain(kernel, {1, 72, 4 * of_warp}, 4, true, true);
    CheckPlain(kernel, {5, 51, of_warp}, 1, true, true);  // odd columns, groups behind the last row
    CheckPlain(kernel, {8, 7, 3 * of_warp}, 3, true, true);
    CheckPlain(kernel, {8, 40, 2 * of_warp}, 2, true, false);  // would, but for its bias
  }
}

// A = RmsNorm(x + y), D = A B or SwiGLU of its halves, all rounded as where they are stored.
void CheckFused(const SkinnyKernel& kernel, Shape shape, int splits, bool pdl, bool adds,
                bool held = false) {
  SCOPED_TRACE(kernel.Id() + " m " + std::to_string(shape.m) + " n " + std::to_string(shape.n) +
               " k " + std::to_string(shape.k) + " splits " + std::to_string(splits) +
               (pdl ? " pdl" : "") + (adds ? " adds" : ""));
  const auto [m, n, k] = shape;
  const bool gated = kernel.fusion == SkinnyFusion::kNormGated;
  const std::size_t rows = std::size_t(m) * k;
  std::vector<float> x = Small(rows, 4), y = Small(rows, 5);
  const std::vector<float> gamma = Small(std::size_t(k), 6), b = Small(std::size_t(n) * k, 7);
  const auto gamma_coded = Coded(gamma, DataType::kBfloat16);
  const auto b_coded = Coded(b, DataType::kBfloat16);
  const int cols = gated ? n / 2 : n;
  std::vector<float> d(std::size_t(m) * cols, kNan), sum(rows, kNan);
  std::vector<std::uint8_t> now(2 * rows * 4), later(now.size());
  std::memcpy(now.data(), x.data(), rows * 4);
  std::memcpy(now.data() + rows * 4, y.data(), rows * 4);

  ProductProblem problem;
  problem.m = m, problem.n = n, problem.k = k;
  problem.lda = problem.ldb = k, problem.ldd = n;
  problem.b = b_coded.data();
  problem.d = d.data();
  problem.pdl = pdl;
  problem.epilogue.d_type = OutputType::kF32;
  alignas(16) std::vector<std::uint8_t> aligned_gamma(gamma_coded.size() + 16);
  auto* const gamma_at = reinterpret_cast<std::uint8_t*>(
      (reinterpret_cast<std::uintptr_t>(aligned_gamma.data()) + 15) / 16 * 16);
  std::ranges::copy(gamma_coded, gamma_at);
  ProductFusion fusion;
  fusion.gamma = gamma_at;
  fusion.gamma_type = DataType::kBfloat16;
  fusion.epsilon = 1e-5f;
  fusion.adds = adds;
  fusion.gated = gated;
  FusedSkinnyLaunch launch;
  ASSERT_TRUE(PlanFusedSkinny(kernel, problem, fusion, splits, &launch));
  ASSERT_EQ(launch.Function(), held ? kernel.held : kernel.function);
  ASSERT_EQ(Load(kernel), cudaSuccess);
  launch.params.sum = adds ? sum.data() : nullptr;
  const auto start = [&] {
    launch.params.x = reinterpret_cast<const float*>(later.data());
    launch.params.y = adds ? launch.params.x + rows : nullptr;
    return launch.Start(nullptr);
  };
  ASSERT_EQ(Run(start, pdl, later, now, [&] { return AllNan(d) && AllNan(sum); }), "");
  for (int i = 0; i < m; ++i) {
    std::vector<double> row(static_cast<std::size_t>(k));
    double squares = 0;
    for (int e = 0; e < k; ++e) {
      const std::size_t at = std::size_t(i) * k + e;
      row[e] = double(x[at]) + (adds ? y[at] : 0);
      if (adds) {
        ASSERT_EQ(sum[at], row[e]);
      }
      squares += row[e] * row[e];
    }
    const double scale = 1 / std::sqrt(squares / k + 1e-5);
    for (int e = 0; e < k; ++e) {
      row[e] = Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(row[e] * scale * gamma[e])));
    }
    const auto product = [&](int j) {
      double all = 0;
      for (int e = 0; e < k; ++e) all += row[e] * b[std::size_t(j) * k + e];
      return all;
    };
    for (int j = 0; j < cols; ++j) {
      double want = product(j);
      if (gated) want = want / (1 + std::exp(-want)) * product(j + cols);
      // An element of A may be rounded the other way.
      ASSERT_NEAR(d[std::size_t(i) * cols + j], want, 0.02 * (1 + std::abs(want)))
          << i << ", " << j;
    }
  }
}

TEST(HostSkinny, AllFusedKernelsNormAndMultiply) {
  for (const SkinnyKernel& kernel : FusedSkinnyKernels()) {
    for (const bool pdl : {false, true}) {
      CheckFused(kernel, {1, 96, 264}, 2, pdl, true);
      CheckFused(kernel, {1, 48, 1088}, 4, pdl, false);
      CheckFused(kernel, {5, 80, 320}, 3, pdl, true);
    }
    const int of_warp = kernel.depth() * kernel.block_k();
    CheckFused(kernel, {1, 48, 4 * of_warp}, 4, true, true, true);
    CheckFused(kernel, {1, 80, 2 * of_warp}, 2, true, false, true);  // groups behind the last row
    CheckFused(kernel, {2, 48, 8 * of_warp}, 8, true, true, kernel.depth() < 4);
  }
}

}  // namespace
}  // namespace culet::sm90
