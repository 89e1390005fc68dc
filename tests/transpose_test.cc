// transpose(): a wrapped kernel that really computes must give the product it was asked for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "culet/kernel.h"

namespace culet {
namespace {

double At(const float* data, const MatrixLayout& layout, int row, int col) {
  return data[layout.order == Order::kRowMajor ? row * layout.ld + col : row + col * layout.ld];
}

float& At(float* data, const MatrixLayout& layout, int row, int col) {
  return data[layout.order == Order::kRowMajor ? row * layout.ld + col : row + col * layout.ld];
}

// Element (row, col) of D by the definition. All operands are floats, so that only the indices are
// under test.
double Product(const GemmArgs& p, int row, int col) {
  const auto group = [](const QuantDesc& q, int outer) {
    return q.type == QuantType::kB ? outer / q.group_size : outer;
  };
  double sum = 0;
  for (int k = 0; k < p.Adesc.cols; ++k) {
    double a = At(static_cast<const float*>(p.A), p.Adesc, row, k);
    double b = At(static_cast<const float*>(p.B), p.Bdesc, k, col);
    const QuantDesc& qa = p.operation.quant_a;
    const QuantDesc& qb = p.operation.quant_b;
    if (qa.type != QuantType::kNone) {
      a *= At(static_cast<const float*>(p.U), p.Udesc, group(qa, row), k / qa.group_size);
    }
    if (qb.type != QuantType::kNone) {
      b *= At(static_cast<const float*>(p.V), p.Vdesc, k / qb.group_size, group(qb, col));
    }
    sum += a * b;
  }
  double d = p.alpha * sum;
  if (p.beta != 0) d += p.beta * At(static_cast<const float*>(p.C), p.Cdesc, row, col);
  if (p.operation.bias.data != nullptr) {
    const auto* bias = static_cast<const float*>(p.operation.bias.data);
    d += bias[p.operation.bias.axis == Bias::Axis::kN ? col : row];
  }
  return d;
}

// Computes, and remembers what it was asked.
class LoopKernel final : public ArgsKernel {
 public:
  LoopKernel() : ArgsKernel(MakeDesc(), MakeInfo()) {}

  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    last_args = args;
    last_swizzle = swizzle;
    last_splits = splits;
    last_workspace = &workspace;
    last_stream = stream;
    for (int row = 0; row < args.Ddesc.rows; ++row) {
      for (int col = 0; col < args.Ddesc.cols; ++col) {
        At(static_cast<float*>(args.D), args.Ddesc, row, col) =
            static_cast<float>(Product(args, row, col));
      }
    }
    return result;
  }

  Feasibility why(const GemmDesc& problem) const noexcept override {
    last_problem = problem;
    // Good at tall A only, so that the wrapper is good at wide A only.
    return problem.m >= problem.n ? Feasibility::Ok() : Feasibility::Refuse("A is not tall");
  }
  int GetMaxSwizzle(const int4& shape) const override { return shape.x * 1000 + shape.y; }
  int GetMaxSplits(const int4& shape, int swizzle, std::size_t bsize,
                   std::size_t psize) const override {
    return shape.x * 1000 + shape.y + swizzle * 100000 + static_cast<int>(bsize + psize);
  }
  WorkspaceSize workspace_size(const GemmDesc& problem, int swizzle,
                               int splits) const noexcept override {
    return {static_cast<std::size_t>(problem.m), static_cast<std::size_t>(problem.n),
            static_cast<std::size_t>(10 * swizzle + splits)};
  }
  double PredictUs(const GemmDesc& problem, const DeviceInfo&, const HardwareRates&, int swizzle,
                   int splits) const noexcept override {
    return problem.m * 1000 + problem.n + swizzle * 0.5 + splits * 0.25;
  }
  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    ++prepared;
    return ArgsKernel::Prepare(args, swizzle, splits);
  }

  static KernelDesc MakeDesc() {
    KernelDesc desc;
    desc.type_a = DataType::kFloat8_e4m3;
    desc.type_b = DataType::kBfloat16;
    desc.quant_a = {QuantType::kK, 128};
    desc.quant_b = {QuantType::kB, 64};
    desc.tile_m = 128;
    desc.tile_n = 16;
    desc.cluster_m = 2;
    desc.determinism = Determinism::kBatchInvariant;
    return desc;
  }
  static KernelInfo MakeInfo() {
    KernelInfo info;
    info.name = "loop/128x16";
    info.launch_us = 3;
    return info;
  }

  int result = 0;
  int prepared = 0;
  GemmArgs last_args;
  mutable GemmDesc last_problem;
  int last_swizzle = -1, last_splits = -1;
  Workspace* last_workspace = nullptr;
  cudaStream_t last_stream = nullptr;
};

// A problem with memory of its own: strided operands with guard values between the rows.
class Operands {
 public:
  Operands(int m, int n, int k, unsigned seed) : random_(seed) {
    const auto layout = [&](int rows, int cols) {
      const bool row_major = random_() % 2 == 0;
      const int pad = static_cast<int>(random_() % 4);
      return row_major ? RowMajor(DataType::kFloat32, rows, cols, cols + pad)
                       : ColMajor(DataType::kFloat32, rows, cols, rows + pad);
    };
    args.alpha = 1.5f;
    args.beta = -0.5f;
    args.operation.quant_a = {QuantType::kK, 4};
    args.operation.quant_b = {QuantType::kB, 3};
    args.Adesc = layout(m, k);
    args.Udesc = layout(m, (k + 3) / 4);
    args.Bdesc = layout(k, n);
    args.Vdesc = layout((k + 2) / 3, (n + 2) / 3);
    args.Cdesc = layout(m, n);
    args.Ddesc = layout(m, n);
    args.A = Fill(args.Adesc);
    args.U = Fill(args.Udesc);
    args.B = Fill(args.Bdesc);
    args.V = Fill(args.Vdesc);
    args.C = Fill(args.Cdesc);
    args.D = Fill(args.Ddesc);
    bias_.resize(static_cast<std::size_t>(std::max(m, n)));
    for (float& value : bias_) value = Next();
    args.operation.bias = {bias_.data(), DataType::kFloat32, Bias::Axis::kN};
  }

  GemmArgs args;

 private:
  float Next() { return static_cast<float>(static_cast<int>(random_() % 9)) - 4; }

  float* Fill(const MatrixLayout& layout) {
    const int lines = layout.order == Order::kRowMajor ? layout.rows : layout.cols;
    auto& buffer = buffers_.emplace_back(static_cast<std::size_t>(layout.ld * lines));
    for (float& value : buffer) value = Next();
    return buffer.data();
  }

  std::mt19937 random_;
  std::vector<std::vector<float>> buffers_;
  std::vector<float> bias_;
};

int LaunchAll(Kernel& kernel, const GemmArgs& p, int swizzle, int splits, Workspace& workspace,
              cudaStream_t stream) {
  return kernel.Launch(p.operation, p.alpha, p.A, p.Adesc, p.U, p.Udesc, p.B, p.Bdesc, p.V, p.Vdesc,
                       p.beta, p.C, p.Cdesc, p.D, p.Ddesc, swizzle, splits, workspace, stream);
}

void ExpectProduct(const GemmArgs& args) {
  for (int row = 0; row < args.Ddesc.rows; ++row) {
    for (int col = 0; col < args.Ddesc.cols; ++col) {
      // Small integers: every sum is exact.
      ASSERT_EQ(At(static_cast<const float*>(args.D), args.Ddesc, row, col),
                Product(args, row, col))
          << row << ", " << col;
    }
  }
}

TEST(TransposeTest, ComputesTheSameProductWhateverTheShapesAndOrders) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  const int shapes[][3] = {{1, 7, 5}, {3, 8, 16}, {11, 2, 9}, {5, 5, 5}, {1, 1, 1}, {6, 13, 1}};
  for (unsigned seed = 0; seed < 32; ++seed) {
    for (const auto& [m, n, k] : shapes) {
      for (const auto axis : {Bias::Axis::kN, Bias::Axis::kM}) {
        Operands operands(m, n, k, seed);
        operands.args.operation.bias.axis = axis;
        Workspace workspace;
        ASSERT_EQ(LaunchAll(*twin, operands.args, 0, 1, workspace, nullptr), 0);
        ExpectProduct(operands.args);
      }
    }
  }
}

TEST(TransposeTest, WithoutScalesBiasAndC) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  Operands operands(4, 9, 6, 1);
  GemmArgs& args = operands.args;
  args.operation.quant_a = args.operation.quant_b = {};
  args.operation.bias = {};
  args.U = args.V = args.C = nullptr;
  args.Udesc = args.Vdesc = args.Cdesc = {};
  args.beta = 0;
  Workspace workspace;
  ASSERT_EQ(LaunchAll(*twin, args, 0, 1, workspace, nullptr), 0);
  ExpectProduct(args);
}

TEST(TransposeTest, CInPlaceOfD) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  Operands operands(4, 9, 6, 1);
  GemmArgs& args = operands.args;
  args.C = args.D;
  args.Cdesc = args.Ddesc;
  std::vector<float> expected;
  for (int row = 0; row < 4; ++row) {
    for (int col = 0; col < 9; ++col) {
      expected.push_back(static_cast<float>(Product(args, row, col)));
    }
  }
  Workspace workspace;
  ASSERT_EQ(LaunchAll(*twin, args, 0, 1, workspace, nullptr), 0);
  for (int row = 0; row < 4; ++row) {
    for (int col = 0; col < 9; ++col) {
      EXPECT_EQ(At(static_cast<float*>(args.D), args.Ddesc, row, col),
                expected[static_cast<std::size_t>(row * 9 + col)]);
    }
  }
}

TEST(TransposeTest, TwiceIsTheKernelItself) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  const auto twice = transpose(*twin);
  Operands operands(3, 10, 7, 5);
  Workspace workspace;
  ASSERT_EQ(LaunchAll(*twice, operands.args, 0, 1, workspace, nullptr), 0);
  ExpectProduct(operands.args);
  EXPECT_EQ(loop.last_args.A, operands.args.A);
  EXPECT_EQ(loop.last_args.operation.bias.axis, Bias::Axis::kN);
  EXPECT_FALSE(twice->desc().transpose);
}

TEST(TransposeTest, PassesOnHowToLaunchAndWhatCameBack) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  Operands operands(3, 10, 7, 5);
  operands.args.operation.batch_dim = 0;
  operands.args.operation.sm_budget = 9;
  Workspace workspace;
  auto* stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1234});
  loop.result = static_cast<int>(StatusCode::kResourceExhausted);
  EXPECT_EQ(LaunchAll(*twin, operands.args, 3, 2, workspace, stream), loop.result);
  EXPECT_EQ(loop.last_swizzle, 3);
  EXPECT_EQ(loop.last_splits, 2);
  EXPECT_EQ(loop.last_workspace, &workspace);
  EXPECT_EQ(loop.last_stream, stream);
  EXPECT_EQ(loop.last_args.operation.batch_dim, 1);
  EXPECT_EQ(loop.last_args.operation.sm_budget, 9);
  EXPECT_EQ(loop.last_args.operation.bias.axis, Bias::Axis::kM);
  EXPECT_EQ(loop.last_args.operation.quant_a, operands.args.operation.quant_b);
}

// The caller's promise is about B and V; the inner kernel would take it for A and U.
TEST(TransposeTest, ThePromiseAboutBIsNotPassedOn) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  Operands operands(3, 10, 7, 5);
  operands.args.operation.pdl = true;
  Workspace workspace;
  LaunchAll(*twin, operands.args, 0, 1, workspace, nullptr);
  EXPECT_FALSE(loop.last_args.operation.pdl);
  GemmDesc problem;
  problem.pdl = true;
  EXPECT_TRUE(twin->is_feasible(problem));
  EXPECT_FALSE(loop.last_problem.pdl);
}

TEST(TransposeTest, IdAndDescAreThoseOfTheTwin) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  EXPECT_EQ(twin->id(), "loop/128x16/t");
  const KernelDesc& desc = twin->desc();
  EXPECT_TRUE(desc.transpose);
  EXPECT_EQ(desc.type_a, DataType::kBfloat16);
  EXPECT_EQ(desc.type_b, DataType::kFloat8_e4m3);
  EXPECT_EQ(desc.quant_a, (QuantDesc{QuantType::kB, 64}));
  EXPECT_EQ(desc.quant_b, (QuantDesc{QuantType::kK, 128}));
  EXPECT_EQ(desc.tile_m, 16);
  EXPECT_EQ(desc.tile_n, 128);
  EXPECT_EQ(desc.cluster_m, 1);
  EXPECT_EQ(desc.cluster_n, 2);
  EXPECT_EQ(twin->info().launch_us, 3);
}

TEST(TransposeTest, QuestionsReachTheKernelTransposed) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  GemmDesc problem;
  problem.m = 7;
  problem.n = 12;
  problem.k = 5;
  problem.a.type = DataType::kFloat32;
  problem.b.type = DataType::kFloat16;
  EXPECT_TRUE(twin->is_feasible(problem));
  EXPECT_EQ(loop.last_problem, Transposed(problem));
  EXPECT_STREQ(twin->why(Transposed(problem)).reason(), "A is not tall");

  const int4 shape = ShapeOf(problem);
  EXPECT_EQ(twin->GetMaxSwizzle(shape), 12007);
  EXPECT_EQ(twin->GetMaxSplits(shape, 3, 20, 30), 312057);
  const WorkspaceSize size = twin->workspace_size(problem, 4, 2);
  EXPECT_EQ(size.barriers, 12u);
  EXPECT_EQ(size.partials, 7u);
  EXPECT_EQ(size.tensormaps, 42u);
  EXPECT_DOUBLE_EQ(twin->PredictUs(problem, {}, {}, 1, 2), 12008);
}

TEST(TransposeTest, RefusesWhatTransposingWouldBreak) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  GemmDesc problem;
  problem.epilogue = Epilogue::kGatedSilu;
  EXPECT_STRNE(twin->why(problem).reason(), "");
  problem.epilogue = Epilogue::kNone;
  problem.determinism = Determinism::kRepeatable;
  EXPECT_TRUE(twin->is_feasible(problem));
  // The loop keeps the bits of its rows; its twin's rows are the loop's columns.
  problem.determinism = Determinism::kBatchInvariant;
  EXPECT_TRUE(loop.is_feasible(problem));
  EXPECT_FALSE(twin->is_feasible(problem));
}

// A plan binds B and lets A change. Binding the inner kernel's B would bind the caller's A.
TEST(TransposeTest, APreparedTwinTakesAnotherAAtEachLaunch) {
  LoopKernel loop;
  const auto twin = transpose(loop);
  Operands first(3, 10, 7, 5);
  const auto prepared = twin->Prepare(first.args, 0, 1);
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(loop.prepared, 0);
  std::vector<float> other_a(100, 2.0f), other_u(100, 3.0f);
  GemmArgs args = first.args;
  args.A = other_a.data();
  args.U = other_u.data();
  args.alpha = 2;
  Workspace workspace;
  ASSERT_EQ((*prepared)->Launch(args.alpha, args.A, args.U, args.beta, args.C, args.D, workspace,
                                nullptr),
            0);
  ExpectProduct(args);
}

}  // namespace
}  // namespace culet
