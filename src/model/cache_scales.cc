#include "model/cache_scales.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/e4m3_group.h"
#include "base/float_types.h"
#include "base/scales.h"
#include "base/thread_pool.h"

namespace culet {
namespace {

// What rounding adds to a bound: a few times 2^-8 for BF16 values, one part in 16 for a product's
// quantised inputs.
constexpr double kRounding = 1 + 0x1p-5, kE4m3Rounding = 1 + 0x1p-3;

// Bytes of the device's memory, read where they lie or copied.
class HostBytes {
 public:
  static Result<HostBytes> Of(DevicePtr from, std::size_t bytes, DeviceMemory& memory) {
    HostBytes host;
    host.data_ = FromDevicePtr<const std::byte>(from);
    if (memory.reads_host_memory()) return host;
    host.copy_.resize(bytes);
    CULET_RETURN_IF_ERROR(memory.Download(host.copy_.data(), from, bytes, nullptr));
    host.data_ = host.copy_.data();
    return host;
  }
  const std::byte* get() const noexcept { return data_; }

 private:
  std::vector<std::byte> copy_;
  const std::byte* data_ = nullptr;
};

// All elements of a vector; `count` zeros where there is none.
Result<std::vector<double>> VectorOf(const Weight& weight, std::int64_t count,
                                     DeviceMemory& memory) {
  std::vector<double> values(static_cast<std::size_t>(count));
  if (!weight.present()) return values;
  const auto bytes = HostBytes::Of(
      weight.data_ptr, static_cast<std::size_t>(weight.cols) * SizeOf(weight.type), memory);
  if (!bytes) return bytes.status();
  LoadLine(bytes->get(), weight.type, 0, 1, static_cast<int>(count), values.data());
  return values;
}

// The bound on each output of a product whose input an RMS norm made: the length of the weight's
// row times gamma, times the length of a normed row, plus the bias.
Result<std::vector<double>> BoundsOf(const Weight& weight, const Weight& bias,
                                     const std::vector<double>& gamma, DeviceMemory& memory) {
  const std::int64_t rows = weight.rows, cols = weight.cols;
  auto bounds = VectorOf(bias, rows, memory);
  if (!bounds) return bounds.status();
  const auto bytes = HostBytes::Of(
      weight.data_ptr, static_cast<std::size_t>(BytesOf(weight.type, rows * cols)), memory);
  if (!bytes) return bytes.status();
  const auto beside = [&](DevicePtr from, DataType type) -> Result<HostBytes> {
    if (from == 0) return HostBytes();
    return HostBytes::Of(from, static_cast<std::size_t>(BytesOf(type, ScalesOf(weight))), memory);
  };
  const auto scales = beside(weight.scales_ptr, weight.scales_type);
  if (!scales) return scales.status();
  const auto zeros = beside(weight.zeros_ptr, weight.zeros_type);
  if (!zeros) return zeros.status();
  HostBytes order;
  if (weight.order_ptr != 0) {
    auto found = HostBytes::Of(weight.order_ptr,
                               static_cast<std::size_t>(cols) * sizeof(std::int32_t), memory);
    if (!found) return found.status();
    order = *std::move(found);
  }
  const Shape group = WeightGroupOf(weight);
  const std::int64_t across = ScalesAcross(weight);
  const double most = std::sqrt(static_cast<double>(cols)) *
                      (weight.type == DataType::kFloat8_e4m3 ? kE4m3Rounding : 1);
  HostPool().Run(static_cast<int>(rows), [&](int row, int) {
    std::vector<double> line(static_cast<std::size_t>(cols));
    LoadLine(bytes->get(), weight.type, row * cols, 1, static_cast<int>(cols), line.data());
    double sum = 0;
    for (std::int64_t i = 0; i < cols; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t scale = row / group.rows * across + i / group.cols;
      double value = line[at];
      if (weight.zeros_ptr != 0) value -= LoadAsDouble(zeros->get(), weight.zeros_type, scale);
      if (weight.scales_ptr != 0) value *= LoadAsDouble(scales->get(), weight.scales_type, scale);
      std::int32_t from = static_cast<std::int32_t>(i);
      if (weight.order_ptr != 0) {
        std::memcpy(&from, order.get() + at * sizeof from, sizeof from);
      }
      value *= gamma[static_cast<std::size_t>(from)];
      sum += value * value;
    }
    double& bound = (*bounds)[static_cast<std::size_t>(row)];
    bound = std::fabs(bound) + most * std::sqrt(sum);
  });
  return bounds;
}

// No element of a normed head exceeds this, whatever the input.
Result<std::vector<double>> BoundsOfNorm(const Weight& gamma, std::int64_t heads,
                                         DeviceMemory& memory) {
  const auto values = VectorOf(gamma, gamma.cols, memory);
  if (!values) return values.status();
  std::vector<double> bounds;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (const double value : *values) {
      bounds.push_back(std::fabs(value) * std::sqrt(static_cast<double>(gamma.cols)));
    }
  }
  return bounds;
}

// Rope keeps the length of a pair; after a norm it is at most that of the larger gamma.
void Turn(const RopeParams& rope, int head_dim, bool normed, std::vector<double>& bounds) {
  const bool neox = rope.layout == RopeLayout::kNeox;
  const int half = rope.dims / 2;
  for (std::size_t head = 0; head < bounds.size(); head += static_cast<std::size_t>(head_dim)) {
    for (int i = 0; i < half; ++i) {
      double& a = bounds[head + static_cast<std::size_t>(neox ? i : 2 * i)];
      double& b = bounds[head + static_cast<std::size_t>(neox ? i + half : 2 * i + 1)];
      // Not std::hypot, which glibc has under a new name since 2.35.
      const double most = normed ? std::max(a, b) : std::sqrt(a * a + b * b);
      a = b = most * std::fabs(rope.attention_factor);
    }
  }
}

Result<std::vector<float>> ScalesFor(const std::vector<double>& bounds, int heads, int head_dim,
                                     const char* what) {
  std::vector<float> scales;
  for (int h = 0; h < heads; ++h) {
    double most = 0;
    for (int i = 0; i < head_dim; ++i) {
      const double bound = bounds[static_cast<std::size_t>(h * head_dim + i)];
      if (!std::isfinite(bound)) {
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("a weight of {} is not finite, so a cache of float8_e4m3 has no "
                                  "scale for it; use another cache_type",
                                  what));
      }
      most = std::max(most, bound);
    }
    int exponent = 0;
    std::frexp(most * kRounding / static_cast<double>(kLargestE4m3),
               &exponent);  // below 2^exponent
    constexpr int kLeast = std::numeric_limits<float>::min_exponent;
    constexpr int kMost = std::numeric_limits<float>::max_exponent - 1;
    scales.push_back(most == 0 ? 1.0f : std::ldexp(1.0f, std::clamp(exponent, kLeast, kMost)));
  }
  return scales;
}

Result<std::vector<float>> GivenScales(const Weight& weight, int heads, DeviceMemory& memory) {
  const auto values = VectorOf(weight, weight.cols, memory);
  if (!values) return values.status();
  std::vector<float> scales;
  for (int h = 0; h < heads; ++h) {
    const double scale = (*values)[weight.cols == 1 ? 0 : static_cast<std::size_t>(h)];
    if (!(scale >= std::numeric_limits<float>::min()) || !std::isfinite(scale)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} holds {}; a scale of a cache of float8_e4m3 must be a positive "
                                "number of at least 2^-126; use another cache_type",
                                weight.name, scale));
    }
    scales.push_back(static_cast<float>(scale));
  }
  return scales;
}

}  // namespace

Result<CacheScales> ScalesOfLayer(const DecoderConfig& config, const LayerWeights& layer,
                                  int number, DeviceMemory& memory) {
  const int heads = config.kv_heads, size = config.head_dim;
  // Without a norm before attention nothing bounds what its products make.
  const bool is_bounded = layer.attention_norm.present();
  const auto unbounded = [](const char* what) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("no norm before attention bounds the {}, and the checkpoint has no "
                              "scale for them in a cache of float8_e4m3; use another cache_type",
                              what));
  };
  const auto gamma = VectorOf(layer.attention_norm, config.hidden, memory);
  if (!gamma) return gamma.status();
  const auto of_keys = [&]() -> Result<std::vector<float>> {
    if (layer.k_scale.present()) return GivenScales(layer.k_scale, heads, memory);
    if (!config.qk_norm && !is_bounded) return unbounded("keys");
    auto bounds = config.qk_norm
                      ? BoundsOfNorm(layer.k_norm, config.qk_norm_whole ? 1 : heads, memory)
                      : BoundsOf(layer.k, layer.k_bias, *gamma, memory);
    if (!bounds) return bounds.status();
    const LayerRope rope = config.ropes[static_cast<std::size_t>(number)];
    if (rope != LayerRope::kNone) {
      Turn(rope == LayerRope::kLocal ? config.local_rope : config.rope, size, config.qk_norm,
           *bounds);
    }
    return ScalesFor(*bounds, heads, size, "keys");
  };
  const auto of_values = [&]() -> Result<std::vector<float>> {
    if (layer.v_scale.present()) return GivenScales(layer.v_scale, heads, memory);
    if (!is_bounded) return unbounded("values");
    const auto bounds = BoundsOf(layer.v, layer.v_bias, *gamma, memory);
    if (!bounds) return bounds.status();
    return ScalesFor(*bounds, heads, size, "values");
  };
  auto keys = of_keys();
  if (!keys) return keys.status();
  auto values = of_values();
  if (!values) return values.status();
  return CacheScales{*std::move(keys), *std::move(values)};
}

}  // namespace culet
