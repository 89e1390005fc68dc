// Batches over a paged cache, as a graph with one attention, for tests of the CUDA dispatch.
#pragma once

#include "cases.h"

namespace culet {

struct AttentionCase {
  int heads, kv_heads, head_dim;
  int window = 0;
  bool causal = true;
  DataType cache = DataType::kFloat32;
  DataType value = DataType::kFloat32;
  float softcap = 0;
  int chunk = 0;
  DataType sinks = DataType::kNull;
  int value_dim = 0;  // values are so many elements of the keys
};

/// A batch over a paged cache whose blocks are shuffled.
struct PagedBatch {
  std::vector<std::int32_t> lengths;  // of keys, one a sequence
  std::vector<std::int32_t> tokens;   // new ones, at the ends of the sequences
  int padding = 0;                    // rows that belong to no sequence
  int table_cols = 40;
  int block = 8;  // positions of a block
};

class CudaAttention : public CudaGraphs {
 protected:
  void Build(const AttentionCase& c, const PagedBatch& batch) {
    const std::int64_t kv_cols = c.kv_heads * c.head_dim;
    std::vector<std::int32_t> starts = {0}, positions, table;
    int blocks = 3;  // that nobody uses
    for (std::size_t s = 0; s < batch.lengths.size(); ++s) {
      for (std::int32_t i = 0; i < batch.tokens[s]; ++i) {
        positions.push_back(batch.lengths[s] - batch.tokens[s] + i);
      }
      starts.push_back(static_cast<std::int32_t>(positions.size()));
      blocks += (batch.lengths[s] + batch.block - 1) / batch.block;
    }
    positions.resize(positions.size() + static_cast<std::size_t>(batch.padding), 0);
    const std::int64_t rows = static_cast<std::int64_t>(positions.size());
    const std::int64_t slots = std::int64_t{blocks} * batch.block;
    table.assign(batch.lengths.size() * static_cast<std::size_t>(batch.table_cols), -1);
    q_ = Matrix(c.value, rows, c.heads * c.head_dim, 21);
    // What no row may see is NaN.
    const std::vector<float> nan(static_cast<std::size_t>(slots * kv_cols), kNaN);
    k_ = v_ = Matrix(c.cache, slots, kv_cols, nan);
    const std::vector<float> keys = Normal(slots * kv_cols, 22),
                             values = Normal(slots * kv_cols, 23);
    int next = 0;
    for (std::size_t s = 0; s < batch.lengths.size(); ++s) {
      for (std::int32_t j = 0; j < batch.lengths[s]; ++j) {
        std::int32_t& block = table[s * static_cast<std::size_t>(batch.table_cols) +
                                    static_cast<std::size_t>(j / batch.block)];
        if (block < 0) block = static_cast<std::int32_t>((next++ * std::int64_t{29} + 2) % blocks);
        for (std::int64_t i = 0; i < kv_cols; ++i) {
          const std::int64_t at = (block * batch.block + j % batch.block) * kv_cols + i;
          k_.Set(at, keys[static_cast<std::size_t>(at)]);
          v_.Set(at, values[static_cast<std::size_t>(at)]);
        }
      }
    }
    std::vector<float> scales;
    for (int h = 0; h < 2 * c.kv_heads; ++h) scales.push_back(0.3f + 0.21f * static_cast<float>(h));
    k_scales_ = Matrix(DataType::kFloat32, 1, c.kv_heads, scales);
    scales.erase(scales.begin(), scales.begin() + c.kv_heads);
    v_scales_ = Matrix(DataType::kFloat32, 1, c.kv_heads, scales);
    starts_ = Indices(starts);
    positions_ = Indices(positions);
    lengths_ = Indices(batch.lengths);
    table_ = Matrix(static_cast<std::int64_t>(batch.lengths.size()), batch.table_cols, table);
    if (c.sinks != DataType::kNull) {
      sinks_ = Matrix(c.sinks, 1, c.heads, 24);
      params_.sinks = sinks_.AsWeight();
    } else {
      params_.sinks = {};
    }
    params_.attention = {.heads = c.heads,
                         .kv_heads = c.kv_heads,
                         .head_dim = c.head_dim,
                         .value_dim = c.value_dim,
                         .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                         .softcap = c.softcap,
                         .causal = c.causal,
                         .window = c.window,
                         .chunk = c.chunk,
                         .block_size = batch.block};
    type_ = c.value;
  }

  ComputeGraph Graph() const {
    ComputeGraph graph;
    std::vector<int> inputs;
    for (const Matrix* input : {&q_, &k_, &v_, &starts_, &positions_, &lengths_, &table_}) {
      inputs.push_back(input->AsLeaf(graph));
    }
    if (k_.type == DataType::kFloat8_e4m3) {
      inputs.push_back(k_scales_.AsLeaf(graph));
      inputs.push_back(v_scales_.AsLeaf(graph));
    }
    const AttentionParams& p = params_.attention;
    if (p.value_dim > 0) inputs[2] = inputs[1];
    graph.add_op(TensorOp::kAttention, 0, {q_.rows, std::int64_t{p.heads} * p.out_dim()}, inputs,
                 params_, "", type_);
    return graph;
  }

  static std::string NameOf(const AttentionCase& c) {
    return std::to_string(c.heads) + " heads, " + std::to_string(c.kv_heads) + " of keys, of " +
           std::to_string(c.head_dim) + ", " + ToString(c.cache);
  }

  Matrix q_ = Indices({0}), k_ = q_, v_ = q_, starts_ = q_, positions_ = q_, lengths_ = q_,
         table_ = q_, k_scales_ = q_, v_scales_ = q_, sinks_ = q_;
  OpParams params_;
  DataType type_ = DataType::kFloat32;
};

}  // namespace culet
