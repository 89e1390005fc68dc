// Products of the references.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/scales.h"
#include "base/thread_pool.h"
#include "graph/float_view.h"
#include "graph/reference.h"

namespace culet {
namespace {

constexpr float kLargestE4m3 = 448.0f;

}  // namespace

void ReferenceQuantize(const QuantDesc& quant_a, std::int64_t rows, std::int64_t cols,
                       std::vector<double>& x, std::uint8_t* codes, float* scales, float given) {
  if (quant_a.type == QuantType::kNone) return;
  const std::int64_t group = InputGroupOf(quant_a, cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < cols; first += group) {
      double* const values = x.data() + row * cols + first;
      const std::int64_t count = std::min(group, cols - first);
      // In FP32, as docs/numerics.md defines the quantiser.
      float amax = 0;
      bool finite = true;
      for (std::int64_t i = 0; i < count; ++i) {
        const float magnitude = std::fabs(static_cast<float>(values[i]));
        finite = finite && std::isfinite(magnitude);
        amax = std::max(amax, magnitude);
      }
      float scale = amax / kLargestE4m3;
      if (scale == 0) scale = amax == 0 ? 1.0f : std::numeric_limits<float>::denorm_min();
      if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
      if (given > 0) scale = given;
      for (std::int64_t i = 0; i < count; ++i) {
        float quotient = static_cast<float>(values[i]) / scale;
        // Inputs may exceed a given scale; an infinite one is no number.
        if (given > 0) {
          quotient = std::isfinite(values[i]) ? std::clamp(quotient, -kLargestE4m3, kLargestE4m3)
                                              : std::numeric_limits<float>::quiet_NaN();
        }
        const auto code = FloatToFloat8E4m3(quotient);
        values[i] = double{scale} * Float8E4m3ToFloat(code);
        if (codes != nullptr) codes[row * cols + first + i] = code;
      }
      if (scales != nullptr) scales[row * InputScalesOf(quant_a, cols) + first / group] = scale;
    }
  }
}

void ReferenceProduct(const std::vector<double>& x, std::int64_t m, const Weight& weight,
                      const Weight& bias, const QuantDesc& quant_a, std::vector<double>& y,
                      float given) {
  const std::int64_t n = weight.rows, k = weight.cols;
  std::vector<double> quantised = x;
  ReferenceQuantize(quant_a, m, k, quantised, nullptr, nullptr, given);
  if (weight.order_ptr != 0) {
    const auto* order = FromDevicePtr<const std::int32_t>(weight.order_ptr);
    for (std::int64_t i = 0; i < m * k; ++i) {
      quantised[static_cast<std::size_t>(i)] =
          x[static_cast<std::size_t>(i / k * k + order[i % k])];
    }
  }
  y.resize(static_cast<std::size_t>(m * n));
  constexpr std::int64_t kColumns = 16;  // a task
  const auto tasks = static_cast<int>((n + kColumns - 1) / kColumns);
  HostPool().Run(tasks, [&](int task, int) {
    std::vector<double> row(static_cast<std::size_t>(k));
    const std::int64_t end = std::min(n, (task + 1) * kColumns);
    for (std::int64_t j = task * kColumns; j < end; ++j) {
      LoadWeightRow(weight, j, row.data());
      const double offset =
          bias.present() ? LoadAsDouble(FromDevicePtr<const void>(bias.data_ptr), bias.type, j) : 0;
      for (std::int64_t i = 0; i < m; ++i) {
        y[static_cast<std::size_t>(i * n + j)] =
            Dot(row.data(), quantised.data() + i * k, k) + offset;
      }
    }
  });
}

std::vector<double> ReferenceInput(const NodeLaunch& launch) {
  const TensorNode& x = launch.input_node(0);
  const std::int64_t m = x.shape.rows, k = x.shape.cols;
  std::vector<double> values(static_cast<std::size_t>(m * k));
  for (std::int64_t i = 0; i < m; ++i) {
    LoadRow(launch.input(0), x.type, i, k, values.data() + i * k);
  }
  if (x.type != DataType::kFloat8_e4m3) return values;
  const auto* scales = FromDevicePtr<const float>(launch.input(1));
  const std::int64_t group = InputGroupOf(launch.node().params.quant_a, k);
  const std::int64_t across = (k + group - 1) / group;
  for (std::int64_t i = 0; i < m * k; ++i) {
    values[static_cast<std::size_t>(i)] *= scales[i / k * across + i % k / group];
  }
  return values;
}

void ReferenceMulMat(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::vector<double> x = ReferenceInput(launch);
  const QuantDesc quant_a = node.inputs.size() > 1 ? QuantDesc{} : node.params.quant_a;
  std::vector<double> y;
  ReferenceProduct(x, node.shape.rows, node.params.weight, node.params.bias, quant_a, y,
                   node.params.scalar);
  const std::int64_t n = node.params.weight.rows;
  for (std::int64_t i = 0; i < node.shape.rows; ++i) {
    StoreRow(launch.output, node.type, i, n, y.data() + i * n);
  }
}

void ReferenceQuantizeNode(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t m = node.shape.rows, k = node.shape.cols;
  std::vector<double> x(static_cast<std::size_t>(m * k));
  for (std::int64_t i = 0; i < m; ++i) {
    LoadRow(launch.input(0), launch.input_node(0).type, i, k, x.data() + i * k);
  }
  ReferenceQuantize(node.params.quant_a, m, k, x, FromDevicePtr<std::uint8_t>(launch.output),
                    FromDevicePtr<float>(launch.value(launch.id + 1)), node.params.scalar);
}

void ReferenceHeadMulMat(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const Weight& w = node.params.weight;
  const TensorNode& from = launch.input_node(0);
  const std::int64_t in = node.params.head_dim, heads = from.shape.cols / in;
  const std::int64_t sums = w.rows / heads, of_head = node.shape.cols / heads;
  std::vector<double> x(static_cast<std::size_t>(from.shape.cols));
  std::vector<double> out(static_cast<std::size_t>(node.shape.cols));
  std::vector<double> line(static_cast<std::size_t>(w.cols));
  for (std::int64_t row = 0; row < node.shape.rows; ++row) {
    LoadRow(launch.input(0), from.type, row, from.shape.cols, x.data());
    for (std::int64_t n = 0; n < w.rows; ++n) {
      LoadRow(w.data_ptr, w.type, n, w.cols, line.data());
      out[static_cast<std::size_t>(n / sums * of_head + n % sums)] =
          Dot(x.data() + n / sums * in, line.data(), w.cols);
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      std::copy(x.begin() + head * in + w.cols, x.begin() + (head + 1) * in,
                out.begin() + head * of_head + sums);
    }
    StoreRow(launch.output, node.type, row, node.shape.cols, out.data());
  }
}

}  // namespace culet
