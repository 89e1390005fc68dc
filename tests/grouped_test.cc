// Grouped products on the CPU against double precision: every kind of group, layout, type and
// epilogue, and what is refused.
#include "culet/grouped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"

namespace culet {
namespace {

using enum DataType;
using ::testing::HasSubstr;

constexpr float kPoison = 12345;

struct Shape {
  std::vector<int> starts, counts;
  int n = 64, k = 192;
  DataType type = kFloat32, d_type = kFloat32;
  Epilogue epilogue = Epilogue::kNone;
  bool bias = false, column_scales = false, offsets = false;
  std::vector<int> index;
  int a_rows = -1;  // -1: as many as D's
  int pad = 0;      // elements between rows of A and of D
};

int RowsOf(const Shape& shape) {
  int rows = 1;
  for (std::size_t g = 0; g < shape.counts.size(); ++g) {
    rows = std::max(rows, shape.starts[g] + shape.counts[g]);
  }
  return rows + 3;
}

// Operands of a shape and what their product must be.
class Problem {
 public:
  explicit Problem(const Shape& shape) : shape_(shape) {
    GroupedArgs& a = args;
    a.groups = static_cast<int>(shape.counts.size());
    a.rows = RowsOf(shape);
    a.a_rows = shape.a_rows < 0 ? a.rows : shape.a_rows;
    a.n = shape.n;
    a.k = shape.k;
    a.type = shape.type;
    a.d_type = shape.d_type;
    a.epilogue = shape.epilogue;
    a.lda = a.k + shape.pad;
    a.ldd = a.n + shape.pad;
    rows_b_ = shape.epilogue == Epilogue::kGatedSilu ? 2 * a.n : a.n;
    blocks_ = (a.k + 127) / 128;
    Fill(a_, a.type, std::int64_t{a.a_rows} * a.lda, 2);
    Fill(b_, a.type, std::int64_t{a.groups} * rows_b_ * a.k, 2);
    a.A = a_.data();
    a.B = b_.data();
    if (shape.type == kFloat8_e4m3) {
      Fill(u_, kFloat32, std::int64_t{a.a_rows} * blocks_, 0.1);
      Fill(v_, kFloat32, std::int64_t{a.groups} * ((rows_b_ + 127) / 128) * blocks_, 0.1);
      a.U = reinterpret_cast<const float*>(u_.data());
      a.V = reinterpret_cast<const float*>(v_.data());
      a.u_row = shape.column_scales ? 1 : blocks_;
      a.u_block = shape.column_scales ? a.a_rows : 1;
    }
    if (shape.bias) {
      Fill(bias_, kFloat32, std::int64_t{a.groups} * rows_b_, 2);
      a.bias = bias_.data();
    }
    starts = shape.starts;
    if (shape.offsets) {
      starts.push_back(starts.back() + shape.counts.back());
    } else {
      a.counts = shape_.counts.data();
    }
    a.starts = starts.data();
    if (!shape.index.empty()) a.index = shape_.index.data();
    d.resize(static_cast<std::size_t>(a.rows * a.ldd) * SizeOf(a.d_type));
    for (std::int64_t i = 0; i < a.rows * a.ldd; ++i)
      StoreFromDouble(d.data(), a.d_type, i, kPoison);
    a.D = d.data();
  }

  double At(int row, int column) const {
    return LoadAsDouble(d.data(), args.d_type, std::int64_t{row} * args.ldd + column);
  }

  // Requires: a product that ran.
  void Check() const {
    std::vector<int> group_of(static_cast<std::size_t>(args.rows), -1);
    for (int g = 0; g < args.groups; ++g) {
      const auto at = static_cast<std::size_t>(g);
      const std::int64_t start = starts[at];
      const std::int64_t end = args.counts != nullptr ? start + shape_.counts[at] : starts[at + 1];
      for (std::int64_t i = std::max<std::int64_t>(start, 0);
           i < std::min<std::int64_t>(end, args.rows); ++i) {
        group_of[static_cast<std::size_t>(i)] = g;
      }
    }
    int wrong = 0;
    for (int i = 0; i < args.rows; ++i) {
      for (int c = 0; c < args.ldd; ++c) {
        const int group = group_of[static_cast<std::size_t>(i)];
        const double found = At(i, c);
        if (group < 0 || c >= args.n) {
          wrong += found != RoundTo(args.d_type, kPoison);
          continue;
        }
        double size = 0;
        const double wanted = Wanted(i, group, c, size);
        const double ulp = std::ldexp(1.0, -PrecisionOf(args.d_type));
        const double bound = 1e-5 * size + 2 * ulp * std::abs(wanted) + 1e-6;
        if (!(std::abs(found - wanted) <= bound) && wrong++ < 3) {
          ADD_FAILURE() << "row " << i << " of group " << group << ", column " << c << ": " << found
                        << ", not " << wanted;
        }
      }
    }
    EXPECT_EQ(wrong, 0);
  }

  GroupedArgs args;
  std::vector<int> starts;
  std::vector<std::byte> d;

 private:
  static void Fill(std::vector<std::byte>& memory, DataType type, std::int64_t count, double most) {
    std::mt19937 random(static_cast<unsigned>(count));
    std::uniform_real_distribution<double> values(-most, most);
    memory.resize(static_cast<std::size_t>(count) * SizeOf(type));
    for (std::int64_t i = 0; i < count; ++i)
      StoreFromDouble(memory.data(), type, i, values(random));
  }

  double Sum(int row, int group, int b_row, double& size) const {
    const int source = args.index != nullptr ? args.index[row] : row;
    double sum = 0;
    for (int l = 0; l < args.k && source >= 0 && source < args.a_rows; ++l) {
      double term =
          LoadAsDouble(a_.data(), args.type, std::int64_t{source} * args.lda + l) *
          LoadAsDouble(b_.data(), args.type, (std::int64_t{group} * rows_b_ + b_row) * args.k + l);
      if (args.U != nullptr) {
        const int blocks_n = (rows_b_ + 127) / 128;
        term *= double{args.U[source * args.u_row + l / 128 * args.u_block]} *
                double{args.V[(group * blocks_n + b_row / 128) * blocks_ + l / 128]};
      }
      sum += term;
      size += std::abs(term);
    }
    if (args.bias != nullptr) {
      sum += LoadAsDouble(bias_.data(), kFloat32, std::int64_t{group} * rows_b_ + b_row);
    }
    return sum;
  }

  double Wanted(int row, int group, int column, double& size) const {
    if (args.epilogue == Epilogue::kNone) return Sum(row, group, column, size);
    double of_gate = 0, of_up = 0;
    const double gate = Sum(row, group, column, of_gate);
    const double up = Sum(row, group, args.n + column, of_up);
    size = of_gate * (std::abs(up) + 1) + of_up * (std::abs(gate) + 1);
    return gate / (1 + std::exp(-gate)) * up;
  }

  Shape shape_;
  int rows_b_ = 0, blocks_ = 0;
  std::vector<std::byte> a_, b_, u_, v_, bias_;
};

// Groups one behind the other, `gap` rows apart.
Shape Consecutive(std::vector<int> counts, int gap = 0) {
  Shape shape;
  int at = 0;
  for (const int count : counts) {
    shape.starts.push_back(at);
    at += count + gap;
  }
  shape.counts = std::move(counts);
  return shape;
}

class GroupedTest : public ::testing::Test {
 protected:
  GroupedTest() : gemm_(*Gemm::Create()) {}
  void Check(const Shape& shape) {
    Problem problem(shape);
    const Status status = GroupedGemm(gemm_, problem.args);
    ASSERT_TRUE(status.ok()) << status.message();
    problem.Check();
  }
  void Refused(const GroupedArgs& args, StatusCode code, const char* words) {
    const Status status = GroupedGemm(gemm_, args);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(words));
  }
  Gemm gemm_;
};

TEST_F(GroupedTest, CountsOfEveryKind) {
  for (const bool offsets : {true, false}) {
    Shape shape = Consecutive({0, 1, 7, 8, 9, 0, 127, 128, 129}, offsets ? 0 : 2);
    shape.offsets = offsets;
    shape.n = 40;
    for (const DataType type : {kFloat32, kBfloat16, kFloat8_e4m3}) {
      shape.type = type;
      shape.d_type = type == kFloat32 ? kFloat32 : kBfloat16;
      Check(shape);
    }
  }
}

TEST_F(GroupedTest, AllInOneAndNone) {
  Check(Consecutive({0, 33, 0}));
  Check(Consecutive({0, 0, 0}));
  Check(Consecutive({5}));
  Shape shape = Consecutive({0, 4});
  Problem problem(shape);
  problem.args.rows = 0;
  EXPECT_TRUE(GroupedGemm(gemm_, problem.args).ok());
  EXPECT_EQ(problem.At(0, 0), kPoison);
}

TEST_F(GroupedTest, TypesAndEpilogues) {
  for (const DataType type : {kFloat32, kFloat16, kBfloat16, kFloat8_e4m3}) {
    for (const bool bias : {false, true}) {
      for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kGatedSilu}) {
        Shape shape = Consecutive({3, 0, 9}, 1);
        shape.type = type;
        shape.n = 128;
        shape.k = 200;
        shape.d_type = type == kFloat16 ? kFloat16 : kBfloat16;
        shape.bias = bias;
        shape.epilogue = epilogue;
        shape.pad = 8;
        SCOPED_TRACE(std::string(ToString(type)) + (bias ? " bias" : ""));
        Check(shape);
      }
    }
  }
}

TEST_F(GroupedTest, ScalesOfColumns) {
  for (const bool indexed : {false, true}) {
    Shape shape = Consecutive({3, 0, 9}, 1);
    shape.type = kFloat8_e4m3;
    shape.d_type = kBfloat16;
    shape.k = 300;
    shape.column_scales = true;
    if (indexed) {
      shape.index.resize(static_cast<std::size_t>(RowsOf(shape)));
      std::iota(shape.index.begin(), shape.index.end(), 0);
    }
    Check(shape);
  }
}

TEST_F(GroupedTest, AnIndexRepeatsAndLeavesOut) {
  for (const DataType type : {kFloat32, kFloat8_e4m3}) {
    Shape shape = Consecutive({4, 0, 7, 1}, 1);
    shape.type = type;
    shape.a_rows = 5;
    for (int i = 0; i < RowsOf(shape); ++i) shape.index.push_back(i * 3 % 5);
    shape.index[1] = -1;
    shape.index[6] = 5;
    shape.index[7] = std::numeric_limits<int>::min();
    shape.index[8] = std::numeric_limits<int>::max();
    Check(shape);
    shape.a_rows = 0;
    Check(shape);
  }
}

TEST_F(GroupedTest, RangesAreCutOff) {
  Shape shape = Consecutive({4, 3, 5});
  Problem problem(shape);
  const int most = std::numeric_limits<int>::max(), least = std::numeric_limits<int>::min();
  problem.starts = {-2, 9, most};
  std::vector<int> counts = {4, most, most};
  problem.args.counts = counts.data();
  ASSERT_TRUE(GroupedGemm(gemm_, problem.args).ok());
  for (int row = 0; row < problem.args.rows; ++row) {
    EXPECT_EQ(problem.At(row, 0) == kPoison, row >= 2 && row < 9) << row;
  }
  Problem other(shape);
  other.starts = {least, most, 3};
  counts = {-1, least, -5};
  other.args.counts = counts.data();
  ASSERT_TRUE(GroupedGemm(gemm_, other.args).ok());
  for (int row = 0; row < other.args.rows; ++row) EXPECT_EQ(other.At(row, 0), kPoison);
}

TEST_F(GroupedTest, BitsDependOnTheGroupAlone) {
  Shape alone = Consecutive({6, 0, 0});
  Shape beside = Consecutive({6, 40, 9});
  Problem first(alone), second(beside);
  // The same first rows and the same first matrix.
  first.args.A = second.args.A;
  first.args.B = second.args.B;
  ASSERT_TRUE(GroupedGemm(gemm_, first.args).ok());
  ASSERT_TRUE(GroupedGemm(gemm_, second.args).ok());
  EXPECT_EQ(std::memcmp(first.d.data(), second.d.data(), 6 * 64 * sizeof(float)), 0);
}

TEST_F(GroupedTest, Refusals) {
  Shape shape = Consecutive({3, 5});
  shape.type = kFloat8_e4m3;
  shape.d_type = kBfloat16;
  const Problem problem(shape);
  const auto refused = [&](StatusCode code, const char* words, auto&& change) {
    GroupedArgs args = problem.args;
    change(args);
    Refused(args, code, words);
  };
  using enum StatusCode;
  refused(kInvalidArgument, "groups is 0", [](auto& a) { a.groups = 0; });
  refused(kInvalidArgument, "rows is -1", [](auto& a) { a.rows = -1; });
  refused(kInvalidArgument, "n is 0", [](auto& a) { a.n = 0; });
  refused(kInvalidArgument, "k is -7", [](auto& a) { a.k = -7; });
  refused(kInvalidArgument, "a_rows is 4", [](auto& a) { a.a_rows = 4; });
  refused(kInvalidArgument, "type is int8", [](auto& a) { a.type = kInt8; });
  refused(kInvalidArgument, "d_type is", [](auto& a) { a.d_type = kFloat8_e4m3; });
  refused(kInvalidArgument, "epilogue is 2",
          [](auto& a) { a.epilogue = Epilogue::kGatedSiluQuant; });
  refused(kInvalidArgument, "n is 64", [](auto& a) { a.epilogue = Epilogue::kGatedSilu; });
  refused(kInvalidArgument, "lda is 100", [](auto& a) { a.lda = 100; });
  refused(kInvalidArgument, "ldd is 63", [](auto& a) { a.ldd = 63; });
  refused(kInvalidArgument, "u_row is 1", [](auto& a) { a.u_row = 1; });
  refused(kInvalidArgument, "A is null", [](auto& a) { a.A = nullptr; });
  refused(kInvalidArgument, "U is null", [](auto& a) { a.U = nullptr; });
  refused(kInvalidArgument, "B is null", [](auto& a) { a.B = nullptr; });
  refused(kInvalidArgument, "V is null", [](auto& a) { a.V = nullptr; });
  refused(kInvalidArgument, "starts is null", [](auto& a) { a.starts = nullptr; });
  refused(kInvalidArgument, "D is null", [](auto& a) { a.D = nullptr; });
  refused(kInvalidArgument, "D (", [](auto& a) { a.D = const_cast<void*>(a.A); });
  refused(kInvalidArgument, "expected_tokens is -1", [](auto& a) { a.expected_tokens = -1; });
  refused(kInvalidArgument, "sm_budget is -1", [](auto& a) { a.sm_budget = -1; });
  refused(kInvalidArgument, "bias_type is", [](auto& a) {
    a.bias = a.V;
    a.bias_type = kInt8;
  });
  refused(kOutOfRange, "groups is", [](auto& a) { a.groups = 1 << 30; });
  refused(kOutOfRange, "", [](auto& a) { a.ldd = std::numeric_limits<std::int64_t>::max() / 2; });
  EXPECT_EQ(problem.At(0, 0), RoundTo(kBfloat16, kPoison));
}

}  // namespace
}  // namespace culet
