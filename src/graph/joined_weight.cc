#include "graph/joined_weight.h"

#include <cstdint>

namespace culet {
namespace {

// Bytes of the scales of a weight whose rows are whole blocks.
DevicePtr ScaleBytes(const Weight& weight) {
  const std::int64_t g = weight.quant.group_size;
  return static_cast<DevicePtr>((weight.rows / g) * ((weight.cols + g - 1) / g)) * sizeof(float);
}

bool Follows(const Weight& next, const Weight& last) {
  if (next.type != last.type || next.quant != last.quant) return false;
  const auto bytes = static_cast<DevicePtr>(last.rows * last.cols) * SizeOf(last.type);
  if (next.data_ptr != last.data_ptr + bytes) return false;
  if (last.quant.type == QuantType::kNone) return true;
  return last.rows % last.quant.group_size == 0 && next.scales_type == last.scales_type &&
         next.scales_ptr == last.scales_ptr + ScaleBytes(last);
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
