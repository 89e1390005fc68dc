// Operations of the CUDA dispatch, but for products and attention, against the reference: sizes
// where vectors end midway, rows that are not aligned, NaN, what lies outside its range.
#pragma once

#include <algorithm>

#include "cases.h"
#include "tests/whole_range.h"

namespace culet {

TEST_F(CudaGraphs, ElementByElement) {
  for (const TensorOp op :
       {TensorOp::kAdd, TensorOp::kMul, TensorOp::kSilu, TensorOp::kSwiGlu, TensorOp::kGeGlu,
        TensorOp::kClampedSwiGlu, TensorOp::kScale, TensorOp::kSoftCap}) {
    for (const DataType type : kValues) {
      for (const std::int64_t cols : {1, 7, 8, 2048, 2056, 4099}) {
        Matrix a(type, 3, cols, 1), b(type, 3, cols, 2);
        const float special[] = {kNaN, kInfinity, -kInfinity, 100, -100, -0.0f, 1e-30f};
        for (int i = 0; i < 7; ++i) {
          if (cols > 40) a.Set(cols + 5 * i, special[i]), b.Set(2 * cols + 3 * i, special[i]);
        }
        ComputeGraph graph;
        std::vector<int> inputs = {a.AsLeaf(graph)};
        const bool one =
            op == TensorOp::kSilu || op == TensorOp::kScale || op == TensorOp::kSoftCap;
        if (!one) inputs.push_back(b.AsLeaf(graph));
        OpParams params;
        params.slope = 1.702f;
        params.scalar = 1.75f;  // of few bits: products of bfloat16 by it are exact in float32
        graph.add_op(op, 0, {3, cols}, inputs, params, "", type);
        ExpectReference(graph, std::string(ToString(op)) + " of " + std::to_string(cols));
      }
    }
  }
}

// Every exponent, both signs, subnormal numbers, infinities and NaN, element by element.
TEST_F(CudaGraphs, ElementByElementOverTheWholeRange) {
  const std::vector<float> all = WholeRange();
  const auto count = static_cast<std::int64_t>(all.size());
  for (const DataType type : kValues) {
    const Matrix a(type, 1, count, all);
    for (const float other : {1.0f, -3.0f, 0x1p-130f, 7e19f, -0.0f, kInfinity, kNaN}) {
      const Matrix b(type, 1, count, std::vector<float>(all.size(), other));
      for (const TensorOp op :
           {TensorOp::kAdd, TensorOp::kMul, TensorOp::kSilu, TensorOp::kSwiGlu}) {
        ComputeGraph graph;
        std::vector<int> inputs = {a.AsLeaf(graph)};
        if (op != TensorOp::kSilu) inputs.push_back(b.AsLeaf(graph));
        graph.add_op(op, 0, {1, count}, inputs, {}, "", type);
        const auto found = GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch);
        for (std::int64_t i = 0; i < count; ++i) {
          const double x = LoadAsDouble(a.bytes.data(), type, i);
          const double y = LoadAsDouble(b.bytes.data(), type, i);
          // An FP32 first, which is flushed to zero where exp(-x) overflows.
          const double silu = RoundTo(DataType::kFloat32, SiluInDouble(x));
          const bool gates = op == TensorOp::kSilu || op == TensorOp::kSwiGlu;
          if (op == TensorOp::kSwiGlu && std::isinf(y) && std::fabs(silu) < 0x1p-119) continue;
          const double expected = op == TensorOp::kAdd    ? x + y
                                  : op == TensorOp::kMul  ? x * y
                                  : op == TensorOp::kSilu ? silu
                                                          : silu * y;
          const double times = op == TensorOp::kSwiGlu && std::isfinite(y) ? std::fabs(y) : 1;
          const double rounding = type == DataType::kFloat32 ? 0x1p-23 : 0x1p-8;
          const double smallest = type == DataType::kFloat32 ? 0x1p-149 : 0x1p-133;
          ASSERT_TRUE(IsNear(
              LoadAsDouble(found.data(), type, i), gates ? expected : RoundTo(type, expected),
              gates ? rounding + 8 * 0x1p-23 : 0, gates ? 0x1p-119 * times + smallest : 0))
              << ToString(op) << " of " << x << " and " << y << " is "
              << LoadAsDouble(found.data(), type, i);
        }
      }
    }
  }
}

TEST_F(CudaGraphs, LayerNormsAndRowsScaledByPosition) {
  const Matrix positions = Indices({3, 16, 100000});
  for (const DataType type : kValues) {
    for (const std::int64_t cols : {1, 8, 333, 2056}) {
      const Matrix x(type, 3, cols, 1), gamma(DataType::kBfloat16, 1, cols, 2);
      OpParams norm, scale;
      norm.gamma = gamma.AsWeight();
      norm.scalar = 1e-3f;
      scale.scalar = 0.25f;
      scale.rope.original_context = 16;
      ComputeGraph norms, scales;
      norms.add_op(TensorOp::kLayerNorm, 0, {3, cols}, {x.AsLeaf(norms)}, norm, "", type);
      ExpectReference(norms, "norms of " + std::to_string(cols));
      const int leaf = x.AsLeaf(scales);
      scales.add_op(TensorOp::kPositionScale, 0, {3, cols}, {leaf, positions.AsLeaf(scales)}, scale,
                    "", type);
      ExpectReference(scales, "rows of " + std::to_string(cols));
    }
  }
}

// Rows of a matrix that begins in the middle of a vector: an input of the caller.
TEST_F(CudaGraphs, InputsOfAnyAlignment) {
  DeviceMemory& memory = test_.dispatch->memory();
  const Matrix x(DataType::kBfloat16, 1, 1025, 3);
  auto buffer = DeviceBuffer::Create(memory, x.bytes.size());
  ASSERT_TRUE(buffer.ok());
  ASSERT_TRUE(memory.Upload(buffer->get(), x.bytes.data(), x.bytes.size(), nullptr).ok());
  auto out = DeviceBuffer::Create(memory, 1024 * sizeof(float));
  ASSERT_TRUE(out.ok());
  ComputeGraph graph;
  const int leaf = graph.add_leaf(buffer->get() + 2, {4, 256}, DataType::kBfloat16);
  graph.add_op(TensorOp::kCast, out->get(), {4, 256}, {leaf});
  const auto ran = execute_graph(graph, *test_.dispatch);
  ASSERT_TRUE(ran.ok()) << ran.status().ToString();
  std::vector<float> values(1024);
  ASSERT_TRUE(memory.Download(values.data(), out->get(), 4096, nullptr).ok());
  for (std::int64_t i = 0; i < 1024; ++i) {
    ASSERT_EQ(values[static_cast<std::size_t>(i)],
              static_cast<float>(LoadAsDouble(x.bytes.data(), x.type, i + 1)));
  }
}

TEST_F(CudaGraphs, CastRoundsOnce) {
  for (const DataType from : kStored) {
    for (const DataType to : kStored) {
      for (const std::int64_t cols : {1, 8, 333}) {
        std::vector<float> values = Normal(2 * cols, 4);
        const float special[] = {1 + 0x1p-8f, 1 + 3 * 0x1p-11f, 65520, -1e38f,   0x1.8p-24f,
                                 -0.0f,       3e-39f,           kNaN,  kInfinity};
        if (cols > 9) std::copy(std::begin(special), std::end(special), values.begin() + 3);
        const Matrix x(from, 2, cols, values);
        ComputeGraph graph;
        graph.add_op(TensorOp::kCast, 0, {2, cols}, {x.AsLeaf(graph)}, {}, "", to);
        ExpectReference(graph, std::string(ToString(from)) + " to " + ToString(to), 1e-30);
      }
    }
  }
}

TEST_F(CudaGraphs, RowsOutsideTheTableAreNaN) {
  const Matrix ids = Indices({4, -1, 0, 5, kFar, -kFar - 1, 2, 2});
  for (const DataType value : kValues) {
    for (const DataType stored : kStored) {
      for (const std::int64_t cols : {1, 19, 64, 2056}) {
        const Matrix table(stored, 5, cols, 5);
        ComputeGraph graph;
        OpParams params;
        params.weight = table.AsWeight();
        graph.add_op(TensorOp::kEmbedding, 0, {8, cols}, {ids.AsLeaf(graph)}, params, "", value);
        ExpectReference(graph, "embedding");
        if (stored != value) continue;
        ComputeGraph gather;
        const int from = table.AsLeaf(gather);
        gather.add_op(TensorOp::kGatherRows, 0, {8, cols}, {from, ids.AsLeaf(gather)}, {}, "",
                      value);
        ExpectReference(gather, "gather_rows");
      }
    }
  }
}

TEST_F(CudaGraphs, SlotsOutsideTheCacheAreNotWritten) {
  const Matrix slots = Indices({3, -1, 5, 6, kFar, -kFar - 1, 0});
  for (const DataType value : kValues) {
    for (const DataType stored : kStored) {
      for (const std::int64_t cols : {1, 21, 128}) {
        Matrix rows(value, 7, cols, 6);
        rows.Set(0, kNaN);
        const Matrix cache(stored, 6, cols, 7);
        ComputeGraph graph;
        const int to = cache.AsLeaf(graph), from = rows.AsLeaf(graph);
        graph.add_op(TensorOp::kKvWrite, 0, {6, cols}, {to, from, slots.AsLeaf(graph)}, {}, "",
                     stored);
        ExpectReference(graph, "kv_write", 1e-30);
      }
    }
  }
}

TEST_F(CudaGraphs, RmsNormOfRowsAndHeads) {
  for (const std::int64_t width : {1, 7, 24, 64, 80, 96, 128, 256, 257, 1000, 4096, 9000, 17416}) {
    for (const DataType in : kValues) {
      for (const DataType out : kValues) {
        const std::int64_t heads = width <= 256 ? 5 : 1;
        Matrix x(in, 3, heads * width, 8);
        x.Set(heads * width + width / 2, kNaN);  // spoils its group alone
        for (std::int64_t i = 0; i < width; ++i) x.Set(2 * heads * width + i, 0);
        const Matrix gamma(kStored[width % 3], 1, width, 9);
        ComputeGraph graph;
        OpParams params;
        params.gamma = gamma.AsWeight();
        params.scalar = 1e-5f;
        graph.add_op(TensorOp::kRmsNorm, 0, {3, heads * width}, {x.AsLeaf(graph)}, params, "", out);
        ExpectReference(graph, "rms_norm of " + std::to_string(width));
      }
    }
  }
}

TEST_F(CudaGraphs, RopeOfAllTypes) {
  struct Case {
    int heads, head_dim, dims;
    RopeScaling scaling;
  };
  const Case cases[] = {{1, 24, 24, RopeScaling::kNone},    {9, 64, 64, RopeScaling::kLlama3},
                        {33, 128, 128, RopeScaling::kYarn}, {2, 80, 32, RopeScaling::kLinear},
                        {3, 7, 6, RopeScaling::kNone},      {1, 520, 520, RopeScaling::kNone}};
  const Matrix positions = Indices({0, 1, 131071, -3, kFar, 77});
  for (const Case& c : cases) {
    for (const RopeLayout layout : {RopeLayout::kNeox, RopeLayout::kNorm}) {
      for (const DataType type : kValues) {
        Matrix x(type, 6, c.heads * c.head_dim, 10);
        x.Set(5 * c.heads * c.head_dim, kNaN);
        ComputeGraph graph;
        OpParams params;
        params.head_dim = c.head_dim;
        params.rope = {.layout = layout,
                       .scaling = c.scaling,
                       .dims = c.dims,
                       .theta = 500000,
                       .factor = c.scaling == RopeScaling::kNone ? 1.0 : 8.0,
                       .original_context = 8192,
                       .attention_factor = 1.25};
        const int leaf = x.AsLeaf(graph);
        graph.add_op(TensorOp::kRope, 0, {6, c.heads * c.head_dim}, {leaf, positions.AsLeaf(graph)},
                     params, "", type);
        ExpectReference(graph, "rope of " + std::to_string(c.head_dim));
      }
    }
  }
}

TEST_F(CudaGraphs, ArgMaxTakesTheFirst) {
  for (const DataType type : kValues) {
    for (const std::int64_t cols : {1, 15, 1024, 4096, 4104, 20001}) {
      Matrix x(type, 6, cols, 11);
      const std::int64_t middle = cols / 2, last = cols - 1;
      x.Set(1 * cols + middle, 9), x.Set(1 * cols + last, 9);
      x.Set(2 * cols, 9), x.Set(2 * cols + middle, kNaN), x.Set(2 * cols + last, -kNaN);
      for (std::int64_t i = 0; i < cols; ++i) {
        x.Set(3 * cols + i, -kInfinity);
        x.Set(4 * cols + i, i % 2 == 0 ? -0.0f : 0.0f);
        x.Set(5 * cols + i, -1 - static_cast<double>(i % 7));
      }
      ComputeGraph graph;
      graph.add_op(TensorOp::kArgMax, 0, {6, 1}, {x.AsLeaf(graph)}, {}, "", DataType::kInt32);
      ExpectReference(graph, "argmax of " + std::to_string(cols));
    }
  }
}

TEST_F(CudaGraphs, CopyOfBytes) {
  const Matrix x = Indices({1, -2, 3});
  ComputeGraph graph;
  graph.add_op(TensorOp::kCopy, 0, {3, 1}, {x.AsLeaf(graph)}, {}, "", DataType::kInt32);
  ExpectReference(graph, "copy");
}

// -- Products -------------------------------------------------------------------------------------

// Weights of every type, inputs and values of both.
TEST_F(CudaGraphs, ProductsWithBias) {
  for (const DataType in : kValues) {
    for (const DataType out : kValues) {
      for (const DataType stored : kStored) {
        for (const std::int64_t rows : {1, 5}) {
          const Matrix x(in, rows, 72, 12), w(stored, 40, 72, 13), bias(stored, 1, 40, 14);
          ComputeGraph graph;
          OpParams params;
          params.weight = w.AsWeight();
          params.bias = bias.AsWeight();
          graph.add_op(TensorOp::kMulMat, 0, {rows, 40}, {x.AsLeaf(graph)}, params, "", out);
          ExpectReference(graph, std::string(ToString(in)) + " x " + ToString(stored));
        }
      }
    }
  }
}

TEST_F(CudaGraphs, ProductsOfE4m3Blocks) {
  for (const DataType in : kValues) {
    const std::int64_t n = 136, k = 272;
    Matrix x(in, 3, k, 15);
    for (std::int64_t i = 0; i < 128; ++i) x.Set(k + i, 0);
    x.Set(2 * k + 5, kNaN);
    const Matrix w(DataType::kFloat8_e4m3, n, k, 16), scales(DataType::kFloat32, 2, 3, 17);
    ComputeGraph graph;
    OpParams params;
    params.weight = w.AsWeight();
    params.weight.quant = {QuantType::kB, 128};
    params.weight.scales_ptr = ToDevicePtr(scales.bytes.data());
    params.weight.scales_type = DataType::kFloat32;
    params.quant_a = {QuantType::kK, 128};
    graph.add_op(TensorOp::kMulMat, 0, {3, n}, {x.AsLeaf(graph)}, params);
    // A matrix unit may sum in 14 bits.
    ExpectReference(graph, "e4m3", test_.gemm->device().arch != 0 ? 3e-4 : 0);
  }
}

// Inputs with a scale a row, by its largest element or given, in whole vectors and not; codes that
// are exceeded, and rows of zeros and with a NaN.
TEST_F(CudaGraphs, ProductsOfE4m3Rows) {
  for (const DataType in : kValues) {
    for (const float given : {0.0f, 0.004f}) {
      for (const std::int64_t k : {272, 2600, 37}) {
        const std::int64_t n = 136;
        Matrix x(in, 4, k, 15);
        for (std::int64_t i = 0; i < k; ++i) x.Set(k + i, 0);
        x.Set(2 * k + 5, kNaN);
        const Matrix w(DataType::kFloat8_e4m3, n, k, 16), scales(DataType::kFloat32, n, 1, 17);
        ComputeGraph graph;
        OpParams params;
        params.weight = w.AsWeight();
        params.weight.quant = {QuantType::kRow};
        params.weight.scales_ptr = ToDevicePtr(scales.bytes.data());
        params.weight.scales_type = DataType::kFloat32;
        params.quant_a = {QuantType::kRow};
        params.scalar = given;
        const QuantizedNodes made = graph.add_quantize(x.AsLeaf(graph), params.quant_a, "x", given);
        graph.add_op(TensorOp::kMulMat, 0, {4, n}, {made.codes, made.scales}, params);
        // A matrix unit may sum in 14 bits.
        ExpectReference(graph, "e4m3 rows", test_.gemm->device().arch != 0 ? 3e-4 : 0);
      }
    }
  }
}

// What the option costs in accuracy is one rounding of the inputs.
TEST_F(CudaGraphs, ProductsWithRoundedInputs) {
  test_ = MakeTestDispatch({});
  const Matrix x(DataType::kFloat32, 5, 512, 18), w(DataType::kBfloat16, 48, 512, 19);
  ComputeGraph rounded;
  OpParams params;
  params.weight = w.AsWeight();
  const int cast = rounded.add_op(TensorOp::kCast, 0, {5, 512}, {x.AsLeaf(rounded)}, {}, "",
                                  DataType::kBfloat16);
  rounded.add_op(TensorOp::kMulMat, 0, {5, 48}, {cast}, params);
  ComputeGraph graph;
  graph.add_op(TensorOp::kMulMat, 0, {5, 48}, {x.AsLeaf(graph)}, params);
  const auto value = GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch);
  // A matrix unit truncates at each of its additions.
  Compare(value, rounded, "rounded inputs", test_.gemm->device().arch != 0 ? 3e-6 : 0);
  Compare(value, graph, "rounded inputs", 0x1p-8);
}

}  // namespace culet
