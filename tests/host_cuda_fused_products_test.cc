// Groups of a norm, products and what follows them, with a kernel that fuses: which are found, what
// it is given, and that the values are those of the nodes. On the CPU (tests/host_cuda).
#include <algorithm>
#include <cmath>

#include "cuda/fused_product.h"
#include "cuda/fusion_fixture.h"
#include "fake_kernel.h"
#include "graph/cuda/dispatch.h"
#include "other_memory.h"

namespace culet {

TestDispatch MakeTestDispatch(const CudaDispatchOptions& options) {
  static OtherMemory memory;
  TestDispatch test;
  test.gemm = std::make_unique<Gemm>(*Gemm::Create());
  test.dispatch = cuda_ops::MakeDispatch(*test.gemm, memory, options);
  return test;
}

namespace {

// D = A B for column-major weights, and the neighbours, one element after the other.
class PlainFusing final : public FakeKernel, public FusesProducts {
 public:
  PlainFusing() : FakeKernel("test/fusing") {
    predicted_us = 1e-3;  // before all others
    run = [](const GemmArgs& args, int, int, Workspace&) {
      Multiply(args, args.A, [&](int row, int column, double value) {
        StoreFromDouble(args.D, args.Ddesc.type, row * args.Ddesc.ld + column, value);
      });
      return 0;
    };
  }
  Feasibility why(const GemmDesc& desc) const noexcept override {
    const bool plain = desc.b.order == Order::kColMajor && desc.b.quant.type == QuantType::kNone &&
                       desc.c.type == DataType::kNull && desc.m <= 8;
    return plain ? Feasibility::Ok() : Feasibility::Refuse("plain products of few rows");
  }

  Feasibility WhyFused(const GemmDesc&, const ProductFusion& fusion, int) const noexcept override {
    if (fusion.gated && !gates) return Feasibility::Refuse("does not gate");
    return Feasibility::Ok();
  }
  double PredictFusedUs(const GemmDesc&, const ProductFusion&, const DeviceInfo&,
                        const HardwareRates&, int) const noexcept override {
    return fused_us;
  }
  Result<std::unique_ptr<PreparedFusedProduct>> PrepareFused(const GemmArgs& args,
                                                             const ProductFusion& fusion,
                                                             int) const override {
    return std::unique_ptr<PreparedFusedProduct>(std::make_unique<Fused>(args, fusion));
  }

  bool gates = true;
  double fused_us = 1e-3;

 private:
  template <class Store>
  static void Multiply(const GemmArgs& args, const void* a, const Store& store) {
    for (int row = 0; row < args.Adesc.rows; ++row) {
      for (int column = 0; column < args.Bdesc.cols; ++column) {
        double sum = 0;
        for (int k = 0; k < args.Adesc.cols; ++k) {
          sum += LoadAsDouble(a, args.Adesc.type, row * args.Adesc.ld + k) *
                 LoadAsDouble(args.B, args.Bdesc.type, column * args.Bdesc.ld + k);
        }
        const Bias& bias = args.operation.bias;
        if (bias.data != nullptr) sum += LoadAsDouble(bias.data, bias.type, column);
        store(row, column, sum);
      }
    }
  }

  class Fused final : public PreparedFusedProduct {
   public:
    Fused(const GemmArgs& args, const ProductFusion& fusion) : args_(args), fusion_(fusion) {}

    cudaError_t Launch(const FusedProductPointers& p, cudaStream_t) const noexcept override {
      if ((p.y != nullptr) != fusion_.adds) return cudaErrorInvalidValue;
      const int rows = args_.Adesc.rows, width = args_.Adesc.cols, n = args_.Bdesc.cols;
      Matrix a(args_.Adesc.type, rows, width, std::vector<float>(rows * width));
      for (int row = 0; row < rows; ++row) {
        std::vector<double> x(static_cast<std::size_t>(width));
        double squares = 0;
        for (int i = 0; i < width; ++i) {
          const int at = row * width + i;
          const float sum = p.y == nullptr ? p.x[at] : p.x[at] + p.y[at];
          if (p.sum != nullptr) p.sum[at] = sum;
          x[static_cast<std::size_t>(i)] = sum;
          squares += double{sum} * sum;
        }
        const double scale = 1 / std::sqrt(squares / width + fusion_.epsilon);
        for (int i = 0; i < width; ++i) {
          a.Set(row * width + i, x[static_cast<std::size_t>(i)] * scale *
                                     LoadAsDouble(fusion_.gamma, fusion_.gamma_type, i));
        }
      }
      const DataType type = args_.Ddesc.type;
      Matrix d(type, rows, n, std::vector<float>(rows * n));
      Multiply(args_, a.bytes.data(),
               [&](int row, int column, double value) { d.Set(row * n + column, value); });
      const auto at = [&](int i) { return LoadAsDouble(d.bytes.data(), type, i); };
      const int columns = fusion_.gated ? n / 2 : n;
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < columns; ++i) {
          const double gate = at(row * n + i);
          const double value =
              fusion_.gated ? gate / (1 + std::exp(-gate)) * at(row * n + columns + i) : gate;
          StoreFromDouble(p.D, type, row * columns + i, value);
        }
      }
      return cudaSuccess;
    }

   private:
    GemmArgs args_;
    ProductFusion fusion_;
  };
};

class FusedProductGroups : public CudaFusions {
 protected:
  void SetUp() override {
    CudaFusions::SetUp();
    auto kernel = std::make_unique<PlainFusing>();
    kernel_ = kernel.get();
    ASSERT_TRUE(test_.gemm->Register(std::move(kernel)).ok());
  }

  // (x + y,) norm, gate and up, SwiGLU (, its codes).
  struct Group {
    ComputeGraph graph;
    int sum = -1, norm = -1, inner = -1, codes = -1;
  };
  Group GateUp(DataType type, std::int64_t rows, bool adds, bool codes = false,
               DataType stream = DataType::kFloat32) {
    constexpr std::int64_t kHidden = 64, kWidth = 136;
    Group g;
    int x = Leaf(g.graph, Matrix(stream, rows, kHidden, 91));
    if (adds) {
      const int y = Leaf(g.graph, Matrix(stream, rows, kHidden, 92));
      x = g.sum = g.graph.add_op(TensorOp::kAdd, 0, {rows, kHidden}, {x, y}, {}, "", stream);
    }
    OpParams params;
    params.gamma = OnDevice(Matrix(DataType::kBfloat16, 1, kHidden, 93));
    params.scalar = 1e-5f;
    g.norm = g.graph.add_op(TensorOp::kRmsNorm, 0, {rows, kHidden}, {x}, params, "", type);
    const auto weights = Joined(DataType::kBfloat16, {kWidth, kWidth}, kHidden, 94);
    int products[2];
    for (std::size_t i = 0; i < 2; ++i) {
      OpParams product;
      product.weight = weights[i];
      products[i] =
          g.graph.add_op(TensorOp::kMulMat, 0, {rows, kWidth}, {g.norm}, product, "", type);
    }
    g.inner = g.graph.add_op(TensorOp::kSwiGlu, 0, {rows, kWidth}, {products[0], products[1]}, {},
                             "", type);
    if (codes) g.codes = g.graph.add_quantize(g.inner, {QuantType::kK, 128}).codes;
    return g;
  }

  // The names of the fusions that are used, one after the other.
  std::string Used(const ComputeGraph& graph) {
    auto executor = GraphExecutor::Create(graph, *test_.dispatch);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    std::string names;
    if (!executor.ok()) return names;
    for (const Fusion& fusion : executor->fusions())
      names += (names.empty() ? "" : " ") + fusion.name;
    return names;
  }

  PlainFusing* kernel_ = nullptr;
};

TEST_F(FusedProductGroups, GiveWhatTheirNodesGive) {
  for (const DataType type : kValues) {
    for (const std::int64_t rows : {1, 5}) {
      for (const bool adds : {false, true}) {
        for (const bool gates : {false, true}) {
          for (const bool codes : {false, true}) {
            for (const bool kept : {false, true}) {
              kernel_->gates = gates;
              const Group g = GateUp(type, rows, adds, codes);
              std::vector<int> ids = {g.inner};
              if (codes) ids.push_back(g.codes);
              if (adds && kept) ids.push_back(g.sum);
              ExpectSame(g.graph, ids, codes ? "rms_norm_gate_up_quantize" : "rms_norm_gate_up",
                         std::string(ToString(type)) + (gates ? " gated" : ""),
                         codes ? 2e-2 : 8e-3);
            }
          }
        }
      }
    }
  }
}

TEST_F(FusedProductGroups, AreWhatIsPredictedToBeFaster) {
  const Group g = GateUp(DataType::kBfloat16, 1, true);
  EXPECT_EQ(Used(g.graph), "rms_norm_gate_up");
  // The decision is remembered: another dispatch for another prediction.
  kernel_->fused_us = 1e3;
  test_.dispatch = cuda_ops::MakeDispatch(*test_.gemm, test_.dispatch->memory(), {});
  EXPECT_EQ(Used(g.graph), "gate_up add_rms_norm");
}

TEST_F(FusedProductGroups, AreLeftOutWhereTheyDoNotFit) {
  // More rows than the kernel takes.
  EXPECT_EQ(Used(GateUp(DataType::kBfloat16, 9, true).graph), "gate_up add_rms_norm");
  // A stream that is not FP32.
  EXPECT_EQ(Used(GateUp(DataType::kBfloat16, 1, true, false, DataType::kBfloat16).graph),
            "gate_up add_rms_norm");
  // A norm that somebody else reads.
  Group read = GateUp(DataType::kBfloat16, 1, true);
  read.graph.mark_output(read.norm);
  EXPECT_EQ(Used(read.graph), "gate_up add_rms_norm");
  // Switched off.
  const Group g = GateUp(DataType::kBfloat16, 1, true);
  auto executor =
      GraphExecutor::Create(g.graph, *test_.dispatch, nullptr, {.off = {"rms_norm_gate_up"}});
  ASSERT_TRUE(executor.ok());
  EXPECT_EQ(executor->fusions().size(), 2u);
}

// A decoder: the norms of both halves of a layer are within its products, q, k and v, too.
TEST_F(FusedProductGroups, AreFoundInAModel) {
  std::string text = kDense;
  text.replace(text.find("$A"), 2, "Qwen3ForCausalLM");
  text.replace(text.find("$M"), 2, "qwen3");
  const auto config = ParseDecoderConfig(text, "the test");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto model = DecoderModel::Random(*config, DataType::kBfloat16, test_.dispatch->memory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  for (const DataType cache : {DataType::kFloat32, DataType::kBfloat16}) {
    // Attention over a cache of 16 bits is in its group, too.
    const bool attends = cache == DataType::kBfloat16;
    std::vector<float> logits[2];
    for (const bool fused : {false, true}) {
      auto session =
          Session::Create(*model, *test_.dispatch,
                          {.max_context = 32, .cache_type = cache, .fusions = {.none = !fused}});
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      logits[fused] = LogitsOfAStep(*session);
      if (!fused) continue;
      std::map<std::string, int> used;
      for (const Fusion& fusion : session->last_executor()->fusions()) ++used[fusion.name];
      EXPECT_EQ(used[attends ? "rms_norm_qkv_attention" : "rms_norm_qkv"], 2);
      EXPECT_EQ(used["rms_norm_gate_up"], 2);
      // A layer: q, k and v with attention or without, attention, o, gate and up, down.
      EXPECT_EQ(session->last_executor()->n_launches(), 2 * (attends ? 4 : 5) + 5);
    }
    EXPECT_LE(RelativeError(logits[1], logits[0]), 1e-2) << ToString(cache);
  }
}

}  // namespace
}  // namespace culet
