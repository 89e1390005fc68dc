// Makes a Fp8BlockKernel record of a configuration.
#pragma once

#include "kernels/sm90/fp8_block_kernel.cuh"

namespace culet::sm90 {

template <class C>
Fp8BlockKernel MakeFp8Block(const char* id) {
  Fp8BlockKernel kernel{};
  kernel.id = id;
  kernel.function = reinterpret_cast<const void*>(&Fp8BlockGemm<C>);
  kernel.tile_m = C::kTileM;
  kernel.tile_n = C::kTileN;
  kernel.cluster_m = C::kClusterM;
  kernel.cluster_n = C::kClusterN;
  kernel.split = C::kSplit;
  kernel.warpgroups_m = C::kWarpgroupsM;
  kernel.warpgroups_n = C::kWarpgroupsN;
  kernel.stages = C::kStages;
  kernel.store_rows = C::kStoreRows;
  kernel.scale_blocks = C::kScaleBlocks;
  kernel.output_bytes = C::kFloat32 ? 4 : 2;
  kernel.smem_bytes = C::kSmemBytes;
  kernel.threads = C::kThreads;
  kernel.registers = 65536 / C::kThreads / 8 * 8;  // what __launch_bounds__(kThreads, 1) gives
  return kernel;
}

}  // namespace culet::sm90
