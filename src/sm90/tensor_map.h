// Encodes tensor maps on the host, through the driver found at run time (no link against libcuda).
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "sm90/descriptor.h"

namespace culet::sm90 {

/// A function of the driver, in its form of CUDA 12.0. Null if the driver is missing or lacks it.
template <class Function>
Function DriverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    return nullptr;
  }
  return reinterpret_cast<Function>(function);
}

inline PFN_cuTensorMapEncodeTiled_v12000 TensorMapEncoder() {
  static const auto encode =
      DriverFunction<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
  return encode;
}

/// Whether the driver encodes tensor maps.
inline bool CanEncodeTensorMaps() { return TensorMapEncoder() != nullptr; }

/// Encodes `plan` over `base`. Elements of 1 byte become UINT8, of 2 BFLOAT16, of 4 FLOAT32.
/// Elements outside the tensor read as zero. False when the plan, the base or the driver forbids
/// it. `base` may be any address aligned to 16 bytes: it is stored, not read.
inline bool EncodeTensorMap(const TensorMapPlan& plan, const void* base, CUtensorMap* map) {
  const auto encode = TensorMapEncoder();
  if (encode == nullptr || WhyNotTensorMap(plan) != nullptr) return false;
  const CUtensorMapDataType type = plan.element_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : plan.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const CUtensorMapSwizzle swizzle =
      plan.swizzle == SwizzleMode::k128Bytes  ? CU_TENSOR_MAP_SWIZZLE_128B
      : plan.swizzle == SwizzleMode::k64Bytes ? CU_TENSOR_MAP_SWIZZLE_64B
      : plan.swizzle == SwizzleMode::k32Bytes ? CU_TENSOR_MAP_SWIZZLE_32B
                                              : CU_TENSOR_MAP_SWIZZLE_NONE;
  const cuuint64_t extents[4] = {plan.inner, plan.outer, plan.depth, plan.blocks};
  const cuuint64_t pitches[3] = {plan.pitch_bytes, plan.depth_bytes, plan.block_bytes};
  const cuuint32_t box[4] = {plan.box_inner, plan.box_outer, plan.box_depth, plan.box_blocks};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  // L2 promotion to 256 bytes measured slightly worse than 128 for streams from DRAM.
  return encode(map, type, static_cast<unsigned>(plan.rank), const_cast<void*>(base), extents, pitches, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Encodes `plan`, and a second map for the boxes that reach beyond the last row (or the last block,
/// where there is an axis of blocks). Boxes of the second map end with that row. They bring one slice
/// each, because slices of fewer rows would move together in shared memory. If no box reaches beyond
/// the last row, both maps are equal.
inline bool EncodeTensorMapAndRest(TensorMapPlan plan, const void* base, CUtensorMap* map,
                                   CUtensorMap* rest) {
  if (!EncodeTensorMap(plan, base, map)) return false;
  *rest = *map;
  if (plan.rank == 4) {
    const auto blocks = static_cast<std::uint32_t>(plan.blocks % plan.box_blocks);
    if (blocks == 0) return true;
    plan.box_blocks = blocks;
    return EncodeTensorMap(plan, base, rest);
  }
  const auto rows = static_cast<std::uint32_t>(plan.outer % plan.box_outer);
  if (rows == 0) return true;
  plan.box_outer = rows;
  plan.box_depth = 1;
  return EncodeTensorMap(plan, base, rest);
}

/// Puts another address into an encoded map. False if the driver cannot.
inline bool ReplaceTensorMapAddress(CUtensorMap* map, const void* base) {
  static const auto replace =
      DriverFunction<PFN_cuTensorMapReplaceAddress_v12000>("cuTensorMapReplaceAddress");
  return replace != nullptr && replace(map, const_cast<void*>(base)) == CUDA_SUCCESS;
}

}  // namespace culet::sm90
