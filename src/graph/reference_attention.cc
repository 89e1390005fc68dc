// Rotary embedding and attention of the references.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "graph/float_view.h"
#include "graph/reference.h"
#include "kernels/ops/attention_rows.h"

namespace culet {

void ReferenceRope(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const RopeParams& params = node.params.rope;
  const std::int64_t cols = node.shape.cols;
  const std::vector<double> frequencies = RopeFrequencies(params);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const bool neox = params.layout == RopeLayout::kNeox;
  std::vector<double> row(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < node.shape.rows; ++r) {
    LoadRow(launch.output, node.type, r, cols, row.data());
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = IndexAt(launch.input(1), r) * frequencies[static_cast<std::size_t>(i)];
      const double cosine = std::cos(angle) * params.attention_factor;
      const double sine = std::sin(angle) * params.attention_factor;
      for (std::int64_t head = params.first; head < cols; head += node.params.head_dim) {
        double& a = row[static_cast<std::size_t>(head + (neox ? i : 2 * i))];
        double& b = row[static_cast<std::size_t>(head + (neox ? i + half : 2 * i + 1))];
        const double x = a, y = b;
        a = x * cosine - y * sine;
        b = x * sine + y * cosine;
      }
    }
    StoreRow(launch.output, node.type, r, cols, row.data());
  }
}

void ReferenceAttention(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const AttentionParams& p = node.params.attention;
  const AttentionRows keys(launch);
  const std::int64_t d = p.head_dim, group = p.heads / p.kv_heads, of_value = p.out_dim();
  const std::int64_t q_cols = p.heads * d, kv_cols = p.kv_heads * d, out_cols = node.shape.cols;
  const DataType q_type = launch.input_node(0).type, kv_type = launch.input_node(1).type;
  const Weight& of_sinks = node.params.sinks;
  std::vector<double> sinks(of_sinks.present() ? static_cast<std::size_t>(p.heads) : 0);
  if (of_sinks.present()) LoadRow(of_sinks.data_ptr, of_sinks.type, 0, p.heads, sinks.data());
  // A row of K (1) or V (2), times the scales of its heads where it has some.
  const auto load = [&](int input, std::int64_t at, std::vector<double>& line) {
    LoadRow(launch.input(input), kv_type, at, kv_cols, line.data());
    if (kv_type != DataType::kFloat8_e4m3) return;
    const float* const scales = FromDevicePtr<const float>(launch.input(input + 6));
    for (std::int64_t c = 0; c < kv_cols; ++c) line[static_cast<std::size_t>(c)] *= scales[c / d];
  };
  const auto capped = [cap = static_cast<double>(p.softcap)](double score) {
    return cap > 0 ? cap * std::tanh(score / cap) : score;
  };
  HostPool().Run(static_cast<int>(node.shape.rows), [&](int row, int) {
    const AttentionRows::Range range = keys.Of(row);
    std::vector<double> out(static_cast<std::size_t>(out_cols), 0);
    if (range.sequence < 0 || range.first >= range.last) {
      StoreNaN(launch.output, node.type, row, out_cols);  // the mean of no values
      return;
    }
    std::vector<double> q(static_cast<std::size_t>(q_cols)), k(static_cast<std::size_t>(kv_cols));
    std::vector<double> v(k.size());
    const auto count = static_cast<std::size_t>(range.last - range.first);
    std::vector<double> scores(static_cast<std::size_t>(p.heads) * count);
    LoadRow(launch.input(0), q_type, row, q_cols, q.data());
    for (std::size_t j = 0; j < count; ++j) {
      const std::int64_t at =
          keys.KeyRow(range.sequence, range.first + static_cast<std::int64_t>(j));
      if (at < 0) {
        StoreNaN(launch.output, node.type, row, out_cols);
        return;
      }
      load(1, at, k);
      for (std::int64_t h = 0; h < p.heads; ++h) {
        scores[static_cast<std::size_t>(h) * count + j] =
            capped(Dot(q.data() + h * d, k.data() + h / group * d, d) * p.scale);
      }
    }
    std::vector<double> sums(static_cast<std::size_t>(p.heads));
    for (std::size_t h = 0; h < sums.size(); ++h) {
      double* const s = scores.data() + h * count;
      const double most = *std::max_element(s, s + count);
      for (std::size_t j = 0; j < count; ++j) sums[h] += s[j] = std::exp(s[j] - most);
      if (!sinks.empty()) sums[h] += std::exp(sinks[h] - most);
    }
    for (std::size_t j = 0; j < count; ++j) {
      const std::int64_t at =
          keys.KeyRow(range.sequence, range.first + static_cast<std::int64_t>(j));
      load(2, at, v);
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const auto head = static_cast<std::size_t>(h);
        const double weight = scores[head * count + j] / sums[head];
        for (std::int64_t i = 0; i < of_value; ++i) {
          out[static_cast<std::size_t>(h * of_value + i)] +=
              weight * v[static_cast<std::size_t>(h / group * d + i)];
        }
      }
    }
    StoreRow(launch.output, node.type, row, out_cols, out.data());
  });
}

}  // namespace culet
