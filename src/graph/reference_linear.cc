// Linear attention of the references.
#include <cmath>
#include <vector>

#include "graph/float_view.h"
#include "graph/reference.h"
#include "graph/state_inputs.h"

namespace culet {
namespace {

double SoftPlus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

// x / sqrt(sum of squares + epsilon).
void Normalise(double* x, std::int64_t count, double epsilon) {
  const double by = 1 / std::sqrt(Dot(x, x, count) + epsilon);
  for (std::int64_t i = 0; i < count; ++i) x[i] *= by;
}

// The states before a sequence's first token.
std::vector<double> StateOf(const StateRows& of, std::int64_t sequence) {
  std::vector<double> state(static_cast<std::size_t>(of.cols));
  if (const float* from = of.from(sequence)) state.assign(from, from + of.cols);
  return state;
}

void Keep(const std::vector<double>& state, float* to) {
  if (to == nullptr) return;
  for (std::size_t i = 0; i < state.size(); ++i) to[i] = static_cast<float>(state[i]);
}

}  // namespace

void ReferenceHeadSlice(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t cols = launch.input_node(0).shape.cols, size = node.params.head_dim;
  const std::int64_t count = node.shape.cols / (cols / size);
  std::vector<double> x(static_cast<std::size_t>(cols));
  std::vector<double> out(static_cast<std::size_t>(node.shape.cols));
  for (std::int64_t row = 0; row < node.shape.rows; ++row) {
    LoadRow(launch.input(0), node.type, row, cols, x.data());
    for (std::int64_t i = 0; i < node.shape.cols; ++i) {
      const std::int64_t at = i / count * size + node.params.int_param + i % count;
      out[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(at)];
    }
    StoreRow(launch.output, node.type, row, node.shape.cols, out.data());
  }
}

void ReferenceCausalConv(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const GatedDeltaParams& d = node.params.delta;
  const Weight& w = node.params.weight;
  const DataType type = launch.input_node(0).type;
  const std::int64_t cols = node.shape.cols, taps = w.cols, in = cols + d.out_cols();
  const std::int64_t keys = std::int64_t{d.key_heads} * d.key_dim;
  const std::int64_t values = d.out_cols() / d.key_heads, group = in / d.key_heads;
  const StateRows states = StateRowsOf(launch);
  std::vector<double> x(static_cast<std::size_t>(in)), out(static_cast<std::size_t>(cols));
  std::vector<double> line(static_cast<std::size_t>(taps));
  for (std::int64_t s = 0; s < states.sequences; ++s) {
    if (states.begin(s) == states.end(s)) continue;
    std::vector<double> last = StateOf(states, s);  // (taps - 1, cols)
    for (std::int64_t row = states.begin(s); row < states.end(s); ++row) {
      LoadRow(launch.input(0), type, row, in, x.data());
      // The columns in the order of the value's.
      std::int64_t at = 0;
      for (std::int64_t c = 0; c < cols; ++c) {
        if (c < 2 * keys) {
          const std::int64_t of = c % keys;
          at = of / d.key_dim * group + of % d.key_dim + (c < keys ? 0 : d.key_dim);
        } else {
          const std::int64_t of = c - 2 * keys;
          at = of / values * group + of % values + 2 * std::int64_t{d.key_dim};
        }
        last.push_back(x[static_cast<std::size_t>(at)]);
      }
      for (std::int64_t c = 0; c < cols; ++c) {
        LoadRow(w.data_ptr, w.type, c, taps, line.data());
        double sum = 0;
        for (std::int64_t i = 0; i < taps; ++i) {
          sum += line[static_cast<std::size_t>(i)] * last[static_cast<std::size_t>(i * cols + c)];
        }
        out[static_cast<std::size_t>(c)] = Silu(sum);
      }
      StoreRow(launch.output, node.type, row, cols, out.data());
      last.erase(last.begin(), last.begin() + cols);
    }
    Keep(last, states.to(s));
  }
}

void ReferenceGatedDelta(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const GatedDeltaParams& d = node.params.delta;
  const std::int64_t heads = d.value_heads, share = heads / d.key_heads;
  const std::int64_t keys = d.key_dim, values = d.value_dim, cols = d.qkv_cols();
  const StateRows states = StateRowsOf(launch);
  std::vector<double> x(static_cast<std::size_t>(cols)), gates(static_cast<std::size_t>(2 * heads));
  std::vector<double> decays(static_cast<std::size_t>(heads)), bias(decays.size());
  std::vector<double> out(static_cast<std::size_t>(d.out_cols()));
  LoadRow(node.params.gamma.data_ptr, node.params.gamma.type, 0, heads, decays.data());
  LoadRow(node.params.bias.data_ptr, node.params.bias.type, 0, heads, bias.data());
  for (std::int64_t s = 0; s < states.sequences; ++s) {
    if (states.begin(s) == states.end(s)) continue;
    std::vector<double> state = StateOf(states, s);
    for (std::int64_t row = states.begin(s); row < states.end(s); ++row) {
      LoadRow(launch.input(0), launch.input_node(0).type, row, cols, x.data());
      LoadRow(launch.input(1), launch.input_node(1).type, row, 2 * heads, gates.data());
      for (std::int64_t head = 0; head < 2 * d.key_heads; ++head) {
        Normalise(x.data() + head * keys, keys, static_cast<double>(node.params.scalar));
      }
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t of = head / share;
        const double* const q = x.data() + of * keys;
        const double* const k = q + d.key_heads * keys;
        const double* const v = x.data() + 2 * d.key_heads * keys + head * values;
        double* const memory = state.data() + head * keys * values;
        const double* const gate = gates.data() + of * 2 * share + head % share;
        const double by = 1 / (1 + std::exp(-gate[0]));
        const auto h = static_cast<std::size_t>(head);
        const double kept = std::exp(-std::exp(decays[h]) * SoftPlus(gate[share] + bias[h]));
        for (std::int64_t j = 0; j < values; ++j) {
          double known = 0, result = 0;
          for (std::int64_t i = 0; i < keys; ++i) known += k[i] * (memory[i * values + j] *= kept);
          const double change = (v[j] - known) * by;
          for (std::int64_t i = 0; i < keys; ++i) {
            result += q[i] * (memory[i * values + j] += k[i] * change);
          }
          out[static_cast<std::size_t>(head * values + j)] =
              result / std::sqrt(static_cast<double>(keys));
        }
      }
      StoreRow(launch.output, node.type, row, d.out_cols(), out.data());
    }
    Keep(state, states.to(s));
  }
}

}  // namespace culet
