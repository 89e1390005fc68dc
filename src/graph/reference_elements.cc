// Operations element by element of the references.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "graph/float_view.h"
#include "graph/reference.h"

namespace culet {
namespace {

// function(x, y) of each pair of elements; of one input x is y.
template <class F>
void Each(const NodeLaunch& launch, F function) {
  const TensorNode& node = launch.node();
  const auto* a = FromDevicePtr<const void>(launch.input(0));
  const auto* b = FromDevicePtr<const void>(launch.input(node.inputs.size() > 1 ? 1 : 0));
  for (std::int64_t i = 0; i < node.shape.rows * node.shape.cols; ++i) {
    const double x = LoadAsDouble(a, node.type, i), y = LoadAsDouble(b, node.type, i);
    StoreFromDouble(FromDevicePtr<void>(launch.output), node.type, i, function(x, y));
  }
}

double GeluTanh(double x) {
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * inner));  // tanh's own form loses the bits of small results
}

}  // namespace

void ReferenceAdd(const NodeLaunch& launch) {
  Each(launch, [](double x, double y) { return x + y; });
}

void ReferenceMul(const NodeLaunch& launch) {
  Each(launch, [](double x, double y) { return x * y; });
}

void ReferenceSilu(const NodeLaunch& launch) {
  Each(launch, [](double x, double) { return Silu(x); });
}

void ReferenceSwiGlu(const NodeLaunch& launch) {
  Each(launch, [](double x, double y) { return Silu(x) * y; });
}

void ReferenceGeGlu(const NodeLaunch& launch) {
  Each(launch, [](double x, double y) { return GeluTanh(x) * y; });
}

void ReferenceClampedSwiGlu(const NodeLaunch& launch) {
  const double limit = launch.node().params.scalar, slope = launch.node().params.slope;
  Each(launch, [&](double x, double y) {
    const double gate = x > limit ? limit : x;
    const double up = y > limit ? limit : y < -limit ? -limit : y;
    return gate / (1 + std::exp(-slope * gate)) * (up + 1);
  });
}

void ReferenceSigmoidGate(const NodeLaunch& launch) {
  Each(launch, [](double x, double y) { return x / (1 + std::exp(-y)); });
}

void ReferenceScale(const NodeLaunch& launch) {
  const double scalar = launch.node().params.scalar;
  Each(launch, [&](double x, double) { return scalar * x; });
}

void ReferenceSoftCap(const NodeLaunch& launch) {
  const double scalar = launch.node().params.scalar;
  Each(launch, [&](double x, double) { return scalar * std::tanh(x / scalar); });
}

void ReferenceCast(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const auto* from = FromDevicePtr<const void>(launch.input(0));
  for (std::int64_t i = 0; i < node.shape.rows * node.shape.cols; ++i) {
    StoreFromDouble(FromDevicePtr<void>(launch.output), node.type, i,
                    LoadAsDouble(from, launch.input_node(0).type, i));
  }
}

void ReferenceCopy(const NodeLaunch& launch) {
  std::memmove(FromDevicePtr<void>(launch.output), FromDevicePtr<const void>(launch.input(0)),
               static_cast<std::size_t>(BytesOf(launch.node())));
}

}  // namespace culet
