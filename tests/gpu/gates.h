// The gates and exponentials of the GPU's kernels over every number of FP32.
#pragma once

namespace culet {

/// Each function of every FP32 number against double precision, on the device. Prints one line for
/// each; returns whether all were right.
bool CheckGates();

}  // namespace culet
