// What a large-M kernel for scaled FP8 does to its sums, for one warpgroup on the CPU: scales of
// rows, columns and tensors and the bias, by way of shared memory, of two tiles one after the
// other.
#include "kernels/sm90/block/factors.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "host_cuda/host_cuda.h"

namespace culet::sm90 {
namespace {

constexpr int kM = 150, kN = 108;  // two tiles: of 128 x 64 and what is left

struct Config {
  static constexpr int kBlocksM = 2, kColumns = 64, kFactors = kBlocksM * 64 + kColumns;
};

struct Tile {
  int row, column;
};
constexpr Tile kTiles[] = {{0, 0}, {128, 64}};

struct Sums {
  std::vector<float> of, scaled;  // (kM, kN)
};

// kParts: as many CTAs share the columns. A sum that is not touched stays NaN in `scaled`.
template <int kParts>
void Warpgroup(const EpilogueParams& e, Sums* sums) {
  constexpr int kShare = Config::kColumns / kParts;
  const int group = 0, warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  BlockFactors<Config> factors{e, reinterpret_cast<uint8_t*>(host_cuda::DynamicShared()), group};
  for (const Tile tile : kTiles) {
    factors.BringScales(tile.row, tile.column, kM, kN);
    float sum[Config::kBlocksM][Config::kColumns / 2];
    const auto each = [&](auto use) {
      for (int m = 0; m < Config::kBlocksM; ++m)
        for (int i = 0; i < Config::kColumns / 2; ++i) {
          const int row = tile.row + m * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8;
          const int column = tile.column + i / 4 * 8 + lane % 4 * 2 + i % 2;
          if (row < kM && column < kN) use(sum[m][i], static_cast<std::size_t>(row) * kN + column);
        }
    };
    each([&](float& v, std::size_t at) { v = sums->of[at]; });
    factors.Wait();
    const auto share = [&](auto use) {
      for (int m = 0; m < Config::kBlocksM; ++m)
        for (int begin = 0; begin < Config::kColumns; begin += kShare)
          use(&sum[m][begin / 2], m * 64 + warp * 16 + lane / 4, begin);
    };
    share([&](float* v, int row, int begin) { factors.Multiply<kShare>(v, row, begin, lane); });
    if (e.bias != nullptr) {
      factors.BringBias(tile.row, tile.column, kM, kN);
      share([&](float* v, int row, int begin) { factors.Add<kShare>(v, row, begin, lane); });
    }
    each([&](float v, std::size_t at) { sums->scaled[at] = v; });
  }
}

enum class Of { kNothing, kTensor, kLines };
struct BiasCase {
  OutputType type;
  bool of_rows;
};

// Numbers of few bits, so that every order of products and sums is exact.
std::vector<float> Small(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 15) - 7) / 4;
  return values;
}

std::vector<std::uint8_t> Coded(const std::vector<float>& values, OutputType type) {
  std::vector<std::uint8_t> bytes(values.size() * static_cast<std::size_t>(BytesOf(type)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half =
        type == OutputType::kBf16 ? FloatToBfloat16(values[i]) : FloatToFloat16(values[i]);
    if (type == OutputType::kF32)
      std::memcpy(&bytes[i * 4], &values[i], 4);
    else
      std::memcpy(&bytes[i * 2], &half, 2);
  }
  return bytes;
}

template <int kParts>
void Check(Of a, Of b, std::optional<BiasCase> bias) {
  SCOPED_TRACE("a " + std::to_string(static_cast<int>(a)) + " b " +
               std::to_string(static_cast<int>(b)) + " parts " + std::to_string(kParts));
  const std::vector<float> scale_a = Small(kM, 1), scale_b = Small(kN, 2),
                           biases = Small(kM, 3);  // more rows than columns
  const std::vector<std::uint8_t> coded = Coded(biases, bias ? bias->type : OutputType::kF32);
  EpilogueParams e;
  e.alpha = -0.5f;
  if (a != Of::kNothing) e.scale_a = scale_a.data(), e.scale_a_step = a == Of::kLines;
  if (b != Of::kNothing) e.scale_b = scale_b.data(), e.scale_b_step = b == Of::kLines;
  if (bias) {
    e.bias = coded.data(), e.bias_type = bias->type;
    e.bias_step = !bias->of_rows, e.bias_row_step = bias->of_rows;
  }
  Sums sums{Small(kM * kN, 4), std::vector<float>(kM * kN, NAN)};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(128);
  config.dynamicSmemBytes = Config::kFactors * 4;
  ASSERT_EQ(host_cuda::RunGrid(config, [&] { Warpgroup<kParts>(e, &sums); }), cudaSuccess)
      << host_cuda::Fault();
  for (const Tile tile : kTiles)
    for (int row = tile.row; row < std::min(kM, tile.row + 128); ++row)
      for (int column = tile.column; column < std::min(kN, tile.column + 64); ++column) {
        const std::size_t at = static_cast<std::size_t>(row) * kN + column;
        float expected = sums.of[at] * e.alpha;
        if (a != Of::kNothing) expected *= scale_a[a == Of::kLines ? row : 0];
        if (b != Of::kNothing) expected *= scale_b[b == Of::kLines ? column : 0];
        if (bias) expected += biases[bias->of_rows ? row : column];
        ASSERT_EQ(sums.scaled[at], expected) << "row " << row << " column " << column;
      }
}

TEST(HostCudaFactors, ScalesOfLinesTensorsAndNone) {
  for (const Of a : {Of::kNothing, Of::kTensor, Of::kLines})
    for (const Of b : {Of::kNothing, Of::kTensor, Of::kLines}) {
      Check<1>(a, b, {});
      Check<4>(a, b, {});
    }
}

TEST(HostCudaFactors, ABiasInTheScalesPlace) {
  for (const OutputType type : {OutputType::kBf16, OutputType::kF16, OutputType::kF32})
    for (const bool of_rows : {false, true}) {
      Check<1>(Of::kLines, Of::kLines, BiasCase{type, of_rows});
      Check<2>(Of::kTensor, Of::kNothing, BiasCase{type, of_rows});
    }
}

}  // namespace
}  // namespace culet::sm90
