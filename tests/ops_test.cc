// Operations of the CPU dispatch against their definitions, at sizes where vectors end midway.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"
#include "kernels/ops/ops.h"

namespace culet {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// -- Attention ------------------------------------------------------------------------------------

struct AttentionCase {
  int heads, kv_heads, head_dim, window;
  bool causal;
  DataType cache;
};

// Three sequences of different lengths in one batch: one decodes after 131 keys, one is a prompt
// of 40 tokens, one adds 7 tokens to 70. Blocks of the cache are shuffled.
class OpsAttention : public testing::TestWithParam<AttentionCase> {
 protected:
  static constexpr int kBlock = 8, kTableCols = 20, kBlocks = 48;

  void SetUp() override {
    const AttentionCase& c = GetParam();
    const int kv_cols = c.kv_heads * c.head_dim;
    q_ = Normal(static_cast<std::size_t>(kRows) * c.heads * c.head_dim, 1);
    const auto fill = [&](std::vector<std::byte>& cache, unsigned seed) {
      const std::vector<float> values =
          Normal(static_cast<std::size_t>(kBlocks) * kBlock * kv_cols, seed);
      cache.resize(values.size() * SizeOf(c.cache));
      for (std::size_t i = 0; i < values.size(); ++i) {
        StoreFromDouble(cache.data(), c.cache, static_cast<std::int64_t>(i), values[i]);
      }
    };
    fill(k_, 2);
    fill(v_, 3);
    table_.assign(3 * kTableCols, -1);
    int next = 0;
    for (int s = 0; s < 3; ++s) {
      for (int b = 0; b * kBlock < lengths_[s]; ++b) {
        table_[static_cast<std::size_t>(s * kTableCols + b)] = next++ * 29 % kBlocks;
      }
    }
    for (int i = 0; i < 40; ++i) positions_.push_back(i);
    for (int i = 0; i < 7; ++i) positions_.push_back(70 + i);
  }

  std::vector<float> Run(KernelDispatch& dispatch) {
    const AttentionCase& c = GetParam();
    ComputeGraph graph;
    const std::int64_t q_cols = c.heads * c.head_dim, kv_cols = c.kv_heads * c.head_dim;
    const auto index = [&](const std::vector<std::int32_t>& data, std::int64_t rows,
                           std::int64_t cols) {
      return graph.add_leaf(ToDevicePtr(data.data()), {rows, cols}, DataType::kInt32);
    };
    const int q = graph.add_leaf(ToDevicePtr(q_.data()), {kRows, q_cols});
    const int k = graph.add_leaf(ToDevicePtr(k_.data()), {kBlocks * kBlock, kv_cols}, c.cache);
    const int v = graph.add_leaf(ToDevicePtr(v_.data()), {kBlocks * kBlock, kv_cols}, c.cache);
    const int starts = index(starts_, 4, 1), positions = index(positions_, kRows, 1);
    const int lengths = index(lengths_, 3, 1), table = index(table_, 3, kTableCols);
    OpParams params;
    params.attention = {.heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .head_dim = c.head_dim,
                        .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                        .causal = c.causal,
                        .window = c.window,
                        .block_size = kBlock};
    std::vector<float> out(q_.size(), kNaN);
    graph.add_op(TensorOp::kAttention, ToDevicePtr(out.data()), {kRows, q_cols},
                 {q, k, v, starts, positions, lengths, table}, params);
    const auto result = execute_graph(graph, dispatch);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return out;
  }

  static constexpr int kRows = 48;
  std::vector<std::int32_t> starts_ = {0, 1, 41, 48}, lengths_ = {131, 40, 77}, table_;
  std::vector<std::int32_t> positions_ = {130};
  std::vector<float> q_;
  std::vector<std::byte> k_, v_;
  Gemm gemm_ = *Gemm::Create();
  std::unique_ptr<KernelDispatch> cpu_ = MakeCpuDispatch(gemm_);
  std::unique_ptr<KernelDispatch> reference_ = MakeReferenceDispatch();
};

TEST_P(OpsAttention, EqualsReference) {
  const std::vector<float> a = Run(*cpu_), b = Run(*reference_);
  EXPECT_LE(RelativeL2(a.data(), b.data(), a.size()), 1e-6);
}

// A block that is not in the cache spoils the rows that see it and no other.
TEST_P(OpsAttention, MissingBlockIsNaN) {
  table_[1 * kTableCols + 2] = kBlocks;  // keys 16 to 23 of the second sequence
  const std::vector<float> a = Run(*cpu_), b = Run(*reference_);
  std::size_t spoiled = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i])) << "element " << i;
    spoiled += std::isnan(a[i]);
  }
  EXPECT_GT(spoiled, 0u);
  EXPECT_LT(spoiled, a.size());
}

// What no row may see does not reach any: not even NaN times the weight 0.
TEST_P(OpsAttention, LaterKeysStayUnseen) {
  const AttentionCase& c = GetParam();
  if (!c.causal) GTEST_SKIP() << "every key is seen";
  const std::vector<float> before = Run(*cpu_);
  // The last key of the prompt, which its last row alone sees.
  const std::int64_t kv_cols = c.kv_heads * c.head_dim;
  const std::int64_t row = table_[1 * kTableCols + 39 / kBlock] * kBlock + 39 % kBlock;
  for (std::int64_t i = 0; i < kv_cols; ++i) {
    StoreFromDouble(k_.data(), c.cache, row * kv_cols + i, kNaN);
    StoreFromDouble(v_.data(), c.cache, row * kv_cols + i, kNaN);
  }
  const std::vector<float> after = Run(*cpu_);
  const std::size_t width = q_.size() / kRows;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (i / width == 40) {
      ASSERT_TRUE(std::isnan(after[i]));
    } else {
      ASSERT_EQ(after[i], before[i]) << "row " << i / width;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpsAttention,
                         testing::Values(AttentionCase{16, 8, 128, 0, true, DataType::kBfloat16},
                                         AttentionCase{4, 4, 24, 0, true, DataType::kFloat32},
                                         AttentionCase{6, 2, 80, 37, true, DataType::kFloat16},
                                         AttentionCase{40, 1, 64, 0, true, DataType::kFloat32},
                                         AttentionCase{5, 1, 20, 0, false, DataType::kBfloat16}));

// -- The others -----------------------------------------------------------------------------------

TEST(Ops, QuantizeRowsEqualsTheScalarCodes) {
  constexpr std::int64_t kRows = 5, kCols = 300;
  std::vector<float> x = Normal(kRows * kCols, 4);
  // Ties, subnormal codes and zeros of both signs.
  for (std::size_t i = 0; i < 128; ++i) x[i] = (i % 2 == 0 ? 0.5f : -0.5f) * static_cast<float>(i);
  x[127] = 448;
  for (std::size_t i = 0; i < 64; ++i) x[300 + i] = static_cast<float>(i) * 0x1p-11f;
  x[300 + 127] = -448;
  std::fill_n(x.begin() + 600, 128, 0.0f);
  std::fill_n(x.begin() + 728, 128, 1e-43f);
  x[900] = kNaN;
  x[1200] = std::numeric_limits<float>::infinity();
  std::vector<std::uint8_t> codes(x.size() + 1, 0x5a);
  std::vector<float> scales(kRows * 3);
  ops::QuantizeRows(x.data(), kRows, kCols, 128, codes.data(), scales.data());
  EXPECT_EQ(codes.back(), 0x5a);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t first = 0; first < kCols; first += 128) {
      const std::int64_t end = std::min(kCols, first + 128);
      float amax = 0;
      bool finite = true;
      for (std::int64_t c = first; c < end; ++c) {
        const float value = x[static_cast<std::size_t>(row * kCols + c)];
        finite = finite && std::isfinite(value);
        amax = std::max(amax, std::fabs(value));
      }
      const float scale = scales[static_cast<std::size_t>(row * 3 + first / 128)];
      if (!finite) {
        EXPECT_TRUE(std::isnan(scale));
      } else if (amax == 0) {
        EXPECT_EQ(scale, 1);
      } else {
        EXPECT_EQ(scale, std::max(amax / 448, std::numeric_limits<float>::denorm_min()));
      }
      for (std::int64_t c = first; c < end; ++c) {
        const auto at = static_cast<std::size_t>(row * kCols + c);
        EXPECT_EQ(codes[at], FloatToFloat8E4m3(x[at] / scale)) << "row " << row << " column " << c;
      }
    }
  }
}

TEST(Ops, ArgMaxTakesTheFirst) {
  for (const std::int64_t cols : {1, 15, 1024, 1025, 5000}) {
    std::vector<float> x = Normal(static_cast<std::size_t>(cols) * 5, 5);
    const auto row = [&](std::int64_t r) { return x.data() + r * cols; };
    const std::int64_t last = cols - 1, middle = cols / 2;
    row(1)[middle] = row(1)[last] = 9;
    row(2)[middle] = kNaN;
    row(2)[0] = 9;
    std::fill_n(row(3), cols, -std::numeric_limits<float>::infinity());
    std::fill_n(row(4), cols, 0.0f);
    row(4)[cols * 3 / 4] = 1e-3f;
    std::vector<std::int32_t> best(5, -1);
    ops::ArgMax(x.data(), best.data(), 5, cols);
    EXPECT_EQ(best[0], std::max_element(row(0), row(0) + cols) - row(0));
    EXPECT_EQ(best[1], middle);
    EXPECT_EQ(best[2], middle);
    EXPECT_EQ(best[3], 0);
    EXPECT_EQ(best[4], cols * 3 / 4);
  }
}

TEST(Ops, SwiGluAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> gate = Normal(37, 6), up = Normal(37, 7);
  gate[3] = kNaN, gate[4] = 100, gate[5] = -100, gate[6] = inf, gate[36] = -1e-30f, up[7] = kNaN;
  std::vector<float> out(38, -7);
  ops::SwiGlu(gate.data(), up.data(), out.data(), 37);
  EXPECT_EQ(out[37], -7);
  for (std::size_t i = 0; i < 37; ++i) {
    const double x = gate[i], expected = x / (1 + std::exp(-x)) * up[i];
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(out[i])) << i;
    } else if (std::isinf(expected)) {
      EXPECT_EQ(out[i], expected) << i;
    } else {
      EXPECT_NEAR(out[i], expected, 1e-6 * std::fabs(expected) + 1e-37) << i;
    }
  }
}

TEST(Ops, RmsNormEndsWithItsGroup) {
  for (const std::size_t width : {1u, 7u, 24u, 64u, 130u}) {
    const std::vector<float> x = Normal(3 * width, 8), gamma = Normal(width, 9);
    std::vector<float> out(3 * width + 1, -7);
    ops::RmsNorm(x.data(), gamma, 1e-5f, out.data(), 3);
    EXPECT_EQ(out.back(), -7);
    for (std::size_t group = 0; group < 3; ++group) {
      double sum = 0;
      for (std::size_t i = 0; i < width; ++i) sum += std::pow(x[group * width + i], 2);
      const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + 1e-5);
      for (std::size_t i = 0; i < width; ++i) {
        const double expected = x[group * width + i] * scale * gamma[i];
        EXPECT_NEAR(out[group * width + i], expected, 1e-6 * std::fabs(expected) + 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace culet
