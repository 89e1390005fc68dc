// Attention: which kernels take a node, and how they split its keys.
#include <algorithm>

#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/latent_attention.cuh"

namespace culet::cuda_ops {
namespace {

// The splits (at most `most`) of rows with `keys` keys each, and the keys of a split. A wave of
// `places` blocks takes as long as one block's keys, plus start and end, which cost as much as 512
// keys (H200).
int EvenSplits(std::int64_t blocks, std::int64_t places, std::int64_t keys, int most) {
  constexpr std::int64_t kStartAndEnd = 512;
  int best = 1;
  std::int64_t least = 0;
  for (int count = 1; count <= most; ++count) {
    const std::int64_t time =
        CeilDiv(blocks * count, places) * (CeilDiv(keys, count) + kStartAndEnd);
    if (least == 0 || time < least) best = count, least = time;
  }
  return best;
}

// An attention to plan, and the device.
struct Planned {
  const AttentionShape& shape;
  int multiprocessors;
  bool clusters, wgmma;
  const AttentionParams& params = shape.params;
  std::int64_t group = params.heads / params.kv_heads;
  bool codes = shape.kv_type == DataType::kFloat8_e4m3;

  // So many splits of at least `least` keys that all fit at once on SMs with `resident` blocks
  // each, `waves` times.
  int Splits(std::int64_t blocks, int resident, int waves, int least, int most) const {
    const std::int64_t wanted =
        std::int64_t{waves} * resident * multiprocessors / std::max<std::int64_t>(blocks, 1);
    return static_cast<int>(
        std::clamp<std::int64_t>(std::min(wanted, CeilDiv(shape.most_keys, least)), 1, most));
  }
};

// What a kernel's blocks leave in the workspace and in counters.
struct Memory {
  std::int64_t parts = 0;     // of a query's keys, of all queries
  std::int64_t counters = 0;  // of blocks that wait for each other
};

// Row by row, in FP32.
Memory PlanLanes(const Planned& of, AttentionPlan& plan) {
  constexpr int kLeastKeys = 32, kMost = 64, kHeads = 8, kResident = 4;
  const std::int64_t blocks = of.shape.rows * of.params.kv_heads * CeilDiv(of.group, kHeads);
  plan.lanes.most = of.Splits(blocks, kResident, 1, kLeastKeys, kMost);
  return {.parts = plan.lanes.most > 1 ? of.shape.rows * of.params.heads * plan.lanes.most : 0};
}

// The decoding kernel, for single rows: `units` of them.
class DecodePlanner {
 public:
  DecodePlanner(const Planned& of, std::int64_t units)
      : of_(of),
        keys_(of.shape.most_keys),
        units_(units),
        blocks_(units * DecodePieces(of.params)),
        few_(of.clusters && blocks_ * keys_ <= kMostKeys && keys_ <= kKeysOfCluster) {}

  std::int64_t blocks() const { return blocks_; }

  AttentionSplits Plan() {
    splits_.fine = 8192;
    splits_.least = few_ ? kSplitStep : kKeysMerged;
    ChooseStages();
    ChooseCluster();
    ChooseCount();
    return splits_;
  }

  // Warps of the kernel for few keys; 0 if it is not for them. It needs a whole cluster for each
  // row and an SM for each block, since sums are cut into slices for the blocks (H200: 1 x 512 is
  // 0.1 to 1 us faster, 4 x 512 1.7 slower; with 1,000 keys only small heads gain).
  int NearWarps() const {
    constexpr std::int64_t kSmallSums = 256, kTilesOfLarge = 4;
    const AttentionParams& p = of_.params;
    const int pieces = NearPieces(p);
    const bool fits = of_.shape.near && p.softcap == 0 &&
                      of_.shape.kv_type == DataType::kBfloat16 && splits_.cluster == kMostCluster &&
                      pieces > 0 && (p.head_dim == 64 || p.head_dim == 128);
    if (!fits) return 0;
    const std::int64_t blocks = units_ * p.kv_heads * pieces * splits_.cluster;
    const std::int64_t tiles = CeilDiv(keys_, splits_.cluster * kKeysOfWarp);
    const bool small = of_.group / pieces * p.head_dim <= kSmallSums;
    const bool near = blocks * std::min(pieces, 2) <= of_.multiprocessors &&
                      tiles <= (small ? kMostNearWarps : kTilesOfLarge);
    return near ? static_cast<int>(tiles) : 0;
  }

 private:
  // The largest cluster that any device allows, if latency matters beside reading keys and one
  // cluster a row is enough. Clusters are harder to place, which cost 7 to 30 % with four times as
  // many keys (H200).
  static constexpr int kMostCluster = 8, kKeysOfCluster = 1024;
  static constexpr std::int64_t kMostKeys = 64 << 10;  // of all blocks
  // Few keys are worth a block of their own only if a cluster merges it.
  static constexpr int kKeysMerged = 128;

  // Blocks that an SM holds by shared memory. Codes: three, with half the bytes in flight. 16 bits:
  // two with three stages if each has enough keys, else three with two. Known for Hopper only.
  void ChooseStages() {
    constexpr int kWaves = 4;
    const int long_keys = of_.codes ? 256 : 512;
    bool are_long = false;
    for (splits_.stages = of_.wgmma ? 3 : 2;; --splits_.stages) {
      const int resident = splits_.stages == 3 && !of_.codes ? 2 : 3;
      places_ = std::int64_t{resident} * of_.multiprocessors;
      splits_.most = of_.Splits(blocks_, resident, kWaves, splits_.least, kMostSplits);
      splits_.even = EvenSplits(blocks_, places_, keys_, splits_.most);
      are_long = keys_ >= std::int64_t{long_keys} * splits_.even;
      if (of_.codes || are_long || splits_.stages == 2) break;
    }
    // One or two rows get fewer but longer splits of three stages, which leave a sixth of the
    // places free; blocks without keys take most of these. They wait for the previous launch and so
    // keep the next one from starting too early (H200: 1 x 4096 9.4 to 8.6 us, 2 x 2048 8.9
    // to 8.2).
    constexpr int kBlocksOfFew = 8;
    shared_by_few_ = of_.wgmma && !few_ && !are_long && splits_.even > 1 &&
                     blocks_ * kBlocksOfFew <= of_.multiprocessors;
    if (!shared_by_few_) return;
    splits_.stages = 3;
    places_ = 2 * std::int64_t{of_.multiprocessors};
    splits_.even = EvenSplits(blocks_, places_ * 5 / 6, keys_, splits_.most);
  }

  void ChooseCluster() {
    const auto grow = [&](const auto& may) {
      int blocks_of = 1;
      while (few_ && blocks_of < kMostCluster && may(2 * blocks_of)) blocks_of *= 2;
      return blocks_of;
    };
    // If one block an SM is enough, the next launch's blocks fit beside them and already read their
    // keys: saves 0.6 to 1.5 us of 6 to 9 (H200).
    constexpr int kKeysBeside = 256;
    const int beside = grow([&](int count) {
      return count * blocks_ <= of_.multiprocessors && count * kSplitStep <= keys_;
    });
    if (beside == 1 || keys_ > beside * kKeysBeside) {
      splits_.cluster = grow([&](int count) { return count <= splits_.even; });
      return;
    }
    splits_.cluster = splits_.even = splits_.most = beside;
    const bool more = keys_ > beside * kKeysNear;
    if (!of_.codes) splits_.stages = of_.wgmma && more ? 3 : 2;
  }

  // Blocks without keys take places from others, so there are no more than some number of keys
  // needs.
  void ChooseCount() {
    const std::int64_t share = CeilDiv(CeilDiv(keys_, splits_.even), kSplitStep) * kSplitStep;
    if (splits_.cluster > 1 && keys_ <= splits_.cluster * kKeysNear) {
      splits_.most = splits_.even = splits_.cluster;
    } else if (share <= splits_.fine) {
      splits_.most = splits_.even =
          static_cast<int>(std::max<std::int64_t>(CeilDiv(keys_, share), 1));
    }
    splits_.most = std::max(splits_.most - splits_.most % splits_.cluster, splits_.cluster);
    splits_.even = std::min(splits_.even, splits_.most);
    if (shared_by_few_) {
      const std::int64_t most = std::min<std::int64_t>(places_ * 7 / 8 / blocks_, kMostSplits);
      splits_.most = std::max(splits_.most, static_cast<int>(most));
    }
    // Assumes a similar launch before this one. The prefetched keys must fit into the caches.
    const std::int64_t all = blocks_ * splits_.most, beside = places_ - all;
    if (splits_.cluster == 1 && splits_.most > 1 && beside >= all / 3 && beside < all) {
      splits_.ahead = static_cast<int>(beside / blocks_);
    }
  }

  const Planned& of_;
  const std::int64_t keys_, units_, blocks_;
  const bool few_;
  std::int64_t places_ = 0;
  bool shared_by_few_ = false;
  AttentionSplits splits_;
};

Memory PlanDecode(const Planned& of, AttentionPlan& plan) {
  const std::int64_t units = plan.units_are_sequences ? of.shape.sequences : of.shape.rows;
  DecodePlanner planner(of, units);
  plan.decode = planner.Plan();
  if (!plan.has_tiles) plan.near_warps = planner.NearWarps();
  if (plan.near_warps > 0) plan.decode.most = plan.decode.even = plan.decode.cluster;
  const bool merges = plan.decode.most > 1 && plan.near_warps == 0;
  return {.parts = merges ? units * of.params.heads * plan.decode.most : 0,
          .counters = planner.blocks() * plan.decode.cluster};
}

// Tiles of queries. A split must save more than merging all its queries costs: with whole tiles 256
// keys do not (a prompt of 512 took 60 us in two splits, H200). The tiles of one sequence are
// known; several sequences may have as many as there are blocks.
Memory PlanTiles(const Planned& of, AttentionPlan& plan) {
  const AttentionParams& p = of.params;
  plan.wgmma = of.wgmma && WgmmaBox(p.block_size) > 0;
  if (plan.wgmma) plan.wgmma_blocks = of.multiprocessors;
  const int resident = plan.wgmma ? 1 : 2;
  const int queries = plan.wgmma ? kWgmmaQueries : TileQueries(p.head_dim);
  const std::int64_t blocks = TileBlocks(p, of.shape.rows, of.shape.sequences, queries);
  const std::int64_t all = of.shape.rows * of.group;
  const std::int64_t tiles = of.shape.sequences > 1 ? blocks : CeilDiv(all, queries) * p.kv_heads;
  plan.tiles.least = all < queries ? 256 : 1024;
  plan.tiles.even = plan.tiles.most = of.Splits(tiles, resident, 1, plan.tiles.least, kMostSplits);
  return {.parts = plan.tiles.most > 1 ? of.shape.rows * p.heads * plan.tiles.most : 0,
          .counters = blocks};
}

}  // namespace

AttentionPlan PlanAttention(const AttentionShape& shape, bool exact, int multiprocessors,
                            bool clusters, bool wgmma) {
  const AttentionParams& p = shape.params;
  if (p.value_dim > 0) return PlanLatentAttention(shape, exact, multiprocessors, wgmma);
  const Planned of{shape, multiprocessors, clusters, wgmma};
  AttentionPlan plan;
  const bool halves = shape.kv_type == DataType::kBfloat16 || shape.kv_type == DataType::kFloat16;
  // Rows of heads in pieces of 16 bytes.
  plan.tensor_cores = !exact && (halves || of.codes) && p.head_dim % (of.codes ? 16 : 8) == 0;
  if (plan.tensor_cores) {
    // The kernels for tiles of queries have no registers left for a cap: the decoding kernel takes
    // such prompts row by row.
    const bool capped = p.softcap > 0;
    plan.has_tiles = shape.rows > shape.sequences && !capped;
    plan.has_decode = shape.rows <= shape.sequences || shape.sequences > 1 || capped;
    plan.units_are_sequences = plan.has_tiles && plan.has_decode;
  }
  const struct {
    bool is_used;
    Memory (*plan)(const Planned& of, AttentionPlan& plan);
  } kernels[] = {
      {!plan.tensor_cores, PlanLanes},
      {plan.has_decode, PlanDecode},
      {plan.has_tiles, PlanTiles},
  };
  Memory memory;  // launches follow each other, so they share it
  for (const auto& kernel : kernels) {
    if (!kernel.is_used) continue;
    const Memory own = kernel.plan(of, plan);
    memory.parts = std::max(memory.parts, own.parts);
    memory.counters = std::max(memory.counters, own.counters);
  }
  plan.workspace_bytes = static_cast<std::size_t>(memory.parts * (2 + p.head_dim)) * sizeof(float);
  plan.state_bytes = static_cast<std::size_t>(memory.counters) * sizeof(unsigned);
  return plan;
}

}  // namespace culet::cuda_ops
