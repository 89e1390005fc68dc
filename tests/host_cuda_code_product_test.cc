// Products by weights of codes (src/kernels/cuda_ops/code_product.h) on the CPU, against sums in
// double: every kernel, with integers that any order of summation leaves exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "asan.h"
#include "base/float_types.h"
#include "culet/tensor.h"
#include "host_cuda/host_cuda.h"
#include "kernels/cuda_ops/code_product.h"

namespace culet::cuda_ops {
namespace {

struct Shape3 {
  int m, n, k;
};

// A product with its operands, whose elements are small integers and powers of two.
class Problem {
 public:
  Problem(const CodeProductKernel& kernel, Shape3 shape, int group, DataType scale_type,
          DataType zero_type, unsigned seed)
      : kernel_(kernel), shape_(shape), group_(group), random_(seed) {
    groups_ = (shape.k + group - 1) / group;
    x_ = Array(kernel.x, std::int64_t{shape.m} * shape.k, [&] { return Whole(-2, 2); });
    codes_ = Array(kernel.codes, std::int64_t{shape.n} * shape.k, [&] { return Code(); });
    scales_ = Array(scale_type, std::int64_t{shape.n} * groups_,
                    [&] { return std::ldexp(1.0, static_cast<int>(Whole(-2, 2))); });
    p_.x = x_.data();
    p_.x_stride = shape.k;
    p_.codes = codes_.data();
    p_.code_stride = culet::BytesOf(kernel.codes, std::int64_t{shape.k});
    p_.scales = scales_.data();
    p_.scale_type = scale_type;
    p_.scale_row_stride = groups_;
    p_.scale_k_stride = 1;
    if (zero_type != DataType::kNull) {
      const double fraction = zero_type == DataType::kFloat32 ? 0.5 : 0;
      // Not all kernels keep those below 0 where they keep the others.
      const int low = zero_type == DataType::kBfloat16 ? -1 : 0;
      zeros_ = Array(zero_type, std::int64_t{shape.n} * groups_,
                     [&] { return Whole(low, 14) + fraction; });
      p_.zeros = zeros_.data();
      p_.zero_type = zero_type;
    }
    p_.group = group;
    p_.m = shape.m, p_.n = shape.n, p_.k = shape.k;
    SetOutput(DataType::kFloat32, false);
  }

  CodeProductParams& params() { return p_; }

  void SetOutput(DataType type, bool columns) {
    d_.assign(static_cast<std::size_t>(shape_.m * shape_.n) * 4, std::byte{0xFF});
    p_.d = d_.data();
    p_.d_type = type;
    p_.d_row = columns ? 1 : shape_.n;
    p_.d_col = columns ? shape_.m : 1;
  }

  // Requires: the tokens' 16-bit numbers.
  void SetTokens(const std::vector<std::uint16_t>& x) {
    std::memcpy(x_.data(), x.data(), x.size() * sizeof x[0]);
  }

  // Requires: the codes' bytes, row by row.
  void SetCodes(const std::vector<std::uint8_t>& codes) {
    std::memcpy(codes_.data(), codes.data(), codes.size());
  }

  // Scales and zero points of a group side by side.
  void TransposeScales() {
    const auto turn = [&](const std::vector<std::byte>& from, DataType type) {
      std::vector<std::byte> to(from.size());
      for (std::int64_t row = 0; row < shape_.n; ++row) {
        for (std::int64_t g = 0; g < groups_; ++g) {
          StoreFromDouble(to.data(), type, g * shape_.n + row,
                          LoadAsDouble(from.data(), type, row * groups_ + g));
        }
      }
      return to;
    };
    turned_scales_ = turn(scales_, p_.scale_type);
    p_.scales = turned_scales_.data();
    if (p_.zeros != nullptr) {
      turned_zeros_ = turn(zeros_, p_.zero_type);
      p_.zeros = turned_zeros_.data();
    }
    p_.scale_row_stride = 1;
    p_.scale_k_stride = shape_.n;
  }

  double Expected(int token, int row) const {
    double sum = 0;
    for (int l = 0; l < shape_.k; ++l) {
      const std::int64_t at = std::int64_t{row} * shape_.k + l;
      const std::int64_t group = std::int64_t{row / p_.group_rows} * groups_ + l / group_;
      const double zero =
          p_.zeros != nullptr ? LoadAsDouble(zeros_.data(), p_.zero_type, group) : 0;
      sum += (LoadAsDouble(codes_.data(), kernel_.codes, at) - zero) *
             LoadAsDouble(scales_.data(), p_.scale_type, group) *
             LoadAsDouble(x_.data(), kernel_.x, std::int64_t{token} * shape_.k + l);
    }
    return sum;
  }

  double Result(int token, int row) const {
    return LoadAsDouble(d_.data(), p_.d_type, token * p_.d_row + row * p_.d_col);
  }

  cudaError_t Run(int splits = 1, bool overlap = false) {
    const CodeProductMemory memory = CodeProductWorkspace(kernel_, shape_.m, shape_.n, splits);
    partials_.assign(memory.partials / sizeof(float), std::nanf(""));
    arrived_.assign(memory.counters / sizeof(int), 0);
    p_.partials = partials_.data();
    p_.arrived = arrived_.data();
    p_.splits = splits;
    if (const cudaError_t error = LoadCodeProduct(kernel_); error != cudaSuccess) return error;
    return CodeProduct(kernel_, p_, {nullptr, overlap});
  }

  void ExpectExact() {
    for (int token = 0; token < shape_.m; ++token) {
      for (int row = 0; row < shape_.n; ++row) {
        ASSERT_EQ(Result(token, row), Expected(token, row)) << token << ", " << row;
      }
    }
    for (const int counter : arrived_) ASSERT_EQ(counter, 0);
  }

 private:
  double Whole(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  double Code() {
    if (kernel_.codes == DataType::kUint4) return Whole(0, 15);
    if (kernel_.codes == DataType::kInt8) return Whole(-128, 127);
    if (kernel_.codes == DataType::kFloat8_e4m3) return Whole(-16, 16);
    constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const double value = kValues[static_cast<int>(Whole(0, 7))];
    return Whole(0, 1) == 0 ? value : -value;
  }
  template <class Draw>
  std::vector<std::byte> Array(DataType type, std::int64_t elements, Draw draw) {
    std::vector<std::byte> array((static_cast<std::size_t>(culet::BytesOf(type, elements)) + 15) /
                                 16 * 16);
    for (std::int64_t i = 0; i < elements; ++i) StoreFromDouble(array.data(), type, i, draw());
    return array;
  }

  const CodeProductKernel& kernel_;
  Shape3 shape_;
  int group_;
  std::mt19937 random_;
  std::int64_t groups_;
  CodeProductParams p_;
  std::vector<std::byte> x_, codes_, scales_, zeros_, turned_scales_, turned_zeros_, d_;
  std::vector<float> partials_;
  std::vector<int> arrived_;
};

// The type of a weight's zero points, if it has some. Those of float32 are no whole numbers.
DataType ZerosOf(const CodeProductKernel& kernel, DataType type) {
  const bool some = kernel.codes == DataType::kUint4 || kernel.codes == DataType::kInt8;
  if (some && kernel.direct) return DataType::kBfloat16;
  return some ? type : DataType::kNull;
}

// `type`, or what the kernel takes instead.
DataType ScalesOf(const CodeProductKernel& kernel, DataType type) {
  if (!kernel.direct || kernel.codes == DataType::kFloat8_e4m3) return type;
  if (kernel.codes == DataType::kFloat4_e2m1) return DataType::kFloat8_ue8m0;
  return type == DataType::kBfloat16 ? type : DataType::kFloat16;
}

// `group` of `k` elements, or a whole row where the kernel takes no less.
int GroupOf(const CodeProductKernel& kernel, int group, int k) {
  return kernel.direct && kernel.codes == DataType::kFloat8_e4m3 ? k : group;
}

class CodeProducts : public testing::TestWithParam<const CodeProductKernel*> {
 protected:
  const CodeProductKernel& kernel() const { return *GetParam(); }
  // Of BF16 and F16, whose kernels differ in how a number is read, sanitizers see one but at edges.
  void SkipTwins() const {
    if (kSanitized && kernel().x == DataType::kFloat16) GTEST_SKIP() << "as with BF16";
  }
  int pieces_k(int pieces) const { return pieces * kernel().block_k; }
  // Those of K that warps of a CTA take at once.
  static int together() { return kCodeProductWarps; }
};

// Rows beyond a panel, fewer tokens than a CTA takes, K that ends within a piece; and a grid of
// tokens where the kernel takes any number.
TEST_P(CodeProducts, OddSizes) {
  const int tail = 32, tokens = kernel().tokens;
  const int m = kernel().most > tokens ? tokens + 3 : std::min(kernel().most, tokens - 1);
  const int k = pieces_k(2) + tail;
  Problem problem(kernel(), {m, kernel().rows + 5, k}, GroupOf(kernel(), kernel().group_step, k),
                  ScalesOf(kernel(), DataType::kFloat16), ZerosOf(kernel(), DataType::kUint4), 1);
  ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
  problem.ExpectExact();
}

// Whole rows, groups larger than a piece and across its end, more groups than shared memory holds.
TEST_P(CodeProducts, EveryGroup) {
  SkipTwins();
  if (IsSkipped()) return;
  const int step = kernel().group_step, piece = kernel().block_k;
  const int k = pieces_k(together() + 2);
  for (const int size : {step, 2 * step, 3 * step, piece, 3 * piece, pieces_k(20)}) {
    const int group = GroupOf(kernel(), size, k);
    const DataType scale = group == step ? DataType::kFloat8_ue8m0 : DataType::kFloat32;
    Problem problem(kernel(), {1, 17, k}, group, ScalesOf(kernel(), scale),
                    ZerosOf(kernel(), group == 2 * step   ? DataType::kBfloat16
                                      : group == 3 * step ? DataType::kFloat16
                                                          : DataType::kFloat32),
                    2);
    ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
    ASSERT_NO_FATAL_FAILURE(problem.ExpectExact()) << group;
  }
}

// Rows so long that a warp takes many pieces, and scales follow each other in shared memory.
TEST_P(CodeProducts, LongRows) {
  SkipTwins();
  if (IsSkipped()) return;
  const int k = pieces_k(9 * together() + 1);
  Problem problem(kernel(), {1, 17, k}, GroupOf(kernel(), 128, k),
                  ScalesOf(kernel(), DataType::kFloat16), ZerosOf(kernel(), DataType::kBfloat16),
                  8);
  ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
  problem.ExpectExact();
}

// Parts of K, whose sums meet in their order, launched to begin early: what the kernel before does
// last are the tokens.
TEST_P(CodeProducts, PartsOfK) {
  SkipTwins();
  if (IsSkipped()) return;
  const int splits = 3;
  const int k = pieces_k(together() * splits + 1);
  ASSERT_GE(MaxCodeSplits(kernel(), k), splits);
  for (const bool chain : {false, true}) {
    Problem problem(
        kernel(), {2, kernel().rows + 1, k}, GroupOf(kernel(), 2 * kernel().group_step, k),
        ScalesOf(kernel(), DataType::kBfloat16), ZerosOf(kernel(), DataType::kFloat16), 3);
    problem.params().early = true;
    problem.params().chain = chain;
    ASSERT_EQ(problem.Run(splits, true), cudaSuccess) << host_cuda::Fault();
    problem.ExpectExact();
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodeProducts, testing::ValuesIn(CodeProductKernels()),
                         [](const auto& info) {
                           std::string name = info.param->id;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

const CodeProductKernel& Named(const std::string& id) {
  for (const CodeProductKernel* kernel : CodeProductKernels()) {
    if (id == kernel->id) return *kernel;
  }
  throw std::runtime_error(id);
}

// D in either order and of each type, C, a bias along either axis, zero points of 4 bits, scales in
// the other order.
void ExpectEpilogues(const CodeProductKernel& kernel) {
  const Shape3 shape{5, 40, 256};
  std::vector<float> bias(64), c(5 * 40);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i % 7);
  for (const bool columns : {false, true}) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
      Problem problem(kernel, shape, kernel.group_step, ScalesOf(kernel, DataType::kFloat32),
                      ZerosOf(kernel, DataType::kUint4), 4);
      problem.TransposeScales();
      problem.SetOutput(type, columns);
      CodeProductParams& p = problem.params();
      p.alpha = 0.5f, p.beta = 2.0f;
      p.c = c.data();
      p.c_type = DataType::kFloat32;
      p.c_row = columns ? 1 : shape.n, p.c_col = columns ? shape.m : 1;
      p.bias = bias.data();
      p.bias_type = DataType::kFloat32;
      p.bias_row = columns ? 1 : 0, p.bias_col = columns ? 0 : 1;
      ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
      for (int token = 0; token < shape.m; ++token) {
        for (int row = 0; row < shape.n; ++row) {
          const auto at = static_cast<std::size_t>(token * p.c_row + row * p.c_col);
          const double value = 0.5 * problem.Expected(token, row) + 2.0 * c[at] +
                               bias[static_cast<std::size_t>(columns ? token : row)];
          ASSERT_EQ(problem.Result(token, row), RoundTo(type, value)) << token << ", " << row;
        }
      }
    }
  }
}

TEST(CodeProduct, Epilogues) { ExpectEpilogues(Named("u4_bf16/32x8x4")); }
TEST(CodeStream, Epilogues) { ExpectEpilogues(Named("u4_g32_bf16/16x8x8")); }
TEST(CodeDirect, Epilogues) { ExpectEpilogues(Named("u4_g128_bf16/32x8x2r")); }
TEST(CodeTile, Epilogues) { ExpectEpilogues(Named("u4_g128_bf16/64x64x4t")); }

// SwiGLU of gate and up, which lie one behind the other or by eights; parts of K; rows beyond the
// last panel's end; a bias for each.
TEST(CodeStream, Gated) {
  for (const char* const id : {"u4_g32_bf16/16x8x8", "e2m1_stream_f16/16x8x8",
                               "u4_g128_bf16/64x8x2r", "e2m1_bf16/32x16x2r"}) {
    const CodeProductKernel& kernel = Named(id);
    const Shape3 shape{3, 80, 128 * 2 * kCodeProductWarps};
    std::vector<float> bias(80);
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 5);
    for (const int splits : {1, 2}) {
      for (const bool halves : {false, true}) {
        Problem problem(kernel, shape, 128, ScalesOf(kernel, DataType::kFloat16),
                        ZerosOf(kernel, DataType::kBfloat16), 7);
        CodeProductParams& p = problem.params();
        p.gated = true, p.halves = halves;
        p.alpha = 0.0078125f;
        p.d_row = shape.n / 2;
        p.bias = bias.data();
        p.bias_type = DataType::kFloat32;
        p.bias_col = 1;
        ASSERT_EQ(problem.Run(splits), cudaSuccess) << host_cuda::Fault();
        for (int token = 0; token < shape.m; ++token) {
          for (int column = 0; column < shape.n / 2; ++column) {
            const int gate = halves ? column : column / 8 * 16 + column % 8;
            const int up = halves ? column + shape.n / 2 : gate + 8;
            const auto value = [&](int row) {
              return 0.0078125 * problem.Expected(token, row) + bias[static_cast<std::size_t>(row)];
            };
            const double x = value(gate), expected = x / (1 + std::exp(-x)) * value(up);
            ASSERT_NEAR(problem.Result(token, column), expected, 1e-4 * std::abs(expected) + 1e-6)
                << id << ", " << halves << ": " << token << ", " << column;
          }
        }
      }
    }
  }
}

// An infinite activation reaches its token alone, with the sign of the code less its zero point.
void ExpectInfinity(const CodeProductKernel& kernel) {
  Problem problem(kernel, {2, 32, 256}, kernel.group_step, ScalesOf(kernel, DataType::kFloat32),
                  DataType::kBfloat16, 6);
  std::vector<std::uint16_t> x(2 * 256, FloatToBfloat16(1.0f));
  x[300] = FloatToBfloat16(std::numeric_limits<float>::infinity());
  problem.SetTokens(x);
  ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
  for (int row = 0; row < 32; ++row) {
    EXPECT_EQ(problem.Result(0, row), problem.Expected(0, row));
    const double expected = problem.Expected(1, row);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(problem.Result(1, row)));
    } else {
      EXPECT_EQ(problem.Result(1, row), expected);
    }
  }
}

TEST(CodeProduct, Infinity) { ExpectInfinity(Named("u4_bf16/32x8x4")); }
TEST(CodeDirect, Infinity) { ExpectInfinity(Named("u4_g128_bf16/32x8x2r")); }

// Activations so large that codes with their bias overflow, which the codes do not.
TEST(CodeDirect, LargeActivations) {
  const CodeProductKernel& kernel = Named("u4_g128_bf16/16x8x4r");
  Problem problem(kernel, {1, 16, 256}, 128, DataType::kFloat16, DataType::kBfloat16, 11);
  std::vector<std::uint16_t> x(256, FloatToBfloat16(0x1p-120f));
  x[5] = x[250] = FloatToBfloat16(0x1p120f);
  problem.SetTokens(x);
  ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
  for (int row = 0; row < 16; ++row) {
    EXPECT_NEAR(problem.Result(0, row), problem.Expected(0, row), 0x1p100) << row;
  }
}

// E4M3: every code where one token of eight is 1; a row with a NaN is NaN for every token.
TEST(CodeProduct, EveryCodeOfE4m3) {
  constexpr int kRows = 18, kCols = 256;
  std::vector<std::uint8_t> codes(kRows * kCols);
  for (int row = 0; row < 16; ++row) {
    for (int l = 0; l < kCols; ++l) {
      const int code = (l * 16 + row) % 256;
      codes[static_cast<std::size_t>(row * kCols + l)] =
          static_cast<std::uint8_t>(code % 128 == 127 ? 0 : code);
    }
  }
  codes[16 * kCols + 77] = 0x7F;
  codes[17 * kCols + 200] = 0xFF;
  for (const char* const id :
       {"e4m3_bf16/32x8x4", "e4m3_f16/32x8x4", "e4m3_row_bf16/32x8x3r", "e4m3_row_f16/32x8x3r"}) {
    const CodeProductKernel& kernel = Named(id);
    Problem problem(kernel, {8, kRows, kCols}, GroupOf(kernel, 128, kCols), DataType::kFloat32,
                    DataType::kNull, 9);
    problem.SetCodes(codes);
    for (int first = 0; first < 16; first += 8) {
      std::vector<std::uint16_t> x(8 * kCols);
      for (int token = 0; token < 8; ++token) {
        const bool half = kernel.x == DataType::kFloat16;
        x[static_cast<std::size_t>(token * kCols + 17 * token + first)] =
            half ? 0x3C00 : FloatToBfloat16(1.0f);
      }
      problem.SetTokens(x);
      ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
      for (int token = 0; token < 8; ++token) {
        for (int row = 0; row < kRows; ++row) {
          const double result = problem.Result(token, row);
          if (row >= 16) {
            ASSERT_TRUE(std::isnan(result)) << id << ": " << token << ", " << row;
          } else {
            ASSERT_EQ(result, problem.Expected(token, row)) << id << ": " << token << ", " << row;
          }
        }
      }
    }
  }
}

// Blocks of rows and K that share a scale, and one scale for all.
TEST(CodeProduct, Blocks) {
  for (const int rows : {32, 200}) {
    Problem problem(Named("e4m3_bf16/64x16x2"), {9, 70, 416}, rows == 32 ? 128 : 416,
                    DataType::kFloat32, DataType::kNull, 10);
    problem.params().group_rows = rows;
    ASSERT_EQ(problem.Run(2), cudaSuccess) << host_cuda::Fault();
    ASSERT_NO_FATAL_FAILURE(problem.ExpectExact()) << rows;
  }
}

// Rows of E4M3 as numbers, whose scales are of blocks.
TEST(RowsOfCodes, E4m3InBlocks) {
  constexpr int kRows = 5, kCols = 200, kBlock = 128, kBlocks = 2;
  std::vector<std::uint8_t> codes(kRows * kCols);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 7);
  const std::vector<float> scales = {0.5f, 3.0f, 0.25f, 7.0f};
  std::vector<std::uint16_t> numbers(kRows * kCols);
  RowsOfCodesArgs args;
  args.weight.data = codes.data();
  args.weight.scales = scales.data();
  args.weight.type = DataType::kFloat8_e4m3;
  args.weight.scales_type = DataType::kFloat32;
  args.weight.rows = args.rows = kRows;
  args.weight.cols = args.weight.row_bytes = kCols;
  args.weight.group = kBlock, args.weight.group_rows = 3;
  args.weight.scale_row = kBlocks;
  args.target = numbers.data();
  args.target_type = DataType::kBfloat16;
  ASSERT_EQ(RowsOfCodes(args, {nullptr, false}), cudaSuccess) << host_cuda::Fault();
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kCols; ++col) {
      const std::int64_t at = row * kCols + col;
      const double code = LoadAsDouble(codes.data(), DataType::kFloat8_e4m3, at);
      const double scale = scales[static_cast<std::size_t>(row / 3 * kBlocks + col / kBlock)];
      const double number = LoadAsDouble(numbers.data(), DataType::kBfloat16, at);
      if (std::isnan(code)) {
        ASSERT_TRUE(std::isnan(number)) << row << ", " << col;
      } else {
        ASSERT_EQ(number, RoundTo(DataType::kBfloat16, code * scale)) << row << ", " << col;
      }
    }
  }
}

// One token that is 1 in one place finds the weight of that place.
TEST(CodeProduct, OneHot) {
  const CodeProductKernel& kernel = Named("e2m1_bf16/16x8x8");
  Problem problem(kernel, {1, 16, 256}, 32, DataType::kFloat8_ue8m0, DataType::kNull, 5);
  for (const int hot : {0, 1, 7, 8, 31, 32, 100, 255}) {
    std::vector<std::uint16_t> x(256);
    x[static_cast<std::size_t>(hot)] = FloatToBfloat16(1.0f);
    problem.SetTokens(x);
    ASSERT_EQ(problem.Run(), cudaSuccess) << host_cuda::Fault();
    ASSERT_NO_FATAL_FAILURE(problem.ExpectExact()) << hot;
  }
}

}  // namespace
}  // namespace culet::cuda_ops
