#include "graph/joined_weight.h"

#include <cstdint>

#include "base/scales.h"

namespace culet {
namespace {

bool Follows(const Weight& next, const Weight& last) {
  if (next.type != last.type || next.quant != last.quant) return false;
  // Columns of both would have to be in one order.
  if (next.order_ptr != 0 || last.order_ptr != 0) return false;
  if (next.input_quant != last.input_quant || next.input_scale != last.input_scale) return false;
  const auto bytes = static_cast<DevicePtr>(BytesOf(last.type, last.rows * last.cols));
  if (next.data_ptr != last.data_ptr + bytes) return false;
  if (last.quant.type == QuantType::kNone) return true;
  const auto scale_bytes =
      static_cast<DevicePtr>(ScalesOf(last)) * static_cast<DevicePtr>(SizeOf(last.scales_type));
  const auto zero_bytes =
      static_cast<DevicePtr>(ScalesOf(last)) * static_cast<DevicePtr>(SizeOf(last.zeros_type));
  return last.rows % WeightGroupOf(last).rows == 0 && next.scales_type == last.scales_type &&
         next.scales_ptr == last.scales_ptr + scale_bytes && next.zeros_type == last.zeros_type &&
         next.zeros_ptr == last.zeros_ptr + zero_bytes;
}

}  // namespace

Weight JoinedWeight(std::span<const Weight* const> parts) {
  Weight joined = *parts.front();
  bool vectors = true;
  for (const Weight* part : parts) {
    if (!part->present()) return {};
    vectors &= part->rows == 1;
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Weight &last = *parts[i - 1], &next = *parts[i];
    if (!Follows(next, last) || (!vectors && next.cols != last.cols)) return {};
    (vectors ? joined.cols : joined.rows) += vectors ? next.cols : next.rows;
    joined.name += " + " + next.name;
  }
  return joined;
}

}  // namespace culet
