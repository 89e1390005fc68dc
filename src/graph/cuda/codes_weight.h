// A graph's weight of codes as kernels take it.
#pragma once

#include "base/scales.h"
#include "culet/graph.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

inline CodesWeight CodesOf(const Weight& weight) {
  CodesWeight codes;
  codes.data = FromDevicePtr<const void>(weight.data_ptr);
  codes.scales = FromDevicePtr<const void>(weight.scales_ptr);
  codes.zeros = FromDevicePtr<const void>(weight.zeros_ptr);
  codes.type = weight.type;
  codes.scales_type = weight.scales_type;
  codes.zeros_type = weight.zeros_type;
  codes.rows = weight.rows;
  codes.cols = weight.cols;
  codes.group = WeightGroupOf(weight).cols;
  codes.row_bytes = BytesOf(weight.type, weight.cols);
  codes.scale_row = ScalesAcross(weight);
  return codes;
}

}  // namespace culet::cuda_ops
