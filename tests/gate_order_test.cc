// GateOrder::kHalves, gate's columns followed by up's: against sums of the test's own, against the
// same weights by eights, and what happens where a problem or a kernel has no such order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "culet/desc.h"
#include "culet/gemm.h"
#include "culet/kernel.h"
#include "culet/registry.h"
#include "culet/scratch.h"
#include "fake_kernel.h"

namespace culet {
namespace {

using testing::HasSubstr;

constexpr DataType kF32 = DataType::kFloat32;
constexpr DataType kBf16 = DataType::kBfloat16;
constexpr DataType kE4m3 = DataType::kFloat8_e4m3;
constexpr int kM = 9, kK = 300;

struct Format {
  DataType type;
  QuantDesc quant_a, quant_b;
};
constexpr Format kFormats[] = {{kBf16, {}, {}},
                               {kF32, {}, {}},
                               {kE4m3, {QuantType::kK, 128}, {QuantType::kB, 128}},
                               {kE4m3, {QuantType::kRow}, {QuantType::kRow}},
                               {kE4m3, {QuantType::kTensor}, {QuantType::kTensor}}};

// n / 2: whole blocks of 128 columns; 144, whose middle block has columns of gate and of up and
// whose last group of D is partial.
constexpr int kWidths[] = {512, 288};

GemmDesc Halves(const Format& format, Epilogue epilogue, int n) {
  GemmDesc desc;
  desc.epilogue = epilogue;
  desc.gate_order = GateOrder::kHalves;
  desc.a.type = desc.b.type = format.type;
  desc.a.quant = format.quant_a;
  desc.b.quant = format.quant_b;
  if (format.quant_a.type != QuantType::kNone) desc.a.scale_type = desc.b.scale_type = kF32;
  desc.d.type = kF32;
  if (epilogue == Epilogue::kGatedSiluQuant) {
    desc.d.type = kE4m3;
    desc.d.quant = {QuantType::kK, 128};
    desc.d.scale_type = kF32;
  }
  desc.m = kM;
  desc.n = n;
  desc.k = kK;
  return desc;
}

// Every format, width and epilogue; with C, a bias on either axis and a batch in turns.
std::vector<GemmDesc> Problems() {
  std::vector<GemmDesc> problems;
  for (const Format& format : kFormats) {
    for (const int n : kWidths) {
      for (const Epilogue epilogue : {Epilogue::kGatedSilu, Epilogue::kGatedSiluQuant}) {
        GemmDesc desc = Halves(format, epilogue, n);
        problems.push_back(desc);
        desc.c.type = kBf16;
        desc.type_bias = kF32;
        desc.c.order = Order::kColMajor;
        problems.push_back(desc);
        desc.bias_axis = Bias::Axis::kM;
        desc.num = desc.a.num = desc.b.num = desc.c.num = desc.d.num = 3;
        problems.push_back(desc);
      }
    }
  }
  return problems;
}

double Get(const void* data, const MatrixLayout& layout, int matrix, int row, int col) {
  return LoadAsDouble(data, layout.type, BatchOffset(layout, matrix) + IndexOf(layout, row, col));
}

// What element (row, column) of A B is before the epilogue, by the definition.
double Before(const GemmArgs& args, int matrix, int row, int col) {
  const auto scale = [&](const QuantDesc& quant, const void* data, const MatrixLayout& layout,
                         bool of_b, int outer, int k) {
    if (quant.type == QuantType::kNone) return 1.0;
    const int line = quant.type == QuantType::kTensor ? 0
                     : quant.type == QuantType::kB    ? outer / 128
                                                      : outer;
    const int group = HasGroupSize(quant.type) ? k / 128 : 0;
    return of_b ? Get(data, layout, matrix, group, line) : Get(data, layout, matrix, line, group);
  };
  const Operation& op = args.operation;
  double sum = 0;
  for (int k = 0; k < args.Adesc.cols; ++k) {
    sum += Get(args.A, args.Adesc, matrix, row, k) *
           scale(op.quant_a, args.U, args.Udesc, false, row, k) *
           Get(args.B, args.Bdesc, matrix, k, col) *
           scale(op.quant_b, args.V, args.Vdesc, true, col, k);
  }
  sum *= args.alpha;
  if (args.beta != 0) sum += args.beta * Get(args.C, args.Cdesc, matrix, row, col);
  if (op.bias.data == nullptr) return sum;
  return sum + LoadAsDouble(op.bias.data, op.bias.type, op.bias.axis == Bias::Axis::kN ? col : row);
}

// A row of D, by the definition.
std::vector<double> GatedRow(const GemmArgs& args, int matrix, int row) {
  std::vector<double> values;
  const int half = args.Bdesc.cols / 2;
  for (int col = 0; col < half; ++col) {
    const double gate = Before(args, matrix, row, col);
    values.push_back(gate / (1 + std::exp(-gate)) * Before(args, matrix, row, half + col));
  }
  return values;
}

// The same product by eights, over copies of B, its scales, C and the bias.
class ByEights {
 public:
  explicit ByEights(const GemmArgs& halves) : args(halves) {
    const int n = halves.Bdesc.cols, k = halves.Bdesc.rows;
    Operation& op = args.operation;
    op.gate_order = GateOrder::kEights;
    args.B = Copied(halves.B, halves.Bdesc, k, 1, b_, args.Bdesc);
    if (op.quant_b.type != QuantType::kNone && op.quant_b.type != QuantType::kTensor) {
      // Eights of one block come from two: their scales become those of columns.
      const int outer = op.quant_b.type == QuantType::kB ? op.quant_b.group_size : 1;
      if (op.quant_b.type == QuantType::kB) op.quant_b.type = QuantType::kK;
      args.V = Copied(halves.V, halves.Vdesc, halves.Vdesc.rows, outer, v_, args.Vdesc, n);
    }
    if (args.beta != 0) args.C = Copied(halves.C, halves.Cdesc, kM, 1, c_, args.Cdesc);
    if (op.bias.data != nullptr && op.bias.axis == Bias::Axis::kN) {
      MatrixLayout layout = RowMajor(op.bias.type, 1, n);
      op.bias.data = Copied(op.bias.data, layout, 1, 1, bias_, layout);
    }
  }

  GemmArgs args;

 private:
  // The column in kHalves order of a column in kEights order.
  static int Source(int place, int n) {
    const int group = place / 16, lane = place % 16;
    return lane < 8 ? 8 * group + lane : n / 2 + 8 * group + lane - 8;
  }

  // A compact copy whose column `i` is the source's that holds column Source(i) of the product,
  // `outer` of which share one there.
  static const void* Copied(const void* data, MatrixLayout from, int rows, int outer,
                            std::vector<std::byte>& memory, MatrixLayout& to, int n = 0) {
    if (n == 0) n = from.cols;
    const int num = from.num;
    const std::size_t size = SizeOf(from.type);
    to = ColMajor(from.type, rows, n);
    to.num = num;
    to.batch_stride = num > 1 ? std::int64_t{rows} * n : 0;
    memory.resize(static_cast<std::size_t>(num) * rows * n * size);
    for (int matrix = 0; matrix < num; ++matrix) {
      for (int col = 0; col < n; ++col) {
        for (int row = 0; row < rows; ++row) {
          const auto at = BatchOffset(to, matrix) + IndexOf(to, row, col);
          const auto source =
              BatchOffset(from, matrix) + IndexOf(from, row, Source(col, n) / outer);
          std::memcpy(memory.data() + static_cast<std::size_t>(at) * size,
                      static_cast<const std::byte*>(data) + static_cast<std::size_t>(source) * size,
                      size);
        }
      }
    }
    return memory.data();
  }

  std::vector<std::byte> b_, v_, c_, bias_;
};

class GateOrderTest : public testing::Test {
 protected:
  void Launch(const GemmArgs& args) {
    const auto desc = Describe(args, 0);
    ASSERT_TRUE(desc.ok()) << desc.status().ToString();
    Workspace workspace;
    const Status status = LaunchKernel(*reference_, args, 0, 1, workspace, nullptr);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  static ScratchProblem Make(const GemmDesc& desc) {
    ScratchOptions options;
    options.alpha = 0.7f;
    options.beta = -1.5f;
    options.gap_bytes = 24;
    auto scratch = ScratchProblem::Create(HostDevice(), desc, options);
    EXPECT_TRUE(scratch.ok()) << ToString(desc) << ": " << scratch.status().ToString();
    EXPECT_TRUE(scratch->PoisonOutput().ok());
    return *std::move(scratch);
  }

  Registry registry_ = Registry::Builtin(HostDevice());
  Kernel* reference_ = registry_.Find("cpu_reference");
};

TEST(GatePairs, TakeEachColumnOnce) {
  for (const GateOrder order : {GateOrder::kEights, GateOrder::kHalves}) {
    std::vector<int> taken(48);
    for (int col = 0; col < 24; ++col) {
      const GatePair pair = PairOf(order, 48, col);
      ++taken[pair.gate], ++taken[pair.up];
      EXPECT_EQ(pair.up - pair.gate, order == GateOrder::kHalves ? 24 : 8) << col;
    }
    EXPECT_EQ(taken, std::vector<int>(48, 1)) << ToString(order);
  }
}

TEST_F(GateOrderTest, TheReferenceComputesTheDefinition) {
  for (const GemmDesc& desc : Problems()) {
    const ScratchProblem scratch = Make(desc);
    const GemmArgs& args = scratch.args();
    Launch(args);
    const MatrixLayout& w = args.operation.quant_d.layout;
    for (int matrix = 0; matrix < desc.num; ++matrix) {
      for (const int row : {0, kM / 2, kM - 1}) {
        const std::vector<double> expected = GatedRow(args, matrix, row);
        for (int col = 0; col < desc.n / 2; ++col) {
          const double y = expected[static_cast<std::size_t>(col)];
          double found = Get(args.D, args.Ddesc, matrix, row, col), bound = 1e-6 * std::fabs(y);
          if (desc.epilogue == Epilogue::kGatedSiluQuant) {
            const auto group = expected.begin() + col / 128 * 128;
            const auto end = std::min(group + 128, expected.end());
            const double amax = std::fabs(*std::max_element(
                group, end, [](double a, double b) { return std::fabs(a) < std::fabs(b); }));
            const double scale = Get(args.operation.quant_d.scales, w, matrix, row, col / 128);
            ASSERT_NEAR(scale, amax / 448, 1e-6 * scale) << ToString(desc) << " row " << row;
            found *= scale;
            bound = std::max(0x1.01p-4 * std::fabs(y), 0x1.01p-10 * scale);
          }
          ASSERT_NEAR(found, y, bound + 1e-30) << ToString(desc) << ": " << row << " " << col;
        }
      }
    }
  }
}

TEST_F(GateOrderTest, HalvesAreTheSameBitsAsEights) {
  for (const GemmDesc& desc : Problems()) {
    ScratchProblem scratch = Make(desc);
    Launch(scratch.args());
    const auto halves = scratch.OutputBytes();
    ASSERT_TRUE(scratch.PoisonOutput().ok());
    const ByEights eights(scratch.args());
    Launch(eights.args);
    const auto expected = scratch.OutputBytes();
    ASSERT_TRUE(halves.ok() && expected.ok());
    EXPECT_EQ(*halves, *expected) << ToString(desc);
  }
}

TEST_F(GateOrderTest, AComparisonTellsTheOrdersApart) {
  for (const GemmDesc& desc : Problems()) {
    ScratchProblem scratch = Make(desc);
    EXPECT_EQ(*Describe(scratch.args(), 0), desc) << ToString(desc);
    Launch(scratch.args());
    const auto right = scratch.Compare();
    ASSERT_TRUE(right.ok());
    EXPECT_TRUE(right->ok()) << ToString(desc) << ": " << right->ToString();
    ASSERT_TRUE(scratch.PoisonOutput().ok());
    GemmArgs wrong = scratch.args();
    wrong.operation.gate_order = GateOrder::kEights;
    Launch(wrong);
    EXPECT_FALSE(scratch.Compare()->ok()) << ToString(desc);
  }
}

TEST_F(GateOrderTest, NeedsAGatedEpilogue) {
  GemmDesc desc = Halves(kFormats[0], Epilogue::kGatedSilu, 512);
  EXPECT_THAT(ToString(desc), HasSubstr(" gated_silu of halves"));
  desc.epilogue = Epilogue::kNone;
  const auto scratch = ScratchProblem::Create(HostDevice(), desc);
  ASSERT_FALSE(scratch.ok());
  EXPECT_THAT(scratch.status().message(),
              HasSubstr("operation.gate_order is halves, but the epilogue none pairs no columns; "
                        "leave it at eights"));
}

TEST_F(GateOrderTest, MustBeAnEnumerator) {
  const ScratchProblem scratch = Make(Halves(kFormats[0], Epilogue::kGatedSilu, 288));
  GemmArgs args = scratch.args();
  args.operation.gate_order = static_cast<GateOrder>(99);
  const Status status = Describe(args, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("gate_order"));
  EXPECT_THAT(status.message(), HasSubstr("99"));
  EXPECT_THAT(status.message(), HasSubstr("use the enumerators"));
}

// A kernel states the order beside its epilogue: who does not is never asked for halves.
TEST_F(GateOrderTest, AKernelThatDoesNotStateItIsPassedBy) {
  Gemm gemm = *Gemm::Create({.providers = "own"});
  const auto add = [&](const char* id, Epilogue epilogue, bool any, bool halves) {
    auto kernel = std::make_unique<FakeKernel>(id);
    kernel->predicted_us = halves ? 1e-7 : 1e-9;
    kernel->stated().epilogue = epilogue;
    kernel->stated().any_epilogue = any;
    kernel->stated().gate_halves = halves;
    ASSERT_TRUE(gemm.Register(std::move(kernel)).ok());
  };
  add("eights", Epilogue::kGatedSilu, false, false);
  add("any_eights", Epilogue::kNone, true, false);
  add("halves", Epilogue::kGatedSilu, false, true);
  GemmDesc desc = Halves(kFormats[1], Epilogue::kGatedSilu, 288);
  const auto explanation = gemm.explain(desc);
  ASSERT_TRUE(explanation.ok()) << explanation.status().ToString();
  EXPECT_EQ(explanation->choice.kernel->id(), "halves");
  int refused = 0;
  for (const auto& rejected : explanation->rejected) {
    if (!rejected.kernel_id.ends_with("eights")) continue;
    ++refused;
    EXPECT_FALSE(rejected.feasible) << rejected.kernel_id;
    EXPECT_EQ(rejected.reason, "takes gate and up by eights, not one behind the other");
  }
  EXPECT_EQ(refused, 2);
  EXPECT_THAT(explanation->ToString(), HasSubstr("gated_silu of halves"));
  desc.gate_order = GateOrder::kEights;  // who takes halves takes eights, too
  const auto usual = gemm.explain(desc);
  ASSERT_TRUE(usual.ok()) << usual.status().ToString();
  EXPECT_THAT(usual->choice.kernel->id(), HasSubstr("eights"));
  EXPECT_TRUE(gemm.registry().Find("halves")->is_feasible(desc));
}

}  // namespace
}  // namespace culet
