// Operations row by row of the references.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/e4m3_cache.h"
#include "graph/float_view.h"
#include "graph/reference.h"
#include "graph/table_rows.h"

namespace culet {
namespace {

// The rows of a table that the input `indices` names: zeros for those of other ranks, NaN for what
// none has.
void PickRows(const NodeLaunch& launch, const Weight& table, std::size_t indices,
              const TableRows& rows) {
  const TensorNode& node = launch.node();
  std::vector<double> row(static_cast<std::size_t>(node.shape.cols));
  for (std::int64_t i = 0; i < node.shape.rows; ++i) {
    const std::int64_t index = IndexAt(launch.inputs[indices], i);
    if (index < 0 || index >= rows.all) {
      StoreNaN(launch.output, node.type, i, node.shape.cols);
      continue;
    }
    std::fill(row.begin(), row.end(), 0.0);
    const std::int64_t own = index - rows.first;
    if (own >= 0 && own < table.rows) LoadWeightRow(table, own, row.data());
    StoreRow(launch.output, node.type, i, node.shape.cols, row.data());
  }
}

}  // namespace

void ReferenceRmsNorm(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t group = NormGroupOf(node.params);
  const Weight& weight = node.params.gamma;
  std::vector<double> x(static_cast<std::size_t>(group));
  std::vector<double> gamma(static_cast<std::size_t>(weight.cols));
  LoadRow(weight.data_ptr, weight.type, 0, weight.cols, gamma.data());
  const double epsilon = node.params.scalar;
  for (std::int64_t i = 0; i < node.shape.rows * node.shape.cols / group; ++i) {
    LoadRow(launch.input(0), launch.input_node(0).type, i, group, x.data());
    const double sum = Dot(x.data(), x.data(), weight.cols);
    const double scale = 1 / std::sqrt(sum / static_cast<double>(weight.cols) + epsilon);
    for (std::size_t c = 0; c < gamma.size(); ++c) x[c] = x[c] * scale * gamma[c];
    StoreRow(launch.output, node.type, i, group, x.data());
  }
}

void ReferenceLayerNorm(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t width = node.shape.cols;
  const Weight& weight = node.params.gamma;
  std::vector<double> x(static_cast<std::size_t>(width)), gamma(x.size());
  LoadRow(weight.data_ptr, weight.type, 0, width, gamma.data());
  for (std::int64_t row = 0; row < node.shape.rows; ++row) {
    LoadRow(launch.input(0), launch.input_node(0).type, row, width, x.data());
    double sum = 0;
    for (const double value : x) sum += value;
    for (double& value : x) value -= sum / static_cast<double>(width);
    const double variance = Dot(x.data(), x.data(), width) / static_cast<double>(width);
    const double by = 1 / std::sqrt(variance + static_cast<double>(node.params.scalar));
    for (std::size_t c = 0; c < x.size(); ++c) x[c] *= by * gamma[c];
    StoreRow(launch.output, node.type, row, width, x.data());
  }
}

void ReferencePositionScale(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t width = node.shape.cols;
  std::vector<double> x(static_cast<std::size_t>(width));
  for (std::int64_t row = 0; row < node.shape.rows; ++row) {
    LoadRow(launch.input(0), node.type, row, width, x.data());
    const double position =
        IndexAt(launch.input(1), row) + static_cast<double>(node.params.int_param);
    const double turns = std::floor(position / node.params.rope.original_context);
    for (double& value : x) value *= 1 + double{node.params.scalar} * std::log1p(turns);
    StoreRow(launch.output, node.type, row, width, x.data());
  }
}

void ReferenceEmbedding(const NodeLaunch& launch) {
  const OpParams& params = launch.node().params;
  PickRows(launch, params.weight, 0, RowsOf(params.weight, params.parts));
}

void ReferenceGatherRows(const NodeLaunch& launch) {
  Weight table;
  table.data_ptr = launch.input(0);
  table.type = launch.node().type;
  table.rows = launch.input_node(0).shape.rows;
  table.cols = launch.node().shape.cols;
  PickRows(launch, table, 1, RowsOf(table, {}));
}

void ReferenceKvWrite(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t cols = node.shape.cols;
  const bool codes = node.type == DataType::kFloat8_e4m3;
  const float* const scales = codes ? FromDevicePtr<const float>(launch.input(3)) : nullptr;
  const std::int64_t head = codes ? cols / launch.input_node(3).shape.cols : cols;
  std::vector<double> row(static_cast<std::size_t>(cols));
  for (std::int64_t i = 0; i < launch.input_node(1).shape.rows; ++i) {
    const std::int32_t slot = IndexAt(launch.input(2), i);
    if (slot < 0 || slot >= node.shape.rows) continue;
    LoadRow(launch.input(1), launch.input_node(1).type, i, cols, row.data());
    if (!codes) {
      StoreRow(launch.output, node.type, slot, cols, row.data());
      continue;
    }
    for (std::int64_t c = 0; c < cols; ++c) {
      FromDevicePtr<std::uint8_t>(launch.output)[slot * cols + c] =
          E4m3CacheCode(static_cast<float>(row[static_cast<std::size_t>(c)]), scales[c / head]);
    }
  }
}

// Of one rank.
void ReferenceAllArgMax(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const Shape from = launch.input_node(0).shape;
  for (std::int64_t i = 0; i < from.rows; ++i) {
    const std::int32_t local = FromDevicePtr<const std::int32_t>(launch.input(1))[i];
    const float value = FromDevicePtr<const float>(launch.input(0))[i * from.cols + local];
    FromDevicePtr<std::int32_t>(launch.output)[i] =
        std::isnan(value) ? -1 : static_cast<std::int32_t>(node.params.parts.first()) + local;
  }
}

void ReferenceArgMax(const NodeLaunch& launch) {
  const Shape from = launch.input_node(0).shape;
  std::vector<double> row(static_cast<std::size_t>(from.cols));
  for (std::int64_t i = 0; i < from.rows; ++i) {
    LoadRow(launch.input(0), launch.input_node(0).type, i, from.cols, row.data());
    std::size_t best = 0;
    for (std::size_t c = 0; c < row.size() && !std::isnan(row[best]); ++c) {
      if (row[c] > row[best] || std::isnan(row[c])) best = c;
    }
    FromDevicePtr<std::int32_t>(launch.output)[i] = static_cast<std::int32_t>(best);
  }
}

}  // namespace culet
