// The quantisers against their definition, written out once more, and what they refuse.
#include "culet/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"

namespace culet {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kUntouched = 0xa5a5a5a5u;

// Element-wise access over words, so that every type is aligned.
struct Matrix {
  MatrixLayout layout;
  std::vector<std::uint32_t> storage;

  Matrix(DataType type, Order order, int rows, int cols, int gap = 0) {
    layout = order == Order::kRowMajor ? RowMajor(type, rows, cols, cols + gap)
                                       : ColMajor(type, rows, cols, rows + gap);
    const auto lines = static_cast<std::size_t>(order == Order::kRowMajor ? rows : cols);
    storage.assign(lines * static_cast<std::size_t>(layout.ld) * SizeOf(type) / 4 + 1, kUntouched);
  }
  std::int64_t At(int r, int c) const {
    return layout.order == Order::kRowMajor ? r * layout.ld + c : c * layout.ld + r;
  }
  float Get(int r, int c) const {
    return static_cast<float>(LoadAsDouble(storage.data(), layout.type, At(r, c)));
  }
  void Set(int r, int c, float value) {
    StoreFromDouble(storage.data(), layout.type, At(r, c), value);
  }
  float* floats() { return reinterpret_cast<float*>(storage.data()); }
  bool untouched() const {
    return std::ranges::all_of(storage, [](std::uint32_t word) { return word == kUntouched; });
  }
};

Matrix Scales(Order order, int rows, int cols, int group_rows, int group_cols, int gap = 0) {
  return Matrix(DataType::kFloat32, order, (rows + group_rows - 1) / group_rows,
                (cols + group_cols - 1) / group_cols, gap);
}

Status Quantize(const Matrix& source, Matrix& values, Matrix& scales, int group, bool blocks) {
  return (blocks ? QuantizeBlocks : QuantizeGroups)(source.storage.data(), source.layout,
                                                    values.storage.data(), values.layout,
                                                    scales.floats(), scales.layout, group);
}

// The definition, for one group.
void ExpectGroup(const Matrix& source, const Matrix& values, int row0, int rows, int col0, int cols,
                 float found_scale) {
  float amax = 0;
  for (int r = row0; r < row0 + rows; ++r) {
    for (int c = col0; c < col0 + cols; ++c) amax = std::max(amax, std::fabs(source.Get(r, c)));
  }
  const float scale = amax == 0 ? 1.0f : amax / 448.0f;
  ASSERT_EQ(found_scale, scale) << "of the group at " << row0 << " " << col0;
  for (int r = row0; r < row0 + rows; ++r) {
    for (int c = col0; c < col0 + cols; ++c) {
      const double quotient = source.Get(r, c) / scale;
      ASSERT_EQ(values.Get(r, c), RoundTo(DataType::kFloat8_e4m3, quotient)) << r << " " << c;
    }
  }
}

void ExpectQuantised(const Matrix& source, const Matrix& values, const Matrix& scales,
                     int group_rows, int group_cols) {
  const int rows = source.layout.rows, cols = source.layout.cols;
  for (int row = 0; row < rows; row += group_rows) {
    for (int col = 0; col < cols; col += group_cols) {
      ExpectGroup(source, values, row, std::min(group_rows, rows - row), col,
                  std::min(group_cols, cols - col), scales.Get(row / group_rows, col / group_cols));
    }
  }
}

TEST(Quantize, EveryTypeOrderAndPartialGroup) {
  std::mt19937 random(1);
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    for (const auto& [rows, cols, group] : {std::tuple(1, 1, 128),
                                            {3, 128, 128},
                                            {5, 129, 128},
                                            {130, 257, 128},
                                            {7, 10, 3},
                                            {4, 5, 1},
                                            {2, 300, 1000}}) {
      for (int variant = 0; variant < 16; ++variant) {
        const auto order = [&](int bit) { return static_cast<Order>((variant >> bit) & 1); };
        const bool blocks = (variant & 8) != 0;
        Matrix source(type, order(0), rows, cols, variant % 3);
        Matrix values(DataType::kFloat8_e4m3, order(1), rows, cols, variant % 5);
        Matrix scales = Scales(order(2), rows, cols, blocks ? group : 1, group, variant % 2);
        std::normal_distribution<float> normal(0, 3);
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < cols; ++c) source.Set(r, c, normal(random));
        }
        ASSERT_TRUE(Quantize(source, values, scales, group, blocks).ok());
        ExpectQuantised(source, values, scales, blocks ? group : 1, group);
        if (HasFatalFailure()) FAIL() << rows << " x " << cols << " variant " << variant;
      }
    }
  }
}

TEST(Quantize, ValuesAreDividedNotMultipliedByAReciprocal) {
  // Over many scales the two differ somewhere at a tie; the definition says division.
  std::mt19937 random(2);
  Matrix source(DataType::kFloat32, Order::kRowMajor, 2000, 128);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int r = 0; r < 2000; ++r) {
    for (int c = 0; c < 128; ++c) source.Set(r, c, uniform(random));
    // A quotient that is exactly a tie in division: 17 halves of a step.
    source.Set(r, 0, 448.0f * std::fabs(uniform(random)) + 448.0f);
    source.Set(r, 1, 1.0625f * (source.Get(r, 0) / 448.0f));
  }
  Matrix values(DataType::kFloat8_e4m3, Order::kRowMajor, 2000, 128);
  Matrix scales = Scales(Order::kRowMajor, 2000, 128, 1, 128);
  ASSERT_TRUE(Quantize(source, values, scales, 128, false).ok());
  ExpectQuantised(source, values, scales, 1, 128);
  int differ = 0;
  for (int r = 0; r < 2000; ++r) {
    const float reciprocal = 1.0f / scales.Get(r, 0);
    for (int c = 0; c < 128; ++c) {
      differ +=
          values.Get(r, c) != Float8E4m3ToFloat(FloatToFloat8E4m3(source.Get(r, c) * reciprocal));
    }
  }
  EXPECT_GT(differ, 0) << "this data cannot tell division from a reciprocal";
}

struct Row {
  std::vector<float> values;
  float scale;
};
Row QuantizeRow(const std::vector<float>& source) {
  const int cols = static_cast<int>(source.size());
  Matrix in(DataType::kFloat32, Order::kRowMajor, 1, cols);
  Matrix values(DataType::kFloat8_e4m3, Order::kRowMajor, 1, cols);
  Matrix scales(DataType::kFloat32, Order::kRowMajor, 1, 1);
  for (int c = 0; c < cols; ++c) in.Set(0, c, source[static_cast<std::size_t>(c)]);
  EXPECT_TRUE(Quantize(in, values, scales, cols, false).ok());
  Row row;
  for (int c = 0; c < cols; ++c) row.values.push_back(values.Get(0, c));
  row.scale = scales.Get(0, 0);
  return row;
}

TEST(Quantize, ZerosGetScaleOne) {
  const Row row = QuantizeRow({0.0f, -0.0f, 0.0f});
  EXPECT_EQ(row.scale, 1.0f);
  EXPECT_EQ(row.values, (std::vector<float>{0, 0, 0}));
  EXPECT_TRUE(std::signbit(row.values[1]));
}

TEST(Quantize, SubnormalMagnitudesKeepFiniteValues) {
  const Row small = QuantizeRow({0x1p-130f, -0x1p-131f, 0x1p-149f});
  EXPECT_EQ(small.scale, 0x1p-130f / 448.0f);
  EXPECT_GT(small.scale, 0.0f);
  const Row smallest = QuantizeRow({0x1p-149f, -0x1p-149f, 0.0f});
  EXPECT_EQ(smallest.scale, 0x1p-149f);  // amax / 448 rounds to zero
  EXPECT_EQ(smallest.values, (std::vector<float>{1, -1, 0}));
  // amax / 448 is 1.4 steps of the smallest number: the quotient exceeds 448 and saturates.
  const Row coarse = QuantizeRow({627 * 0x1p-149f, -1.0f * 0x1p-149f});
  EXPECT_EQ(coarse.scale, 0x1p-149f);
  EXPECT_EQ(coarse.values, (std::vector<float>{448, -1}));
}

TEST(Quantize, TheLargestNumberGives448) {
  const float largest = std::numeric_limits<float>::max();
  const Row row = QuantizeRow({largest, -largest, 1.0f});
  EXPECT_EQ(row.scale, largest / 448.0f);
  EXPECT_EQ(row.values, (std::vector<float>{448, -448, 0}));
}

TEST(Quantize, NaNAndInfinitySpoilTheirGroupAlone) {
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    Matrix source(DataType::kBfloat16, Order::kRowMajor, 1, 9);
    for (int c = 0; c < 9; ++c) source.Set(0, c, static_cast<float>(c + 1));
    source.Set(0, 4, bad);
    Matrix values(DataType::kFloat8_e4m3, Order::kRowMajor, 1, 9);
    Matrix scales = Scales(Order::kRowMajor, 1, 9, 1, 3);
    ASSERT_TRUE(Quantize(source, values, scales, 3, false).ok());
    for (int c = 0; c < 9; ++c) {
      const bool spoilt = c / 3 == 1;
      EXPECT_EQ(std::isnan(values.Get(0, c)), spoilt) << c;
      EXPECT_EQ(std::isnan(scales.Get(0, c / 3)), spoilt) << c;
    }
  }
}

TEST(Quantize, GapsBetweenLinesStayUntouched) {
  Matrix source(DataType::kFloat32, Order::kRowMajor, 3, 4);
  for (int i = 0; i < 12; ++i) source.Set(i / 4, i % 4, 1.0f);
  Matrix values(DataType::kFloat8_e4m3, Order::kRowMajor, 3, 4, 4);
  Matrix scales = Scales(Order::kRowMajor, 3, 4, 1, 2, 3);
  ASSERT_TRUE(Quantize(source, values, scales, 2, false).ok());
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(values.storage[static_cast<std::size_t>(row * 2 + 1)], kUntouched);
    for (int gap = 2; gap < 5; ++gap) {
      EXPECT_EQ(scales.storage[static_cast<std::size_t>(row * 5 + gap)], kUntouched);
    }
  }
}

// Each bad call names the argument and its value, and writes nothing.
TEST(Quantize, BadCallsNameTheArgumentAndWriteNothing) {
  struct Call {
    Matrix source{DataType::kFloat32, Order::kRowMajor, 4, 6};
    Matrix values{DataType::kFloat8_e4m3, Order::kRowMajor, 4, 6};
    Matrix scales{DataType::kFloat32, Order::kRowMajor, 4, 2};
    const void* source_data = source.storage.data();
    void* values_data = values.storage.data();
    float* scales_data = scales.floats();
    int group = 3;
  };
  const auto expect = [](const std::vector<std::string>& words, auto change) {
    Call call;
    change(call);
    const Status status =
        QuantizeGroups(call.source_data, call.source.layout, call.values_data, call.values.layout,
                       call.scales_data, call.scales.layout, call.group);
    EXPECT_FALSE(status.ok()) << words.front();
    for (const std::string& word : words) {
      EXPECT_NE(status.message().find(word), std::string::npos)
          << "'" << word << "' is not in: " << status.message();
    }
    EXPECT_TRUE(call.values.untouched());
    EXPECT_TRUE(call.scales.untouched());
  };
  expect({"source is null"}, [](Call& c) { c.source_data = nullptr; });
  expect({"values is null"}, [](Call& c) { c.values_data = nullptr; });
  expect({"scales is null"}, [](Call& c) { c.scales_data = nullptr; });
  expect({"group is 0", ">= 1"}, [](Call& c) { c.group = 0; });
  expect({"group is -3"}, [](Call& c) { c.group = -3; });
  expect({"source_layout.type", "float8_e4m3", "float32"},
         [](Call& c) { c.source.layout.type = DataType::kFloat8_e4m3; });
  expect({"values_layout.type", "float16"},
         [](Call& c) { c.values.layout.type = DataType::kFloat16; });
  expect({"scales_layout.type", "ue8m0"},
         [](Call& c) { c.scales.layout.type = DataType::kFloat8_ue8m0; });
  expect({"source_layout is 0 x 6"}, [](Call& c) { c.source.layout.rows = 0; });
  expect({"values_layout is 4 x 5", "4 x 6"}, [](Call& c) { c.values.layout.cols = 5; });
  expect({"scales_layout is 4 x 2", "4 x 6"}, [](Call& c) { c.group = 1; });
  expect({"source_layout.ld is 5", "6"}, [](Call& c) { c.source.layout.ld = 5; });
  expect({"values_layout.ld is 0"}, [](Call& c) { c.values.layout.ld = 0; });
  expect({"scales_layout.ld is 1"}, [](Call& c) { c.scales.layout.ld = 1; });
  expect({"source_layout spans", "ld"},
         [](Call& c) { c.source.layout.ld = std::numeric_limits<std::int64_t>::max() / 2; });
  expect({"source is", "not a multiple of 4"},
         [](Call& c) { c.source_data = static_cast<const std::byte*>(c.source_data) + 1; });
  expect({"source_layout has pack 2"}, [](Call& c) { c.source.layout.pack = 2; });
  expect({"values", "overlaps source"},
         [](Call& c) { c.values_data = const_cast<void*>(c.source_data); });
  expect({"scales", "overlaps"},
         [](Call& c) { c.scales_data = reinterpret_cast<float*>(c.values_data); });
}

// What reaches the GPU's quantiser is decided on the host, with a GPU or without.
TEST(QuantizeOnAGpu, RefusesWhatItsKernelDoesNotTake) {
  const auto refusal = [](DataType type, Order source_order, Order values_order, int scale_cols) {
    Matrix source(type, source_order, 4, 256);
    Matrix values(DataType::kFloat8_e4m3, values_order, 4, 256);
    Matrix scales(DataType::kFloat32, Order::kColMajor, 4, scale_cols);
    const Status status =
        QuantizeGroupsCuda(source.storage.data(), source.layout, values.storage.data(),
                           values.layout, scales.floats(), scales.layout);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(values.untouched());
    EXPECT_TRUE(scales.untouched());
    return status.message();
  };
  using testing::HasSubstr;
  constexpr Order kRows = Order::kRowMajor, kCols = Order::kColMajor;
  EXPECT_THAT(refusal(DataType::kFloat32, kRows, kRows, 2), HasSubstr("only bfloat16"));
  EXPECT_THAT(refusal(DataType::kBfloat16, kCols, kRows, 2), HasSubstr("must be row-major"));
  EXPECT_THAT(refusal(DataType::kBfloat16, kRows, kCols, 2), HasSubstr("must be row-major"));
  EXPECT_THAT(refusal(DataType::kBfloat16, kRows, kRows, 3), HasSubstr("make it 4 x 2"));
  EXPECT_THAT(refusal(DataType::kFloat8_e4m3, kRows, kRows, 2), HasSubstr("source_layout.type"));
}

}  // namespace
}  // namespace culet
