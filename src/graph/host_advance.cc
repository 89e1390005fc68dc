#include "graph/host_advance.h"

#include <cmath>
#include <cstdint>

#include "base/float_types.h"

namespace culet {

void AdvanceOnHost(const NodeLaunch& launch) {
  const auto indices = [&](int input) { return FromDevicePtr<std::int32_t>(launch.input(input)); };
  auto* const log = FromDevicePtr<std::int32_t>(launch.output);
  const std::int32_t* const tokens = indices(1);
  std::int32_t *const ids = indices(3), *const positions = indices(4), *const slots = indices(5),
                      *const lengths = indices(6);
  const bool two = launch.node().inputs.size() > 8;
  const TensorNode& logits = launch.input_node(2);
  const Shape shape = launch.node().shape;
  const RankParts& parts = launch.node().params.parts;
  const std::int64_t vocab = parts.present() ? parts.all() : logits.shape.cols;
  const int block_size = launch.node().params.attention.block_size;
  // The slot of a position of sequence `s` by the table that is input `input`.
  const auto slot = [&](int input, std::int64_t s, std::int64_t position) {
    const std::int64_t blocks = launch.input_node(input).shape.cols, block = position / block_size;
    const std::int32_t at = block < blocks ? indices(input)[s * blocks + block] : -1;
    return at < 0
               ? -1
               : static_cast<std::int32_t>(std::int64_t{at} * block_size + position % block_size);
  };
  for (std::int64_t s = 0; s < shape.cols; ++s) {
    if (slots[s] < 0 || positions[s] < 0) continue;
    const std::int32_t token = tokens[s];
    const bool bad =
        token < 0 || token >= vocab ||
        (!parts.present() && std::isnan(LoadAsDouble(FromDevicePtr<const void>(launch.input(2)),
                                                     logits.type, s * vocab + token)));
    log[positions[s] % shape.rows * shape.cols + s] = bad ? -1 : token;
    const std::int64_t next = std::int64_t{positions[s]} + 1;
    ids[s] = token;
    positions[s] = static_cast<std::int32_t>(next);
    ++lengths[s];
    slots[s] = slot(7, s, next);
    if (two) indices(8)[s] = slot(9, s, next);
  }
}

}  // namespace culet
