// What a quantiser is given, and whether it can work with it.
#pragma once

#include <string_view>

#include "culet/problem.h"
#include "culet/status.h"

namespace culet {

struct Quantization {
  const void* source;
  const MatrixLayout& source_layout;
  void* values;
  const MatrixLayout& values_layout;
  float* scales;
  const MatrixLayout& scales_layout;
  int group_rows;
  int group_cols;
};

/// Errors: those of QuantizeGroups. `group_name` is what the caller calls the group's size.
Status CheckQuantization(const Quantization& q, std::string_view group_name);

}  // namespace culet
