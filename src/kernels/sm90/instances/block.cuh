// The large-M kernels of a list of schedules.
#pragma once

#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sm90/block/kernel.cuh"

namespace culet::sm90 {

/// The record of a configuration.
template <class C>
BlockKernel MakeBlock() {
  constexpr bool kF32 = C::Epilogue::kStoresSums;
  const auto text = [](int number) { return std::to_string(number); };
  BlockKernel kernel{};
  kernel.id = "sm90_" + std::string(C::Policy::kInfo.name) + "_block/" + text(C::kTileM) + "x" +
              text(C::kTileN) + "x" + text(C::Format::kBlockK) + "/c" + text(C::kClusterM) + "x" +
              text(C::kClusterN) + "/s" + text(C::kStages);
  if (C::kSplit > 1) kernel.id += "/k" + text(C::kSplit);
  if (C::kTurns > 1) kernel.id += "/t" + text(C::kTurns);
  if (C::kGrouped) kernel.id += "/grouped";
  if (C::kCopies) kernel.id += "/copies";
  if (kF32) kernel.id += "/f32";
  if (C::kQuantises)
    kernel.id += "/gated_e4m3";
  else if (C::kGated)
    kernel.id += "/gated";
  kernel.function = reinterpret_cast<const void*>(&BlockGemm<C, false>);
  if constexpr (C::kPairsScales)
    kernel.of_halves = reinterpret_cast<const void*>(&BlockGemm<C, true>);
  kernel.format = &C::Policy::kInfo;
  kernel.epilogue = C::Epilogue::kKind;
  kernel.output = kF32 ? OutputType::kF32 : OutputType::kBf16;
  kernel.tile_m = C::kTileM;
  kernel.tile_n = C::kTileN;
  kernel.cluster_m = C::kClusterM;
  kernel.cluster_n = C::kClusterN;
  kernel.split = C::kSplit;
  kernel.warpgroups_m = C::kWarpgroupsM;
  kernel.warpgroups_n = C::kWarpgroupsN;
  kernel.turns = C::kTurns;
  kernel.run = C::kRun;
  kernel.stages = C::kStages;
  kernel.store_rows = C::kStoreRows;
  kernel.scale_blocks = C::kScaleBlocks;
  kernel.by_lanes = C::kByLanes;
  kernel.grouped = C::kGrouped;
  kernel.copies = C::kCopies;
  kernel.output_bytes = !C::kPlain ? 0 : BytesOf(kernel.output);
  kernel.smem_bytes = C::kSmemBytes;
  kernel.threads = C::kThreads;
  kernel.registers = 65536 / C::kThreads / 8 * 8;  // what __launch_bounds__(kThreads, 1) gives
  return kernel;
}

/// The kernels of a list of schedules, List::kAll.
template <class Policy, class Epilogue, class List>
std::span<const BlockKernel> BlockInstances() {
  static const auto kernels = []<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return std::vector<BlockKernel>{
        MakeBlock<BlockConfig<List::kAll[kIndex], Policy, Epilogue>>()...};
  }
  (std::make_integer_sequence<int, static_cast<int>(std::size(List::kAll))>());
  return kernels;
}

}  // namespace culet::sm90
