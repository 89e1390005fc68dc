// The quantisers at every SIMD level, to the bit: ties, ends of the format, subnormal scales, and
// every layout that their groups may have.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/e4m3_group.h"
#include "base/float_types.h"
#include "base/matrix_index.h"
#include "culet/quantize.h"
#include "simd_levels.h"
#include "whole_range.h"

namespace culet {
namespace {

using enum DataType;

struct Layouts {
  Order source, values;
  int gap;
};

// The definition, an element at a time: what the quantisers did before they had vectors.
void Define(const void* source, const MatrixLayout& from, std::vector<std::uint8_t>& values,
            const MatrixLayout& to, std::vector<float>& scales, const MatrixLayout& of_scales,
            int group_rows, int group_cols) {
  const auto load = [&](int r, int c) {
    return static_cast<float>(LoadAsDouble(source, from.type, IndexOf(from, r, c)));
  };
  for (int gr = 0; gr < of_scales.rows; ++gr) {
    for (int gc = 0; gc < of_scales.cols; ++gc) {
      const int end_r = std::min(from.rows, (gr + 1) * group_rows);
      const int end_c = std::min(from.cols, (gc + 1) * group_cols);
      float amax = 0;
      bool finite = true;
      for (int r = gr * group_rows; r < end_r; ++r) {
        for (int c = gc * group_cols; c < end_c; ++c) {
          finite &= std::isfinite(load(r, c));
          amax = std::max(amax, std::fabs(load(r, c)));
        }
      }
      const float scale = ScaleOfE4m3Group(amax, finite);
      scales[static_cast<std::size_t>(IndexOf(of_scales, gr, gc))] = scale;
      for (int r = gr * group_rows; r < end_r; ++r) {
        for (int c = gc * group_cols; c < end_c; ++c) {
          values[static_cast<std::size_t>(IndexOf(to, r, c))] =
              FloatToFloat8E4m3(load(r, c) / scale);
        }
      }
    }
  }
}

MatrixLayout Make(DataType type, Order order, int rows, int cols, int gap) {
  return order == Order::kRowMajor ? RowMajor(type, rows, cols, cols + gap)
                                   : ColMajor(type, rows, cols, rows + gap);
}

std::size_t Elements(const MatrixLayout& layout) {
  const int lines = layout.order == Order::kRowMajor ? layout.rows : layout.cols;
  return static_cast<std::size_t>(lines * layout.ld);
}

void ExpectBits(const std::vector<float>& numbers, DataType type, int rows, int cols,
                const Layouts& layouts, int group_rows, int group_cols) {
  const MatrixLayout from = Make(type, layouts.source, rows, cols, layouts.gap);
  const MatrixLayout to = Make(kFloat8_e4m3, layouts.values, rows, cols, layouts.gap);
  const MatrixLayout of_scales =
      Make(kFloat32, layouts.values, (rows - 1) / group_rows + 1, (cols - 1) / group_cols + 1, 1);
  std::vector<float> source(Elements(from));
  for (std::size_t i = 0; i < source.size(); ++i) {
    StoreFromDouble(source.data(), type, static_cast<std::int64_t>(i), numbers[i % numbers.size()]);
  }
  std::vector<std::uint8_t> expected(Elements(to), 0x55), values(Elements(to), 0x55);
  std::vector<float> scales(Elements(of_scales), -7), found(Elements(of_scales), -7);
  Define(source.data(), from, expected, to, scales, of_scales, group_rows, group_cols);
  const auto quantize = group_rows == 1 ? QuantizeGroups : QuantizeBlocks;
  const Status status =
      quantize(source.data(), from, values.data(), to, found.data(), of_scales, group_cols);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(values, expected) << ToString(type) << " " << rows << " x " << cols << ", groups of "
                              << group_rows << " x " << group_cols;
  ASSERT_EQ(std::memcmp(scales.data(), found.data(), scales.size() * sizeof(float)), 0);
}

// Ties between all neighbours of the format and what lies beside them, with 448 in each group.
std::vector<float> Ties() {
  std::vector<float> values;
  for (unsigned code = 0; code < 0x7e; ++code) {
    const float low = Float8E4m3ToFloat(static_cast<std::uint8_t>(code));
    const float tie = (low + Float8E4m3ToFloat(static_cast<std::uint8_t>(code + 1))) / 2;
    for (const float value : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 500.0f)}) {
      values.push_back(value);
      values.push_back(-value);
      if (values.size() % 7 == 0) values.push_back(448);
    }
  }
  return values;
}

TEST(QuantizeLevels, Bits) {
  std::vector<std::vector<float>> sets = {Ties(), WholeRange()};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  // Normal numbers, and such that scales are subnormal or zero without care.
  for (const float size : {1.0f, 1e30f, 1e-36f, 3e-43f, 2e-44f}) {
    sets.emplace_back(5000);
    for (float& value : sets.back()) value = size * normal(random);
  }
  // WholeRange's without infinities and NaN, so that groups have scales.
  sets.push_back(WholeRange());
  std::erase_if(sets.back(), [](float value) { return !std::isfinite(value); });
  AtEachSimdLevel([&] {
    for (const auto& numbers : sets) {
      for (const DataType type : {kFloat32, kFloat16, kBfloat16}) {
        for (const Order source : {Order::kRowMajor, Order::kColMajor}) {
          for (const Order values : {Order::kRowMajor, Order::kColMajor}) {
            const Layouts layouts{source, values, 3};
            ExpectBits(numbers, type, 5, 700, layouts, 1, 128);
            ExpectBits(numbers, type, 3, 77, layouts, 1, 19);
            ExpectBits(numbers, type, 130, 140, layouts, 128, 128);
            ExpectBits(numbers, type, 9, 300, layouts, 1, 300);
            ExpectBits(numbers, type, 300, 7, layouts, 300, 300);
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace culet
