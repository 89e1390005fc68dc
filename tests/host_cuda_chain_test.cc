// Which products of a step let the next kernel begin before their own wait.
#include <gtest/gtest.h>

#include <vector>

#include "culet/graph.h"
#include "graph/cuda/product.h"

namespace culet::cuda_ops {
namespace {

constexpr int kMultiprocessors = 132;

// Two layers of products as a decoder launches them.
class Layers {
 public:
  Layers(std::int64_t hidden, std::int64_t heads, std::int64_t kv, std::int64_t inner) {
    int x = graph_.add_leaf(0x1000, {1, hidden}, DataType::kBfloat16);
    for (int layer = 0; layer < 2; ++layer) {
      q = Product(x, heads);
      k = Product(x, kv);
      v = Product(x, kv);
      o = Product(graph_.add_op(TensorOp::kAttention, 0, {1, heads}, {q, k, v}), hidden);
      x = graph_.add_op(TensorOp::kAdd, 0, {1, hidden}, {x, o});
      gate = Product(x, inner);
      up = Product(x, inner);
      down = Product(graph_.add_op(TensorOp::kSwiGlu, 0, {1, inner}, {gate, up}), hidden);
      x = graph_.add_op(TensorOp::kAdd, 0, {1, hidden}, {x, down});
    }
    head = Product(x, 151936);
  }

  bool LetsNextBegin(int product, bool overlap = true) const {
    CudaDispatchOptions options;
    options.overlap = overlap;
    return ArgsOf(Spec(product), options, kMultiprocessors).operation.pdl_chain;
  }
  ProductSpec Spec(int product) const { return ProductSpec::Of(graph_, product); }

  int q = -1, k = -1, v = -1, o = -1, gate = -1, up = -1, down = -1, head = -1;

 private:
  int Product(int x, std::int64_t rows) {
    OpParams params;
    params.weight.data_ptr = 0x100000;
    params.weight.type = DataType::kBfloat16;
    params.weight.rows = rows;
    params.weight.cols = graph_.node(x).shape.cols;
    return graph_.add_op(TensorOp::kMulMat, 0, {1, rows}, {x}, params);
  }

  ComputeGraph graph_;
};

TEST(ProductChain, ALaunchWithoutRoomForAThirdIsWaitedFor) {
  const Layers qwen3_0_6b(1024, 2048, 1024, 3072);
  for (const int product : {qwen3_0_6b.q, qwen3_0_6b.v, qwen3_0_6b.o, qwen3_0_6b.gate,
                            qwen3_0_6b.up, qwen3_0_6b.head}) {
    EXPECT_TRUE(qwen3_0_6b.LetsNextBegin(product)) << product;
    EXPECT_FALSE(qwen3_0_6b.LetsNextBegin(product, false)) << product;
  }
  EXPECT_FALSE(qwen3_0_6b.LetsNextBegin(qwen3_0_6b.down));
}

TEST(ProductChain, WeightsThatAreNotHeldLeaveRoom) {
  const Layers llama_1b(2048, 2048, 512, 8192);
  for (const int product :
       {llama_1b.q, llama_1b.o, llama_1b.gate, llama_1b.up, llama_1b.down, llama_1b.head}) {
    EXPECT_TRUE(llama_1b.LetsNextBegin(product)) << product;
  }
}

TEST(ProductSpec, CountsTheProductsOfAnInputAndTheLaunchBefore) {
  const Layers layers(1024, 2048, 1024, 3072);
  const auto bytes = [](std::int64_t rows) { return 2 * rows * 1024; };
  EXPECT_EQ(layers.Spec(layers.k).weight_bytes, bytes(4096));
  EXPECT_EQ(layers.Spec(layers.k).weight_bytes_before, bytes(3072));
  EXPECT_EQ(layers.Spec(layers.o).weight_bytes_before, 0);
  EXPECT_EQ(layers.Spec(layers.gate).weight_bytes_before, bytes(2048));
  EXPECT_EQ(layers.Spec(layers.down).weight_bytes_before, bytes(6144));
}

}  // namespace
}  // namespace culet::cuda_ops
