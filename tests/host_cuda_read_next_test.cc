// Which weights a quantize prefetches for the products after it.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "culet/graph.h"
#include "graph/cuda/read_next.h"

namespace culet::cuda_ops {
namespace {

constexpr std::int64_t kHidden = 256;

class NextWeightsTest : public testing::Test {
 protected:
  int Codes(int x) { return graph_.add_quantize(x, {QuantType::kK, 128}).codes; }
  int Product(int codes, DevicePtr weight, std::int64_t rows) {
    OpParams params;
    params.weight.data_ptr = weight;
    params.weight.type = DataType::kFloat8_e4m3;
    params.weight.rows = rows;
    params.weight.cols = kHidden;
    params.quant_a = {QuantType::kK, 128};
    const std::int64_t m = graph_.node(codes).shape.rows;
    return graph_.add_op(TensorOp::kMulMat, 0, {m, rows}, {codes, codes + 1}, params);
  }
  int Input(std::int64_t rows) { return graph_.add_leaf(0x1000, {rows, kHidden}); }
  std::pair<DevicePtr, std::int64_t> Next(int id) const {
    const ReadNext next = NextWeights(graph_, id);
    return {ToDevicePtr(next.data), next.bytes};
  }

  ComputeGraph graph_;
};

TEST_F(NextWeightsTest, AreThoseOfWhoReadsIt) {
  const int first = Codes(Input(1)), other = Codes(Input(1));
  Product(other, 0x90000, 128);
  const int product = Product(first, 0x20000, 512);
  EXPECT_EQ(Next(first), std::pair(DevicePtr{0x20000}, std::int64_t{512 * kHidden}));
  EXPECT_EQ(Next(product), std::pair(DevicePtr{0}, std::int64_t{0}));
}

TEST_F(NextWeightsTest, OfProductsSideBySideAreAll) {
  const int codes = Codes(Input(1));
  Product(codes, 0x20000, 128);
  Product(codes, 0x20000 + 128 * kHidden, 256);
  EXPECT_EQ(Next(codes).second, 384 * kHidden);
}

TEST_F(NextWeightsTest, OfProductsApartAreTheFirst) {
  const int codes = Codes(Input(1));
  Product(codes, 0x20000, 128);
  Product(codes, 0x90000, 256);
  EXPECT_EQ(Next(codes), std::pair(DevicePtr{0x20000}, std::int64_t{128 * kHidden}));
}

TEST_F(NextWeightsTest, AreWholePiecesAndNoMoreThanMemoryBrings) {
  const int codes = Codes(Input(1));
  Product(codes, 0x20001, 128);
  EXPECT_EQ(Next(codes), std::pair(DevicePtr{0x20010}, std::int64_t{128 * kHidden - 16}));
  const int other = Codes(Input(1));
  Product(other, 0x20000, 1 << 20);
  EXPECT_EQ(Next(other).second, kMostBytesToBring);
}

TEST_F(NextWeightsTest, AreNoneOfSeveralRows) {
  const int codes = Codes(Input(kMostRowsToBring + 1));
  Product(codes, 0x20000, 128);
  EXPECT_EQ(Next(codes).second, 0);
}

}  // namespace
}  // namespace culet::cuda_ops
