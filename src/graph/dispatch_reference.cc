// MakeReferenceDispatch: every operation in double, one rounding to the value's type.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/e4m3_cache.h"
#include "base/scales.h"
#include "culet/dispatch.h"
#include "graph/float_view.h"
#include "graph/host_advance.h"
#include "graph/reference.h"
#include "graph/table_rows.h"

namespace culet {
namespace {

class ReferenceDispatch final : public KernelDispatch {
 public:
  Feasibility supports(const ComputeGraph& graph, int id) const override {
    const TensorNode& node = graph.node(id);
    const bool others = (node.op == TensorOp::kAllReduce && node.params.int_param > 1) ||
                        (node.op == TensorOp::kAllGather && node.params.parts.ranks() > 1);
    return others ? Feasibility::Refuse(kNeedsRanks) : Feasibility::Ok();
  }

  Status dispatch_mul_mat(const TensorNode& node, DevicePtr, DevicePtr output, std::uint32_t m,
                          std::uint32_t n, std::uint32_t) override {
    const std::vector<double> x = ReferenceInput(current());
    const QuantDesc quant_a = node.inputs.size() > 1 ? QuantDesc{} : node.params.quant_a;
    std::vector<double> y;
    ReferenceProduct(x, m, node.params.weight, node.params.bias, quant_a, y, node.params.scalar);
    for (std::uint32_t i = 0; i < m; ++i) {
      StoreRow(output, node.type, i, n, y.data() + std::size_t{i} * n);
    }
    return {};
  }

  Status dispatch_rms_norm(const TensorNode& node, DevicePtr input, DevicePtr output,
                           std::uint32_t hidden_dim, std::uint32_t m, float epsilon) override {
    const std::int64_t group = NormGroupOf(node.params);
    std::vector<double> x(static_cast<std::size_t>(group)), gamma(hidden_dim);
    const Weight& weight = node.params.gamma;
    LoadRow(weight.data_ptr, weight.type, 0, hidden_dim, gamma.data());
    for (std::uint32_t i = 0; i < m; ++i) {
      LoadRow(input, current().input_node(0).type, i, group, x.data());
      const double sum = Dot(x.data(), x.data(), hidden_dim);
      const double scale = 1 / std::sqrt(sum / hidden_dim + epsilon);
      for (std::size_t c = 0; c < gamma.size(); ++c) x[c] = x[c] * scale * gamma[c];
      StoreRow(output, node.type, i, group, x.data());
    }
    return {};
  }

  Status dispatch_add(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    return Binary(a, b, output, n, [](double x, double y) { return x + y; });
  }
  Status dispatch_mul(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    return Binary(a, b, output, n, [](double x, double y) { return x * y; });
  }
  Status dispatch_silu(DevicePtr input, DevicePtr output, std::size_t n) override {
    return Binary(input, input, output, n, [](double x, double) { return Silu(x); });
  }
  Status dispatch_swiglu(DevicePtr gate, DevicePtr up, DevicePtr output, std::size_t n) override {
    return Binary(gate, up, output, n, [](double x, double y) { return Silu(x) * y; });
  }

  Status dispatch_rope(const TensorNode& node, DevicePtr qk, DevicePtr positions,
                       std::size_t n_positions, std::uint32_t head_dim,
                       std::uint32_t num_heads) override {
    ReferenceRope(node.params.rope, static_cast<int>(head_dim),
                  static_cast<std::int64_t>(n_positions), std::int64_t{head_dim} * num_heads,
                  positions, node.type, qk);
    return {};
  }

  Status dispatch_attention(const TensorNode&, DevicePtr, DevicePtr, DevicePtr, DevicePtr,
                            std::uint32_t, std::size_t) override {
    ReferenceAttention(current());
    return {};
  }

  Status dispatch_copy(DevicePtr src, DevicePtr dst, std::size_t bytes) override {
    std::memmove(FromDevicePtr<void>(dst), FromDevicePtr<const void>(src), bytes);
    return {};
  }

  Status dispatch_cast(const TensorNode& node, DevicePtr input, DevicePtr output,
                       std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      StoreFromDouble(
          FromDevicePtr<void>(output), node.type, at,
          LoadAsDouble(FromDevicePtr<const void>(input), current().input_node(0).type, at));
    }
    return {};
  }

  Status dispatch_embedding(const TensorNode& node, DevicePtr ids, DevicePtr output,
                            std::uint32_t m) override {
    const Weight& table = node.params.weight;
    PickRows(table, ids, output, m, RowsOf(table, node.params.parts));
    return {};
  }
  Status dispatch_gather_rows(const TensorNode& node, DevicePtr input, DevicePtr indices,
                              DevicePtr output, std::uint32_t m) override {
    Weight table;
    table.data_ptr = input;
    table.type = node.type;
    table.rows = current().input_node(0).shape.rows;
    table.cols = node.shape.cols;
    PickRows(table, indices, output, m, RowsOf(table, {}));
    return {};
  }

  Status dispatch_kv_write(const TensorNode& node, DevicePtr rows, DevicePtr slots, DevicePtr cache,
                           std::uint32_t m) override {
    const std::int64_t cols = node.shape.cols;
    const bool codes = node.type == DataType::kFloat8_e4m3;
    const float* const scales = codes ? FromDevicePtr<const float>(current().input(3)) : nullptr;
    const std::int64_t head = codes ? cols / current().input_node(3).shape.cols : cols;
    std::vector<double> row(static_cast<std::size_t>(cols));
    for (std::uint32_t i = 0; i < m; ++i) {
      const std::int32_t slot = IndexAt(slots, i);
      if (slot < 0 || slot >= node.shape.rows) continue;
      LoadRow(rows, current().input_node(1).type, i, cols, row.data());
      if (!codes) {
        StoreRow(cache, node.type, slot, cols, row.data());
        continue;
      }
      for (std::int64_t c = 0; c < cols; ++c) {
        FromDevicePtr<std::uint8_t>(cache)[slot * cols + c] =
            E4m3CacheCode(static_cast<float>(row[static_cast<std::size_t>(c)]), scales[c / head]);
      }
    }
    return {};
  }

  Status dispatch_quantize(const TensorNode& node, DevicePtr input, DevicePtr codes,
                           DevicePtr scales, std::uint32_t m, std::uint32_t k) override {
    std::vector<double> x(std::size_t{m} * k);
    for (std::uint32_t i = 0; i < m; ++i) {
      LoadRow(input, current().input_node(0).type, i, k, x.data() + std::size_t{i} * k);
    }
    ReferenceQuantize(node.params.quant_a, m, k, x, FromDevicePtr<std::uint8_t>(codes),
                      FromDevicePtr<float>(scales), node.params.scalar);
    return {};
  }

  Status dispatch_argmax(const TensorNode&, DevicePtr input, DevicePtr output, std::uint32_t m,
                         std::uint32_t n) override {
    std::vector<double> row(n);
    for (std::uint32_t i = 0; i < m; ++i) {
      LoadRow(input, current().input_node(0).type, i, n, row.data());
      std::size_t best = 0;
      for (std::size_t c = 0; c < row.size() && !std::isnan(row[best]); ++c) {
        if (row[c] > row[best] || std::isnan(row[c])) best = c;
      }
      FromDevicePtr<std::int32_t>(output)[i] = static_cast<std::int32_t>(best);
    }
    return {};
  }

  Status dispatch_advance(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t) override {
    AdvanceOnHost(current());
    return {};
  }

  Status dispatch_other(const TensorNode& node, DevicePtr output) override {
    const DevicePtr x = current().input(0);
    const auto n = static_cast<std::size_t>(node.shape.rows * node.shape.cols);
    const double scalar = node.params.scalar;
    switch (node.op) {
      case TensorOp::kScale:
        return Binary(x, x, output, n, [&](double a, double) { return scalar * a; });
      case TensorOp::kSoftCap:
        return Binary(x, x, output, n,
                      [&](double a, double) { return scalar * std::tanh(a / scalar); });
      case TensorOp::kGeGlu:
        return Binary(x, current().input(1), output, n,
                      [](double a, double b) { return GeluTanh(a) * b; });
      case TensorOp::kClampedSwiGlu:
        return Binary(x, current().input(1), output, n, [&](double a, double b) {
          const double gate = a > scalar ? scalar : a;
          const double up = b > scalar ? scalar : b < -scalar ? -scalar : b;
          return gate / (1 + std::exp(-double{node.params.slope} * gate)) * (up + 1);
        });
      case TensorOp::kRoute:
        ReferenceRoute(current());
        return {};
      case TensorOp::kExpertMulMat:
        ReferenceExpertProduct(current());
        return {};
      case TensorOp::kCombine:
        ReferenceCombine(current());
        return {};
      case TensorOp::kLayerNorm:
        return LayerNorm(node, output);
      case TensorOp::kHeadMulMat:
        return HeadMulMat(node, output);
      case TensorOp::kSigmoidGate:
        return Binary(x, current().input(1), output, n,
                      [](double a, double b) { return a / (1 + std::exp(-b)); });
      case TensorOp::kHeadSlice:
        ReferenceHeadSlice(current());
        return {};
      case TensorOp::kCausalConv:
        ReferenceCausalConv(current());
        return {};
      case TensorOp::kGatedDelta:
        ReferenceGatedDelta(current());
        return {};
      case TensorOp::kAllReduce:
      case TensorOp::kAllGather:  // one rank's, as supports has it
        return dispatch_copy(x, output, static_cast<std::size_t>(BytesOf(node)));
      default:
        return PositionScale(node, output);
    }
  }

  Status dispatch_sample(const TensorNode&, DevicePtr, DevicePtr, DevicePtr, DevicePtr,
                         std::uint32_t, std::uint32_t) override {
    ReferenceSample(current());
    return {};
  }

 private:
  static double GeluTanh(double x) {
    const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return x / (1 + std::exp(-2 * inner));  // tanh's own form loses the bits of small results
  }

  Status LayerNorm(const TensorNode& node, DevicePtr output) {
    const std::int64_t width = node.shape.cols;
    const Weight& weight = node.params.gamma;
    std::vector<double> x(static_cast<std::size_t>(width)), gamma(x.size());
    LoadRow(weight.data_ptr, weight.type, 0, width, gamma.data());
    for (std::int64_t row = 0; row < node.shape.rows; ++row) {
      LoadRow(current().input(0), current().input_node(0).type, row, width, x.data());
      double sum = 0;
      for (const double value : x) sum += value;
      for (double& value : x) value -= sum / static_cast<double>(width);
      const double variance = Dot(x.data(), x.data(), width) / static_cast<double>(width);
      const double by = 1 / std::sqrt(variance + static_cast<double>(node.params.scalar));
      for (std::size_t c = 0; c < x.size(); ++c) x[c] *= by * gamma[c];
      StoreRow(output, node.type, row, width, x.data());
    }
    return {};
  }

  Status HeadMulMat(const TensorNode& node, DevicePtr output) {
    const Weight& w = node.params.weight;
    const TensorNode& from = current().input_node(0);
    const std::int64_t in = node.params.head_dim, heads = from.shape.cols / in;
    const std::int64_t sums = w.rows / heads, of_head = node.shape.cols / heads;
    std::vector<double> x(static_cast<std::size_t>(from.shape.cols));
    std::vector<double> out(static_cast<std::size_t>(node.shape.cols));
    std::vector<double> line(static_cast<std::size_t>(w.cols));
    for (std::int64_t row = 0; row < node.shape.rows; ++row) {
      LoadRow(current().input(0), from.type, row, from.shape.cols, x.data());
      for (std::int64_t n = 0; n < w.rows; ++n) {
        LoadRow(w.data_ptr, w.type, n, w.cols, line.data());
        out[static_cast<std::size_t>(n / sums * of_head + n % sums)] =
            Dot(x.data() + n / sums * in, line.data(), w.cols);
      }
      for (std::int64_t head = 0; head < heads; ++head) {
        std::copy(x.begin() + head * in + w.cols, x.begin() + (head + 1) * in,
                  out.begin() + head * of_head + sums);
      }
      StoreRow(output, node.type, row, node.shape.cols, out.data());
    }
    return {};
  }

  Status PositionScale(const TensorNode& node, DevicePtr output) {
    const std::int64_t width = node.shape.cols;
    std::vector<double> x(static_cast<std::size_t>(width));
    for (std::int64_t row = 0; row < node.shape.rows; ++row) {
      LoadRow(current().input(0), node.type, row, width, x.data());
      const double position = IndexAt(current().input(1), row) + double{node.params.int_param};
      const double turns = std::floor(position / node.params.rope.original_context);
      for (double& value : x) value *= 1 + double{node.params.scalar} * std::log1p(turns);
      StoreRow(output, node.type, row, width, x.data());
    }
    return {};
  }

  template <class F>
  Status Binary(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n, F function) {
    const DataType type = current().node().type;
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const double x = LoadAsDouble(FromDevicePtr<const void>(a), type, at);
      const double y = LoadAsDouble(FromDevicePtr<const void>(b), type, at);
      StoreFromDouble(FromDevicePtr<void>(output), type, at, function(x, y));
    }
    return {};
  }

  // Rows of a table of `type`: zeros for those of other ranks, NaN for what none has.
  void PickRows(const Weight& table, DevicePtr indices, DevicePtr output, std::uint32_t m,
                const TableRows& rows) {
    const TensorNode& node = current().node();
    std::vector<double> row(static_cast<std::size_t>(node.shape.cols));
    for (std::uint32_t i = 0; i < m; ++i) {
      const std::int64_t index = IndexAt(indices, i);
      if (index < 0 || index >= rows.all) {
        StoreNaN(output, node.type, i, node.shape.cols);
        continue;
      }
      std::fill(row.begin(), row.end(), 0.0);
      const std::int64_t own = index - rows.first;
      if (own >= 0 && own < table.rows) LoadWeightRow(table, own, row.data());
      StoreRow(output, node.type, i, node.shape.cols, row.data());
    }
  }
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeReferenceDispatch() {
  return std::make_unique<ReferenceDispatch>();
}

}  // namespace culet
