// The epilogue of the kernels for few tokens, on the CPU: sums of a tile with alpha, scales, C and
// a bias, by the plain way and by the general one.
#include "kernels/sm90/swap/finish.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/float_types.h"
#include "host_cuda/host_cuda.h"
#include "kernels/sm90/product/silu.cuh"
#include "kernels/sm90/swap/scales.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SwapInstance kAll[] = {
      {{.tokens = 8, .min_ctas = 4}, 0, Hold(4)},
      {{.tokens = 48, .min_ctas = 2}, 0, Hold(2)},
      {{.tokens = 64, .token_groups = 2, .min_ctas = 2}, 0, Hold(2)},
      {{.tokens = 32, .row_groups = 2, .min_ctas = 2}, 0, Hold(2)},
  };
};

// Numbers of few bits, so that every order of products and sums is exact in BF16 too.
std::vector<float> Small(std::size_t count, unsigned seed, int most) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  const unsigned range = 2 * static_cast<unsigned>(most) + 1;
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % range) - most);
  return values;
}

constexpr int kStages = 2;

template <class C>
void Kernel(const SwapParams& p, const std::vector<float>& sums) {
  const Tile tile{.row = 0, .column = 0, .rows = p.m, .group = 0};
  const SwapShared<C> shared(reinterpret_cast<uint8_t*>(host_cuda::DynamicShared()), kStages);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  if (threadIdx.x == 0) BarrierInit(&shared.scales_full[0], 32);
  __syncthreads();
  if (warp == 0) {
    SwapBringFactors<C>(p, shared, tile, lane);
    BarrierArrive(&shared.scales_full[0]);
  }
  if (C::kScaled) BarrierWait(&shared.scales_full[0], 0);
  const int warpgroup = warp / 4, row_group = warpgroup % C::kRowGroups,
            token_group = warpgroup / C::kRowGroups;
  float sum[C::kOwnTokens / 2];
  for (int i = 0; i < C::kOwnTokens / 2; ++i) {
    const int row = row_group * 64 + warp % 4 * 16 + lane / 4 + i % 4 / 2 * 8;
    const int token = token_group * C::kOwnTokens + i / 4 * 8 + lane % 4 * 2 + i % 2;
    sum[i] = token < p.m && row < p.n ? sums[static_cast<std::size_t>(token * p.n + row)] : NAN;
  }
  SwapFinish<C>(p, shared, sum, 0, 1, 0, tile, warp, lane);
}

// One CTA whose sums, of tokens by rows of the weights, are these.
template <class C>
cudaError_t Finish(const SwapParams& p, const std::vector<float>& sums) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(C::kConsumers);
  config.dynamicSmemBytes = static_cast<std::size_t>(C::kLayout.Total(kStages, 1));
  return host_cuda::RunGrid(config, [&] { Kernel<C>(p, sums); });
}

struct Case {
  bool scales_of_lines = false, scales_of_tensors = false, bias = false, c = false;
  OutputType d = OutputType::kBf16;
};

template <class Policy, int kIndex>
void Check(int m, int n, const Case& of) {
  using C = SwapConfig<Policy, List, kIndex, EpilogueKind::kGeneral, OutputType::kBf16>;
  SCOPED_TRACE(testing::Message() << Policy::kInfo.name << " " << kIndex << " m " << m << " n " << n
                                  << " lines " << of.scales_of_lines << " tensors "
                                  << of.scales_of_tensors << " bias " << of.bias << " c " << of.c
                                  << " d " << static_cast<int>(of.d));
  const auto ms = static_cast<std::size_t>(m), ns = static_cast<std::size_t>(n);
  const std::vector<float> sums = Small(ms * ns, 1, 3), scale_a = Small(ms, 2, 3),
                           scale_b = Small(ns, 3, 3), bias = Small(ns, 4, 3),
                           c = Small(ms * ns, 5, 3);
  const std::int64_t ldd = n + 8;
  const float untouched = 77;
  std::vector<float> d_f32(ms * static_cast<std::size_t>(ldd), untouched);
  std::vector<std::uint16_t> d_half(d_f32.size(), FloatToBfloat16(untouched));
  SwapParams p;
  p.m = m, p.n = n, p.ldd = ldd;
  p.d = of.d == OutputType::kF32 ? static_cast<void*>(d_f32.data()) : d_half.data();
  EpilogueParams& e = p.epilogue;
  e.alpha = -2;
  e.d_type = of.d;
  if (of.scales_of_lines || of.scales_of_tensors) {
    e.scale_a = scale_a.data(), e.scale_b = scale_b.data();
    e.scale_a_step = e.scale_b_step = of.scales_of_lines;
  }
  if (of.bias) e.bias = bias.data(), e.bias_type = OutputType::kF32;
  if (of.c) e.c = c.data(), e.c_type = OutputType::kF32, e.ldc = n, e.beta = 2;
  ASSERT_EQ(Finish<C>(p, sums), cudaSuccess) << host_cuda::Fault();
  for (int token = 0; token < m; ++token)
    for (int row = 0; row < ldd; ++row) {
      const auto t = static_cast<std::size_t>(token), r = static_cast<std::size_t>(row);
      float expected = untouched;
      if (row < n) {
        expected = sums[t * ns + r] * e.alpha;
        if (e.scale_a != nullptr)
          expected *= scale_a[of.scales_of_lines ? t : 0] * scale_b[of.scales_of_lines ? r : 0];
        if (of.bias) expected += bias[r];
        if (of.c) expected += e.beta * c[t * ns + r];
      }
      const std::size_t at = t * static_cast<std::size_t>(ldd) + r;
      ASSERT_EQ(of.d == OutputType::kF32 ? d_f32[at] : Bfloat16ToFloat(d_half[at]), expected)
          << "token " << token << " row " << row;
    }
}

template <class Policy>
void CheckAll(const Case& of) {
  Check<Policy, 0>(8, 64, of);
  Check<Policy, 0>(3, 61, of);
  Check<Policy, 1>(48, 64, of);
  Check<Policy, 1>(41, 56, of);
  Check<Policy, 2>(64, 64, of);
  Check<Policy, 2>(21, 64, of);
  Check<Policy, 3>(32, 128, of);
  Check<Policy, 3>(30, 100, of);
}

// Gate and up of a column of D are rows of the weights eight apart. Sums reach far beyond where
// exp(-gate) overflows.
template <class Policy, int kIndex>
void CheckGated(int m, int n, bool scaled, float alpha) {
  using C = SwapConfig<Policy, List, kIndex, EpilogueKind::kGated, OutputType::kBf16>;
  SCOPED_TRACE(testing::Message() << Policy::kInfo.name << " " << kIndex << " m " << m << " n " << n
                                  << " scaled " << scaled << " alpha " << alpha);
  const auto ms = static_cast<std::size_t>(m), ns = static_cast<std::size_t>(n);
  const std::vector<float> sums = Small(ms * ns, 1, 3), scale_a = Small(ms, 2, 3),
                           scale_b = Small(ns, 3, 3);
  const std::int64_t ldd = n / 2 + 8;
  const float untouched = 77;
  std::vector<float> d(ms * static_cast<std::size_t>(ldd), untouched);
  SwapParams p;
  p.m = m, p.n = n, p.ldd = ldd, p.d = d.data();
  EpilogueParams& e = p.epilogue;
  e.alpha = alpha;
  e.d_type = OutputType::kF32;
  if (scaled) {
    e.scale_a = scale_a.data(), e.scale_b = scale_b.data();
    e.scale_a_step = e.scale_b_step = 1;
  }
  ASSERT_EQ(Finish<C>(p, sums), cudaSuccess) << host_cuda::Fault();
  for (std::size_t t = 0; t < ms; ++t)
    for (std::size_t column = 0; column < static_cast<std::size_t>(ldd); ++column) {
      float expected = untouched;
      if (column < ns / 2) {
        const std::size_t gate = column / 8 * 16 + column % 8, up = gate + 8;
        const auto value = [&](std::size_t r) {
          return sums[t * ns + r] * e.alpha * (scaled ? scale_a[t] * scale_b[r] : 1.0f);
        };
        expected = Silu(value(gate)) * value(up);
      }
      ASSERT_EQ(d[t * static_cast<std::size_t>(ldd) + column], expected)
          << "token " << t << " column " << column;
    }
}

TEST(HostCudaSwapFinish, GatesOfEverySize) {
  for (const float alpha : {1.0f, -2.0f, 64.0f}) {
    CheckGated<Fp8Block, 0>(8, 64, false, alpha);
    CheckGated<Bf16Direct, 0>(3, 48, false, alpha);
    CheckGated<Bf16Direct, 1>(41, 64, true, alpha);
    CheckGated<Bf16Direct, 2>(64, 64, false, alpha);
    CheckGated<Bf16Direct, 2>(21, 32, false, alpha);
    CheckGated<Bf16Direct, 3>(30, 112, true, alpha);
  }
}

TEST(HostCudaSwapFinish, ScaledSums) {
  for (const OutputType d : {OutputType::kBf16, OutputType::kF32}) {
    CheckAll<Fp8Fast>({.scales_of_lines = true, .d = d});
    CheckAll<Fp8Fast>({.scales_of_tensors = true, .d = d});
    CheckAll<Fp8Fast>({.d = d});
    CheckAll<Fp8Precise>({.scales_of_lines = true, .d = d});
  }
}

TEST(HostCudaSwapFinish, WhatIsAdded) {
  CheckAll<Fp8Fast>({.scales_of_lines = true, .bias = true});
  CheckAll<Fp8Fast>({.scales_of_lines = true, .c = true});
  CheckAll<Fp8Fast>({.scales_of_tensors = true, .bias = true, .c = true, .d = OutputType::kF32});
}

TEST(HostCudaSwapFinish, Bf16WithScalesAndWithout) {
  CheckAll<Bf16Direct>({});
  CheckAll<Bf16Direct>({.scales_of_lines = true});
  CheckAll<Bf16Direct>({.bias = true, .c = true});
}

}  // namespace
}  // namespace culet::sm90
