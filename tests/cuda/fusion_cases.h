// Fusions of the CUDA dispatch against their nodes one by one, on the same dispatch.
#pragma once

#include <map>
#include <utility>

#include "culet/decoder.h"
#include "fusion_fixture.h"

namespace culet {

// Norms of sums and of values, of every type, with codes and without; the sum kept or not.
TEST_F(CudaFusions, Norms) {
  for (const std::int64_t width : {8, 120, 264, 4096, 9000, 17416}) {
    for (const DataType in : kValues) {
      for (const DataType out : kValues) {
        for (const bool sum : {false, true}) {
          for (const bool codes : {false, true}) {
            for (const bool kept : {false, true}) {
              if (!sum && !codes) continue;
              ComputeGraph graph;
              Matrix a(in, 3, width, 61);
              a.Set(width + 5, kNaN);
              for (std::int64_t i = 0; i < width; ++i) a.Set(2 * width + i, 0);
              // Not a leaf, so that the sum may take its place.
              int x = graph.add_op(TensorOp::kCopy, 0, {3, width}, {Leaf(graph, a)}, {}, "", in);
              const int y = Leaf(graph, Matrix(in, 3, width, 62));
              std::vector<int> ids;
              if (sum) x = graph.add_op(TensorOp::kAdd, 0, {3, width}, {x, y}, {}, "", in);
              if (sum && kept) ids.push_back(x);
              OpParams params;
              params.gamma = OnDevice(Matrix(kStored[width % 3], 1, width, 63));
              params.scalar = 1e-5f;
              int norm = graph.add_op(TensorOp::kRmsNorm, 0, {3, width}, {x}, params, "", out);
              if (codes) {
                const QuantizedNodes made = graph.add_quantize(norm, {QuantType::kK, 128});
                ids.push_back(made.codes), ids.push_back(made.scales);
              }
              if (!codes || kept) ids.push_back(norm);
              ExpectSame(graph, ids,
                         !codes ? "add_rms_norm"
                         : sum  ? "add_rms_norm_quantize"
                                : "rms_norm_quantize",
                         std::to_string(width) + " " + ToString(in) + " to " + ToString(out));
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaFusions, NormsOfSomeRows) {
  for (const std::int64_t width : {8, 264, 9000}) {
    for (const DataType type : kValues) {
      ComputeGraph graph;
      const int x = Leaf(graph, Matrix(type, 5, width, 81));
      const int y = Leaf(graph, Matrix(type, 5, width, 82));
      const int sum = graph.add_op(TensorOp::kAdd, 0, {5, width}, {x, y}, {}, "", type);
      const int rows = graph.add_op(TensorOp::kGatherRows, 0, {4, width},
                                    {sum, Leaf(graph, Indices({4, -1, 0, 5}))}, {}, "", type);
      OpParams params;
      params.gamma = OnDevice(Matrix(type, 1, width, 83));
      params.scalar = 1e-5f;
      const int norm = graph.add_op(TensorOp::kRmsNorm, 0, {4, width}, {rows}, params);
      ExpectSame(graph, {norm}, "add_gather_rms_norm", std::to_string(width));
    }
  }
}

TEST_F(CudaFusions, SwiGluAndItsCodes) {
  for (const DataType type : kValues) {
    for (const std::int64_t cols : {8, 136, 1024}) {
      for (const bool kept : {false, true}) {
        ComputeGraph graph;
        Matrix g(type, 3, cols, 64);
        g.Set(1, kNaN), g.Set(cols + 2, 100), g.Set(cols + 3, -100);
        const int gate = Leaf(graph, g), up = Leaf(graph, Matrix(type, 3, cols, 65));
        const int inner = graph.add_op(TensorOp::kSwiGlu, 0, {3, cols}, {gate, up}, {}, "", type);
        const QuantizedNodes made = graph.add_quantize(inner, {QuantType::kK, 128});
        std::vector<int> ids = {made.codes, made.scales};
        if (kept) ids.push_back(inner);
        ExpectSame(graph, ids, "swiglu_quantize", ToString(type));
      }
    }
  }
}

// With biases and without; the products' own rounding apart, the values are the same.
TEST_F(CudaFusions, GateAndUp) {
  for (const DataType type : kValues) {
    for (const std::int64_t rows : {1, 5}) {
      for (const bool biases : {false, true}) {
        for (const bool codes : {false, true}) {
          const std::int64_t width = 136, hidden = 64;
          ComputeGraph graph;
          const int x = Leaf(graph, Matrix(type, rows, hidden, 66));
          const auto weights = Joined(DataType::kBfloat16, {width, width}, hidden, 67);
          const auto vectors = Joined(DataType::kBfloat16, {width, width}, 1, 69);
          int products[2];
          for (std::size_t i = 0; i < 2; ++i) {
            OpParams params;
            params.weight = weights[i];
            if (biases) params.bias = vectors[i], params.bias.rows = 1, params.bias.cols = width;
            products[i] = graph.add_op(TensorOp::kMulMat, 0, {rows, width}, {x}, params, "", type);
          }
          const int inner = graph.add_op(TensorOp::kSwiGlu, 0, {rows, width},
                                         {products[0], products[1]}, {}, "", type);
          std::vector<int> ids = {inner};
          if (codes) ids.push_back(graph.add_quantize(inner, {QuantType::kK, 128}).codes);
          ExpectSame(graph, ids, codes ? "gate_up_quantize" : "gate_up", ToString(type),
                     codes ? 2e-2 : Bound(type));
        }
      }
    }
  }
}

// Many rows, of which a kernel may make SwiGlu, or its codes, without a stop in memory: weights of
// BF16 and of E4M3 with blocks, biases, rows and columns that fill no tile, values that are read.
TEST_F(CudaFusions, GateAndUpOfPrompts) {
  for (const DataType type : kValues) {
    for (const bool fp8 : {false, true}) {
      for (const bool codes : {false, true}) {
        for (const bool read : {false, true}) {
          if (read && !codes) continue;
          const std::int64_t rows = on_gpu() ? 2003 : 13, hidden = on_gpu() ? 1024 : 384;
          const std::int64_t width = fp8 ? 1152 : 1160;
          const bool biases = !fp8 && codes;
          ComputeGraph graph;
          int x = Leaf(graph, Matrix(type, rows, hidden, 66));
          std::vector<int> inputs{x};
          if (fp8) {
            const QuantizedNodes made = graph.add_quantize(x, {QuantType::kK, 128});
            inputs = {made.codes, made.scales};
          }
          const auto weights = fp8 ? JoinedBlocks({width, width}, hidden, 67)
                                   : Joined(DataType::kBfloat16, {width, width}, hidden, 67);
          const auto vectors = Joined(DataType::kBfloat16, {width, width}, 1, 69);
          std::vector<int> ids;
          for (std::size_t i = 0; i < 2; ++i) {
            OpParams params;
            params.weight = weights[i];
            if (fp8) params.quant_a = {QuantType::kK, 128};
            if (biases) params.bias = vectors[i], params.bias.rows = 1, params.bias.cols = width;
            ids.push_back(
                graph.add_op(TensorOp::kMulMat, 0, {rows, width}, inputs, params, "", type));
          }
          const int inner = graph.add_op(TensorOp::kSwiGlu, 0, {rows, width}, ids, {}, "", type);
          ids.clear();
          if (!codes || read) ids.push_back(inner);
          if (codes) {
            const QuantizedNodes made = graph.add_quantize(inner, {QuantType::kK, 128});
            ids.push_back(made.codes), ids.push_back(made.scales);
          }
          const bool rounds = type == DataType::kBfloat16;  // gate and up, which fused are not
          ExpectSame(graph, ids, codes ? "gate_up_quantize" : "gate_up",
                     std::string(ToString(type)) + (fp8 ? " of E4M3" : "") +
                         (read    ? ", read"
                          : codes ? ", codes"
                                  : ""),
                     codes    ? 2e-2
                     : rounds ? 8e-3
                     : fp8    ? 1e-3
                              : Bound(type),
                     [&](const std::string& kernel) {
                       const bool pairs = kernel.find("gated") != std::string::npos;
                       if (fp8 || read || !on_hopper()) {
                         EXPECT_EQ(pairs, on_hopper() && !read) << kernel;
                       }
                     });
        }
      }
    }
  }
}

// A value that the caller reads is made, though its reader could take it along.
TEST_F(CudaFusions, AGateThatTheCallerReadsStaysApart) {
  for (const bool read : {false, true}) {
    ComputeGraph graph;
    const int x = Leaf(graph, Matrix(DataType::kFloat32, 2, 64, 66));
    std::vector<int> ids;
    for (const Weight& weight : Joined(DataType::kBfloat16, {136, 136}, 64, 67)) {
      OpParams params;
      params.weight = weight;
      ids.push_back(graph.add_op(TensorOp::kMulMat, 0, {2, 136}, {x}, params, ""));
    }
    const int gate = ids[0];
    ids = {graph.add_op(TensorOp::kSwiGlu, 0, {2, 136}, ids, {}, "")};
    if (read) graph.mark_output(gate), ids.push_back(gate);
    const auto apart = Run(graph, ids, {.none = true}, {});
    const auto fused = Run(graph, ids, {},
                           read ? std::vector<std::string>{} : std::vector<std::string>{"gate_up"});
    if (read) {
      EXPECT_EQ(fused, apart);
    }
  }
}

// Everything between the products of q, k and v and attention: sizes of heads, norms, layouts,
// types, slots that do not exist, positions of any size.
TEST_F(CudaFusions, Heads) {
  struct Case {
    int heads, kv_heads, head_dim, dims;
    bool norms, biases;
    RopeLayout layout;
    DataType type, cache;
    bool fused = true;
  };
  constexpr DataType kF32 = DataType::kFloat32, kBf16 = DataType::kBfloat16;
  const Case cases[] = {
      {4, 2, 64, 64, false, false, RopeLayout::kNeox, kBf16, kBf16},
      {3, 1, 128, 128, true, false, RopeLayout::kNeox, kBf16, kF32},
      {9, 3, 24, 16, true, true, RopeLayout::kNeox, kF32, kF32},
      {9, 3, 24, 24, true, true, RopeLayout::kNeox, kF32, kF32, false},  // halves of 12
      {5, 1, 24, 24, true, false, RopeLayout::kNorm, kBf16, kBf16},
      {2, 2, 80, 32, false, true, RopeLayout::kNorm, kF32, DataType::kFloat16},
      {2, 1, 256, 256, true, false, RopeLayout::kNeox, kBf16, kBf16},
      {7, 1, 8, 6, false, false, RopeLayout::kNorm, kBf16, DataType::kFloat16},
      {8, 2, 24, 16, true, true, RopeLayout::kNeox, kF32, DataType::kFloat8_e4m3}};
  const Matrix positions = Indices({0, 131071, -3, kFar, 77});
  const Matrix slots = Indices({3, -1, 0, 9, kFar});
  for (const Case& c : cases) {
    const std::int64_t rows = 5, hidden = 64, width = std::int64_t{c.kv_heads} * c.head_dim;
    const std::vector<std::int64_t> sizes = {std::int64_t{c.heads} * c.head_dim, width, width};
    ComputeGraph graph;
    const int x = Leaf(graph, Matrix(c.type, rows, hidden, 70));
    const int at = Leaf(graph, positions), to = Leaf(graph, slots);
    const auto weights = Joined(kBf16, sizes, hidden, 71);
    const auto vectors = Joined(kF32, sizes, 1, 74);
    int ids[3];
    for (std::size_t i = 0; i < 3; ++i) {
      OpParams params;
      params.weight = weights[i];
      if (c.biases) params.bias = vectors[i], params.bias.rows = 1, params.bias.cols = sizes[i];
      ids[i] = graph.add_op(TensorOp::kMulMat, 0, {rows, sizes[i]}, {x}, params, "", c.type);
    }
    for (int i = 0; i < 2 && c.norms; ++i) {
      OpParams params;
      params.gamma = OnDevice(Matrix(kStored[i + 1], 1, c.head_dim, 77));
      params.scalar = i == 0 ? 1e-5f : 1e-3f;
      ids[i] = graph.add_op(TensorOp::kRmsNorm, 0, {rows, sizes[static_cast<std::size_t>(i)]},
                            {ids[i]}, params, "", c.type);
    }
    for (int i = 0; i < 2; ++i) {
      OpParams params;
      params.head_dim = c.head_dim;
      params.rope = {.layout = c.layout, .dims = c.dims, .theta = 500000, .attention_factor = 1.25};
      ids[i] = graph.add_op(TensorOp::kRope, 0, {rows, sizes[static_cast<std::size_t>(i)]},
                            {ids[i], at}, params, "", c.type);
    }
    std::vector<int> made = {ids[0]};
    caches_.clear();
    for (int i = 1; i < 3; ++i) {
      const Matrix cache(c.cache, 9, width, 78);
      const int leaf = Leaf(graph, cache);
      caches_[graph.node(leaf).data_ptr] = cache.bytes;
      made.push_back(graph.add_op(TensorOp::kKvWrite, 0, {9, width},
                                  CacheInputs(graph, {leaf, ids[i], to}, c.cache, c.kv_heads), {},
                                  "", c.cache));
    }
    if (!c.fused) {
      Run(graph, made, {}, std::vector<std::string>{});
      continue;
    }
    ExpectSame(graph, made, "qkv", std::to_string(c.head_dim),
               std::max(Bound(c.type), Bound(c.cache)));
  }
}

// From the product of q, k and v to attention in one launch: the bits of the heads' kernel and
// attention one after the other. What lies in the cache at the rows' own places is NaN.
TEST_F(CudaFusions, HeadsAndAttention) {
  struct Case {
    int heads, kv_heads, head_dim, dims, window;
    bool norms, biases;
    RopeLayout layout;
    DataType type, cache;
    std::int32_t length = 40;
    float softcap = 0;
    bool sinks = false;
  };
  constexpr DataType kF32 = DataType::kFloat32, kBf16 = DataType::kBfloat16,
                     kF16 = DataType::kFloat16, kCodes = DataType::kFloat8_e4m3;
  constexpr RopeLayout kNeox = RopeLayout::kNeox, kNorm = RopeLayout::kNorm;
  const Case cases[] = {{4, 2, 64, 64, 0, false, false, kNeox, kBf16, kBf16},
                        {4, 1, 128, 128, 0, true, false, kNeox, kBf16, kBf16, 1000},
                        {9, 3, 24, 16, 7, true, true, kNeox, kF32, kBf16},
                        {2, 2, 80, 32, 0, false, true, kNorm, kF32, kF16, 300},
                        {6, 1, 256, 256, 0, true, false, kNeox, kBf16, kBf16},
                        {2, 1, 256, 128, 33, true, false, kNeox, kF32, kF16},
                        {20, 1, 96, 96, 0, true, false, kNeox, kBf16, kF16, 200},
                        {7, 1, 8, 6, 0, false, false, kNorm, kBf16, kF16},
                        {8, 2, 128, 128, 0, true, false, kNeox, kBf16, kCodes, 1000},
                        {6, 3, 80, 32, 7, true, true, kNorm, kF32, kCodes},
                        {4, 2, 256, 256, 0, false, false, kNeox, kBf16, kCodes, 300},
                        {20, 1, 64, 64, 0, true, false, kNeox, kF32, kCodes, 200},
                        {8, 1, 64, 64, 0, false, true, kNeox, kBf16, kBf16, 200, 0, true},
                        {4, 2, 256, 256, 9, false, false, kNeox, kBf16, kBf16, 300, 2, true}};
  constexpr std::int64_t kRows = 6;
  for (const Case& c : cases) {
    constexpr int kBlock = 8;
    // Lengths around ends of blocks and tiles. Row 3 is padding, row 4 is stored out of its place
    // and sees what lies there, row 5 nowhere at all, and its length hides its own key.
    const std::vector<std::int32_t> lengths = {c.length, 1, 17, 1, 16, 9};
    const std::int64_t cols = (c.length + kBlock - 1) / kBlock, hidden = 64;
    const std::int64_t width = std::int64_t{c.kv_heads} * c.head_dim;
    const std::int64_t blocks = cols * kRows + 1, slots = blocks * kBlock;
    std::vector<std::int32_t> table, positions, to, starts = {0};
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < cols; ++i) {
        table.push_back(static_cast<std::int32_t>((row * cols + i) * 7 % (blocks - 1)));
      }
      const std::int32_t last = lengths[static_cast<std::size_t>(row)] - 1;
      positions.push_back(last);
      const auto at = static_cast<std::size_t>(row * cols + last / kBlock);
      to.push_back(table[at] * kBlock + last % kBlock);
      starts.push_back(row + 1);
    }
    to[3] = -1, to[4] = static_cast<std::int32_t>(slots - 2), to[5] = kFar, positions[5] = 9;
    ComputeGraph graph;
    const int x = Leaf(graph, Matrix(c.type, kRows, hidden, 70));
    const int at = Leaf(graph, Indices(positions)), in = Leaf(graph, Indices(to));
    const std::vector<std::int64_t> sizes = {std::int64_t{c.heads} * c.head_dim, width, width};
    const auto weights = Joined(kBf16, sizes, hidden, 71), vectors = Joined(kF32, sizes, 1, 74);
    int ids[3];
    for (std::size_t i = 0; i < 3; ++i) {
      OpParams params;
      params.weight = weights[i];
      if (c.biases) params.bias = vectors[i], params.bias.rows = 1, params.bias.cols = sizes[i];
      int& id = ids[i];
      id = graph.add_op(TensorOp::kMulMat, 0, {kRows, sizes[i]}, {x}, params, "", c.type);
      if (i == 2) continue;
      params = {};
      params.gamma = OnDevice(Matrix(kStored[i + 1], 1, c.head_dim, 77));
      params.scalar = i == 0 ? 1e-5f : 1e-3f;
      const Shape shape{kRows, sizes[i]};
      if (c.norms) id = graph.add_op(TensorOp::kRmsNorm, 0, shape, {id}, params, "", c.type);
      params = {};
      params.head_dim = c.head_dim;
      params.rope = {.layout = c.layout, .dims = c.dims, .theta = 500000, .attention_factor = 1.25};
      id = graph.add_op(TensorOp::kRope, 0, shape, {id, at}, params, "", c.type);
    }
    std::vector<int> made;
    caches_.clear();
    for (std::size_t i = 1; i < 3; ++i) {
      Matrix cache(c.cache, slots, width, 78 + static_cast<unsigned>(i));
      for (const std::size_t row : {0, 1, 2}) {
        for (std::int64_t j = 0; j < width; ++j) cache.Set(to[row] * width + j, kNaN);
      }
      const int leaf = Leaf(graph, cache);
      caches_[graph.node(leaf).data_ptr] = cache.bytes;
      made.push_back(graph.add_op(TensorOp::kKvWrite, 0, {slots, width},
                                  CacheInputs(graph, {leaf, ids[i], in}, c.cache, c.kv_heads), {},
                                  "", c.cache));
    }
    OpParams params;
    params.attention = {.heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .head_dim = c.head_dim,
                        .scale = 0.125f,
                        .softcap = c.softcap,
                        .window = c.window,
                        .block_size = kBlock,
                        .single_rows = true};
    if (c.sinks) params.sinks = OnDevice(Matrix(kBf16, 1, c.heads, 80));
    std::vector<int> inputs = {ids[0],
                               made[0],
                               made[1],
                               Leaf(graph, Indices(starts)),
                               at,
                               Leaf(graph, Indices(lengths)),
                               Leaf(graph, Matrix(kRows, cols, table))};
    for (int i = 0; i < 2 && c.cache == kCodes; ++i) {
      inputs.push_back(graph.node(made[static_cast<std::size_t>(i)]).inputs[3]);
    }
    const std::int64_t q_cols = sizes[0];
    made.push_back(
        graph.add_op(TensorOp::kAttention, 0, {kRows, q_cols}, inputs, params, "", c.type));
    graph.mark_output(made[2]);
    auto apart = Run(graph, made, {.off = {"qkv_attention"}}, {"qkv"});
    auto fused = Run(graph, made, {}, {"qkv_attention"});
    const std::string what = std::to_string(c.heads) + " heads of " + std::to_string(c.head_dim);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(fused[made[i]], apart[made[i]]) << what << ", cache";
    const std::int64_t bytes = q_cols * SizeOf(c.type);
    for (int row = 0; row < kRows; ++row) {
      const auto of = [&](const Bytes& all) {
        return Bytes(all.begin() + row * bytes, all.begin() + (row + 1) * bytes);
      };
      for (std::int64_t i = 0; i < q_cols; ++i) {
        ASSERT_TRUE(std::isfinite(LoadAsDouble(fused[made[2]].data(), c.type, row * q_cols + i)))
            << what << ", row " << row;
      }
      if (row == 3) continue;
      EXPECT_EQ(of(fused[made[2]]), of(apart[made[2]])) << what << ", row " << row;
    }
  }
}

// Groups that it does not support stay two launches.
TEST_F(CudaFusions, AttentionStaysApart) {
  enum Why { kNothing, kRowsOfOneSequence, kNoPromise, kOtherSlots, kReadTwice };
  for (const Why why : {kNothing, kRowsOfOneSequence, kNoPromise, kOtherSlots, kReadTwice}) {
    ComputeGraph graph;
    constexpr DataType kBf16 = DataType::kBfloat16;
    constexpr std::int64_t kRows = 2, kDim = 24;
    const int x = Leaf(graph, Matrix(kBf16, kRows, 64, 70));
    const int at = Leaf(graph, Indices({3, 4})), in = Leaf(graph, Indices({3, 20}));
    const auto weights = Joined(kBf16, {kDim, kDim, kDim}, 64, 71);
    int ids[3];
    for (std::size_t i = 0; i < 3; ++i) {
      OpParams params;
      params.weight = weights[i];
      ids[i] = graph.add_op(TensorOp::kMulMat, 0, {kRows, kDim}, {x}, params, "", kBf16);
      if (i == 2) continue;
      params = {};
      params.head_dim = kDim;
      params.rope = {.dims = 16};
      ids[i] = graph.add_op(TensorOp::kRope, 0, {kRows, kDim}, {ids[i], at}, params, "", kBf16);
    }
    int caches[2];
    caches_.clear();
    for (int i = 0; i < 2; ++i) {
      const int leaf = Leaf(graph, Matrix(kBf16, 32, kDim, 78));
      const int slots = why == kOtherSlots && i == 1 ? Leaf(graph, Indices({3, 21})) : in;
      caches[i] =
          graph.add_op(TensorOp::kKvWrite, 0, {32, kDim}, {leaf, ids[i + 1], slots}, {}, "", kBf16);
    }
    OpParams params;
    params.attention = {.heads = 1,
                        .kv_heads = 1,
                        .head_dim = kDim,
                        .scale = 0.2f,
                        .block_size = 16,
                        .single_rows = why != kNoPromise};
    const bool one = why == kRowsOfOneSequence;
    const Matrix starts = one ? Indices({0, 2}) : Indices({0, 1, 2});
    const Matrix lengths = one ? Indices({5}) : Indices({4, 5});
    const std::vector<int> inputs = {ids[0],
                                     caches[0],
                                     caches[1],
                                     Leaf(graph, starts),
                                     at,
                                     Leaf(graph, lengths),
                                     Leaf(graph, one ? Matrix(1, 1, {0}) : Matrix(2, 1, {0, 1}))};
    const int out = graph.add_op(TensorOp::kAttention, 0, {kRows, kDim}, inputs, params, "", kBf16);
    if (why == kReadTwice) graph.mark_output(ids[0]);
    graph.mark_output(out);
    Run(graph, {out}, {}, {why == kNothing ? "qkv_attention" : "qkv"});
  }
}

// -- Whole models ---------------------------------------------------------------------------------

struct FusedModel {
  const char* architecture;
  const char* type;
  DataType weights, cache;
  std::vector<std::string> fusions;  // of a layer and the head, each once
};

// The prompt and a step, fused and not: the same fusions in each layer, and logits that agree.
TEST_F(CudaFusions, Models) {
  const std::vector<std::string> plain = {"add_rms_norm", "gate_up", "qkv_attention"};
  // The last norm is not quantised: the head's weight is no E4M3.
  const std::vector<std::string> e4m3 = {"add_rms_norm", "add_rms_norm_quantize",
                                         "gate_up_quantize", "qkv_attention", "rms_norm_quantize"};
  constexpr DataType kF32 = DataType::kFloat32, kBf16 = DataType::kBfloat16;
  const FusedModel models[] = {
      {"LlamaForCausalLM", "llama", kBf16, kBf16, plain},
      {"Qwen2ForCausalLM", "qwen2", kBf16, DataType::kFloat16, plain},
      // Attention over a cache of float32 is exact.
      {"Qwen3ForCausalLM", "qwen3", kF32, kF32, {"add_rms_norm", "gate_up", "qkv"}},
      {"Qwen3ForCausalLM", "qwen3", DataType::kFloat8_e4m3, kBf16, e4m3},
      {"LlamaForCausalLM", "llama", kBf16, DataType::kFloat8_e4m3, plain},
  };
  for (const FusedModel& m : models) {
    std::string text = kDense;
    text.replace(text.find("$A"), 2, m.architecture);
    text.replace(text.find("$M"), 2, m.type);
    const auto config = ParseDecoderConfig(text, "the test");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    const auto model = DecoderModel::Random(*config, m.weights, test_.dispatch->memory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    // Whether a norm is made within a product is up to predictions.
    const std::vector<std::string> off = {"rms_norm_qkv", "rms_norm_qkv_attention",
                                          "rms_norm_gate_up", "rms_norm_gate_up_quantize"};
    std::vector<float> logits[2];
    for (const bool fused : {false, true}) {
      auto session = Session::Create(
          *model, *test_.dispatch,
          {.max_context = 32, .cache_type = m.cache, .fusions = {.none = !fused, .off = off}});
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      logits[fused] = LogitsOfAStep(*session);
      std::map<std::string, int> used;
      for (const Fusion& fusion : session->last_executor()->fusions()) ++used[fusion.name];
      // A layer: the norm, qkv with attention or not, o, the norm, gate and up, down, with E4M3 the
      // codes of attention; then embedding, the last sum and its norm, logits, arg max, and
      // advance.
      if (fused) {
        EXPECT_EQ(session->last_executor()->n_launches(),
                  2 * (m.weights == DataType::kFloat8_e4m3 || m.cache == kF32 ? 7 : 6) + 5);
      }
      std::vector<std::string> names;
      for (const auto& [name, count] : used) names.push_back(name);
      EXPECT_EQ(names, fused ? m.fusions : std::vector<std::string>{}) << m.architecture;
    }
    const double bound = m.weights == DataType::kFloat8_e4m3 ? 5e-2
                         : m.weights == DataType::kBfloat16  ? 1e-2
                                                             : 1e-5;
    EXPECT_LE(RelativeError(logits[1], logits[0]), bound) << m.architecture;
  }
}

// Kernels that begin early wait for what they read, step after step.
TEST_F(CudaFusions, OverlapGivesTheSameBitsEachTime) {
  std::string text = kDense;
  text.replace(text.find("$A"), 2, "Qwen3ForCausalLM");
  text.replace(text.find("$M"), 2, "qwen3");
  const auto config = ParseDecoderConfig(text, "the test");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  for (const DataType weights : {DataType::kBfloat16, DataType::kFloat8_e4m3}) {
    const auto model = DecoderModel::Random(*config, weights, test_.dispatch->memory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    for (const bool fused : {false, true}) {
      auto session = Session::Create(
          *model, *test_.dispatch,
          {.max_context = 64, .cache_type = DataType::kBfloat16, .fusions = {.none = !fused}});
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      const int sequence = *session->AddSequence();
      std::vector<float> first;
      for (int run = 0; run < (on_gpu() ? 50 : 2); ++run) {
        ASSERT_TRUE(session->Truncate(sequence, 0).ok());
        const std::vector<std::int32_t> prompt(13, 5);
        ASSERT_TRUE(session->Prefill(sequence, prompt).ok());
        std::vector<float> logits;
        for (std::int32_t token = 1; token <= 4; ++token) {
          const SequenceTokens next{sequence, {&token, 1}};
          const auto result = session->Step({&next, 1}, {.logits = true});
          ASSERT_TRUE(result.ok()) << result.status().ToString();
          logits.insert(logits.end(), result->logits.begin(), result->logits.end());
        }
        if (run == 0) first = logits;
        ASSERT_EQ(logits, first) << "run " << run;
      }
    }
  }
}

}  // namespace culet
