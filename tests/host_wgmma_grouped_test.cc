// The grouped kernels of Hopper on the CPU: rows by groups, in place and gathered, plain and gated,
// whole and split along K, exact against sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "host_cuda/host_cuda.h"
#include "host_wgmma_values.h"
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/grouped/swap.h"
#include "kernels/sm90/product/start.h"

namespace culet::sm90 {
namespace {

struct Case {
  std::vector<int> counts;  ///< rows of each group
  int n = 128, k = 128;
  bool gated = false, gathers = false, has_counts = false, bias = false, factors = false,
       pdl = false;
  bool clamped = false;
  bool one_bias = false;  ///< the biases of all groups one behind the other
  DataType d = DataType::kBfloat16;
  int splits = 1;
  int gap = 0;        ///< rows between groups that belong to none; with has_counts
  bool wild = false;  ///< the last three groups, of no rows, begin and end far outside
};

template <class Kernel>
const Kernel* FindKernel(std::span<const Kernel> kernels, const std::string& id) {
  for (const Kernel& kernel : kernels) {
    if constexpr (requires { kernel.id; }) {
      if (id == kernel.id) return &kernel;
    } else {
      if (id == kernel.Id()) return &kernel;
    }
  }
  return nullptr;
}

void Check(const std::string& id, const Case& of) {
  SCOPED_TRACE(testing::Message() << id << " n " << of.n << " k " << of.k << " groups "
                                  << of.counts.size() << " splits " << of.splits << " gathers "
                                  << of.gathers << " d " << static_cast<int>(of.d));
  const std::string whole = id + (of.gated ? "/gated" : "");
  const GroupedSwapKernel* const swap = FindKernel(GroupedSwapKernels(), whole);
  const GroupedSkinnyKernel* const skinny = FindKernel(GroupedSkinnyKernels(), whole);
  ASSERT_TRUE(swap != nullptr || skinny != nullptr);
  const FormatInfo& format = swap != nullptr ? *swap->format : *skinny->format;
  const DataType type = format.type;
  const bool scaled = format.sums == Sums::kBlockScaled;
  const int groups = static_cast<int>(of.counts.size()), parts = of.gated ? 2 : 1;
  std::vector<int> starts = {2 * of.gap};
  std::vector<int> group_of(Size(2 * of.gap), -1);
  for (int g = 0; g < groups; ++g) {
    group_of.insert(group_of.end(), Size(of.counts[Size(g)]), g);
    group_of.insert(group_of.end(), Size(of.gap), -1);
    starts.push_back(static_cast<int>(group_of.size()));
  }
  if (of.wild) {
    starts[Size(groups - 2)] = 2000000000;
    starts[Size(groups - 1)] = -2000000000;
    starts[Size(groups)] = -5;
  }
  const int rows = static_cast<int>(group_of.size());
  constexpr int kPerRow = 2;  // places of a row of A in D
  const int a_rows = of.gathers ? rows / kPerRow + 3 : rows;
  std::vector<int> index;
  for (int i = 0; i < rows; ++i) index.push_back(i * 5 % (a_rows * kPerRow));
  if (of.gathers && rows > 4) index[4] = (a_rows + 1) * kPerRow;  // none: zeros
  const std::int64_t lda = of.k + 32, ldd = of.n + 8;
  const Elements given_a = WholeNumbers(type, a_rows, of.k, lda, 3, 1);
  Elements a = given_a;
  const Elements b = WholeNumbers(type, std::int64_t{groups} * parts * of.n, of.k, of.k, 2, 2);
  const int k_blocks = (of.k + 127) / 128, n_blocks = (of.n + 127) / 128;
  const std::vector<float> scale_a = PowersOfTwo(std::int64_t{a_rows} * k_blocks, 3);
  const std::vector<float> scale_b =
      PowersOfTwo(std::int64_t{groups} * parts * n_blocks * k_blocks, 4);
  std::vector<Elements> biases;
  std::vector<const void*> bias;
  for (int i = 0; i < groups * parts; ++i)
    biases.push_back(
        WholeNumbers(DataType::kBfloat16, 1, of.n, of.n, 9, 50u + static_cast<unsigned>(i)));
  for (const Elements& one : biases) bias.push_back(one.data());
  const std::vector<float> factors = PowersOfTwo(rows, 5);
  std::vector<int> factor_index;
  for (int i = 0; i < rows; ++i) factor_index.push_back(rows - 1 - i);
  Elements d(of.d, (rows + 2) * ldd, kUntouched);

  GroupedProblem p;
  p.groups = groups, p.rows = rows, p.a_rows = a_rows, p.n = of.n, p.k = of.k;
  p.starts = starts.data();
  if (of.has_counts) p.counts = of.counts.data();
  if (of.gathers) p.index = index.data(), p.per_row = kPerRow;
  p.a = a.data(), p.lda = lda;
  if (scaled) {
    p.scale_a = scale_a.data(), p.scale_a_row = 1, p.scale_a_block = a_rows;
    p.scale_b = scale_b.data();
    p.scale_b_group = std::int64_t{parts} * n_blocks * k_blocks;
    p.scale_b_up = std::int64_t{n_blocks} * k_blocks;
  }
  p.b = b.data(), p.b_group_rows = std::int64_t{parts} * of.n, p.up_rows = of.n;
  if (of.bias) p.bias = bias.data(), p.bias_type = DataType::kBfloat16;
  Elements behind(DataType::kBfloat16, std::int64_t{groups} * parts * of.n, 0);
  if (of.one_bias) {
    for (std::int64_t i = 0; i < std::int64_t{groups} * parts * of.n; ++i)
      behind.Set(i, biases[Size(i / of.n)].Get(i % of.n));
    p.bias = nullptr, p.biases = behind.data();
    p.bias_group = std::int64_t{parts} * of.n, p.bias_type = DataType::kBfloat16;
  }
  if (of.factors) p.factors = factors.data(), p.factor_index = factor_index.data();
  p.d = d.data(), p.ldd = ldd, p.d_type = of.d;
  if (of.clamped) p.gate = GroupedGate::kClamped, p.limit = 7, p.slope = 1.5f;
  p.pdl = of.pdl, p.early_weights = of.pdl;
  constexpr int kMultiprocessors = 2;  // so that a block takes several tiles
  GroupedSwapLaunch of_swap;
  GroupedSkinnyLaunch of_skinny;
  if (swap != nullptr) {
    ASSERT_EQ(WhyNotGrouped(p, format, of.gated), nullptr);
    ASSERT_TRUE(PlanGroupedSwap(*swap, p, of.splits, kMultiprocessors, &of_swap));
    ASSERT_EQ(LoadKernel(swap->function, swap->smem_bytes), cudaSuccess);
  } else {
    ASSERT_EQ(WhyNotGroupedSkinny(p, format, of.gated), nullptr);
    ASSERT_LE(of.splits, GroupedSkinnyMaxSplits(*skinny, of.k));
    of_skinny = PlanGroupedSkinny(*skinny, p, of.splits, kMultiprocessors);
    ASSERT_EQ(LoadKernel(skinny->function, of_skinny.shape.smem_bytes), cudaSuccess);
  }
  if (of.pdl) {  // rows of A are what the kernel before writes last
    for (std::int64_t i = 0; i < a_rows * lda; ++i) a.Set(i, NAN);
    host_cuda::OnWait([&] { a = given_a; });
  }
  ASSERT_EQ(swap != nullptr ? of_swap.Start(nullptr) : of_skinny.Start(nullptr), cudaSuccess)
      << host_cuda::Fault();
  host_cuda::OnWait(nullptr);

  const std::vector<float> a_values = given_a.Values(a_rows * lda),
                           b_values = b.Values(std::int64_t{groups} * parts * of.n * of.k);
  int wrong = 0;
  for (int i = 0; i < rows + 2; ++i) {
    const int group = i < rows ? group_of[Size(i)] : -1;
    for (int column = 0; column < ldd; ++column) {
      const bool there = group >= 0 && column < of.n;
      double part[2] = {};
      for (int x = 0; there && x < parts; ++x) {
        const int row = of.gathers ? index[Size(i)] / kPerRow : i;
        const std::int64_t matrix = std::int64_t{group} * parts + x;
        for (int k = 0; row < a_rows && k < of.k; k += 128) {
          const double product =
              Dot(&a_values[Size(row * lda + k)],
                  &b_values[Size((matrix * of.n + column) * of.k + k)], std::min(of.k - k, 128));
          const float scale =
              scaled ? scale_a[Size(k / 128 * a_rows + row)] *
                           scale_b[Size((matrix * n_blocks + column / 128) * k_blocks + k / 128)]
                     : 1.0f;
          part[x] += product * scale;
        }
        if (of.factors) part[x] *= factors[Size(factor_index[Size(i)])];
        if (of.bias || of.one_bias) part[x] += biases[Size(matrix)].Get(column);
      }
      double expected = !there ? kUntouched : part[0];
      if (there && of.gated && of.clamped) {
        const double gate = std::fmin(part[0], 7), up = std::fmin(std::fmax(part[1], -7), 7);
        expected = gate / (1 + std::exp(-1.5 * gate)) * (up + 1);
      } else if (there && of.gated) {
        expected = SiluOf(part[0]) * part[1];
      }
      const double ulps = there && of.gated ? 64 : 0;
      if (!IsNear(d, i * ldd + column, expected, ulps) && wrong++ < 5)
        ADD_FAILURE() << "row " << i << " of group " << group << " column " << column << ": "
                      << d.Get(i * ldd + column) << " for " << expected;
    }
  }
  EXPECT_EQ(wrong, 0);
}

const std::vector<int> kFew = {5, 0, 1, 17, 33, 8};

TEST(HostWgmmaGrouped, Bf16) {
  const std::string narrow = "sm90_bf16_grouped/128x32", wide = "sm90_bf16_grouped/128x128";
  Check(narrow, {.counts = kFew, .n = 200, .k = 328});
  Check(narrow, {.counts = {3}, .n = 8, .k = 8, .d = DataType::kFloat32});
  Check(narrow, {.counts = kFew, .n = 67, .k = 136, .has_counts = true, .pdl = true, .gap = 1});
  Check(wide, {.counts = {70, 3}, .n = 136, .k = 200, .d = DataType::kFloat16});
  Check("sm90_bf16_grouped/128x224", {.counts = {201}, .n = 128, .k = 64});
}

TEST(HostWgmmaGrouped, F16) {
  const DataType f16 = DataType::kFloat16;
  const std::string narrow = "sm90_f16_grouped/128x32", wide = "sm90_f16_grouped/128x128";
  Check(narrow, {.counts = kFew, .n = 72, .k = 136, .gathers = true, .one_bias = true, .d = f16});
  Check(narrow, {.counts = {2, 9},
                 .n = 40,
                 .k = 264,
                 .gated = true,
                 .one_bias = true,
                 .d = f16,
                 .splits = 3});
  Check(wide, {.counts = {70, 3},
               .n = 64,
               .k = 72,
               .gated = true,
               .gathers = true,
               .clamped = true,
               .one_bias = true});
}

TEST(HostWgmmaGrouped, Corners) {
  const std::vector<int> counts = {0, 1, 7, 8, 9, 127, 128, 129};
  for (const char* const id : {"sm90_bf16_grouped/128x32", "sm90_fp8_grouped/128x160",
                               "sm90_bf16_grouped/256x144", "sm90_fp8_grouped/256x128"}) {
    Check(id, {.counts = counts, .n = 136, .k = 144, .one_bias = true});
    Check(id, {.counts = {0, 0, 257, 0}, .n = 8, .k = 64});
    Check(id, {.counts = {0, 0, 0}, .n = 8, .k = 64, .has_counts = true, .gap = 1});
    Check(id, {.counts = {9, 0, 0, 0}, .n = 8, .k = 64, .wild = true});
  }
}

TEST(HostWgmmaGrouped, Bf16Gathered) {
  Check("sm90_bf16_grouped/128x32", {.counts = kFew, .n = 136, .k = 200, .gathers = true});
  Check("sm90_bf16_grouped/128x128",
        {.counts = {100, 9}, .n = 64, .k = 264, .gathers = true, .bias = true, .factors = true});
}

TEST(HostWgmmaGrouped, Bf16Gated) {
  Check("sm90_bf16_grouped/128x32", {.counts = kFew, .n = 72, .k = 136, .gated = true});
  Check("sm90_bf16_grouped/128x128", {.counts = {40, 2},
                                      .n = 64,
                                      .k = 72,
                                      .gated = true,
                                      .gathers = true,
                                      .bias = true,
                                      .clamped = true,
                                      .d = DataType::kFloat32});
}

TEST(HostWgmmaGrouped, Fp8) {
  const std::string narrow = "sm90_fp8_grouped/128x32", wide = "sm90_fp8_grouped/128x160";
  Check(narrow, {.counts = kFew, .n = 136, .k = 272});
  Check(narrow, {.counts = kFew, .n = 64, .k = 144, .gated = true, .gathers = true, .pdl = true});
  Check(wide, {.counts = {90, 0, 3}, .n = 129, .k = 656});
  Check(wide, {.counts = {70}, .n = 136, .k = 528, .gated = true});
}

// Tiles of many products: 256 rows of weights, and FP8 whose producers multiply the scales.
TEST(HostWgmmaGrouped, Wide) {
  const std::string bf16 = "sm90_bf16_grouped/256x144";
  Check(bf16, {.counts = {137, 0, 1, 100}, .n = 200, .k = 200});
  Check(bf16, {.counts = {150, 20},
               .n = 300,
               .k = 72,
               .gathers = true,
               .bias = true,
               .d = DataType::kFloat32});
  Check(bf16,
        {.counts = {70, 33}, .n = 136, .k = 136, .gated = true, .gathers = true, .one_bias = true});
  for (const std::string& id :
       {std::string("sm90_fp8_grouped/128x144"), std::string("sm90_fp8_grouped/256x128")}) {
    Check(id, {.counts = {97, 0, 3, 140}, .n = 200, .k = 400});
    Check(id,
          {.counts = {9, 65}, .n = 392, .k = 272, .gathers = true, .bias = true, .factors = true});
    const std::string gated = id.ends_with("144") ? id : "sm90_fp8_grouped/256x112";
    Check(gated,
          {.counts = {80, 2}, .n = 192, .k = 144, .gated = true, .gathers = true, .pdl = true});
    Check(gated, {.counts = {120}, .n = 64, .k = 656, .gated = true});
  }
}

TEST(HostWgmmaGrouped, SplitAlongK) {
  for (const bool gathers : {false, true}) {
    Check("sm90_bf16_grouped/128x32",
          {.counts = {5, 0, 11}, .n = 136, .k = 456, .gathers = gathers, .splits = 2});
    Check("sm90_fp8_grouped/128x32",
          {.counts = {5, 9}, .n = 72, .k = 912, .gated = true, .gathers = gathers, .splits = 4});
  }
  Check("sm90_bf16_grouped/128x32", {.counts = {1, 2}, .n = 8, .k = 64, .pdl = true, .splits = 4});
}

TEST(HostWgmmaGrouped, Skinny) {
  const std::string bf16 = "sm90_bf16_grouped_skinny/";
  Check(bf16 + "16x8x4", {.counts = kFew, .n = 67, .k = 328, .splits = 3});
  Check(bf16 + "16x8x4", {.counts = {3}, .n = 8, .k = 8, .d = DataType::kFloat32});
  Check(
      bf16 + "32x8x4",
      {.counts = kFew, .n = 72, .k = 136, .has_counts = true, .pdl = true, .splits = 2, .gap = 1});
  Check(bf16 + "16x8x4", {.counts = {0, 1, 7, 8, 9, 127, 0},
                          .n = 24,
                          .k = 1040,
                          .gathers = true,
                          .one_bias = true,
                          .splits = 8});
  Check(bf16 + "32x8x4", {.counts = {0, 0, 0}, .n = 8, .k = 64, .has_counts = true, .gap = 1});
  Check(bf16 + "32x8x4", {.counts = {5, 9},
                          .n = 72,
                          .k = 264,
                          .gathers = true,
                          .bias = true,
                          .factors = true,
                          .d = DataType::kFloat32,
                          .splits = 4});
  // More groups than lanes, as few of them have rows as are routed to.
  std::vector<int> many(131, 0);
  many[0] = 1, many[31] = 2, many[32] = 1, many[127] = 9, many[130] = 1;
  Check(bf16 + "16x8x4", {.counts = many, .n = 40, .k = 520, .pdl = true, .splits = 4});
  Check(
      "sm90_f16_grouped_skinny/16x8x4",
      {.counts = kFew, .n = 40, .k = 136, .one_bias = true, .d = DataType::kFloat16, .splits = 2});
}

TEST(HostWgmmaGrouped, SkinnyGated) {
  const std::string bf16 = "sm90_bf16_grouped_skinny/";
  Check(bf16 + "16x8x4", {.counts = kFew,
                          .n = 72,
                          .k = 456,
                          .gated = true,
                          .gathers = true,
                          .pdl = true,
                          .splits = 4});
  Check(bf16 + "32x8x4", {.counts = {4, 2},
                          .n = 40,
                          .k = 72,
                          .gated = true,
                          .bias = true,
                          .clamped = true,
                          .d = DataType::kFloat32,
                          .splits = 2});
  Check(
      "sm90_f16_grouped_skinny/32x8x4",
      {.counts = {4, 0, 11}, .n = 24, .k = 136, .gated = true, .factors = true, .one_bias = true});
}

TEST(HostWgmmaGrouped, SkinnyFp8) {
  const std::string fp8 = "sm90_fp8_grouped_skinny/";
  Check(fp8 + "16x8x4", {.counts = kFew, .n = 136, .k = 656, .gathers = true, .splits = 3});
  Check(fp8 + "32x8x4", {.counts = {1, 0, 9}, .n = 64, .k = 144, .pdl = true, .splits = 2});
  Check(fp8 + "16x8x4", {.counts = {2, 9},
                         .n = 192,
                         .k = 272,
                         .gated = true,
                         .gathers = true,
                         .pdl = true,
                         .splits = 2});
  Check(fp8 + "32x8x4", {.counts = {8}, .n = 136, .k = 1040, .gated = true, .splits = 4});
}

}  // namespace
}  // namespace culet::sm90
