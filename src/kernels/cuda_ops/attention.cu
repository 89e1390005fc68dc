// Attention: the choice of a kernel, and the merge of what splits of the keys found.
#include "kernels/cuda_ops/attention.cuh"

#include <algorithm>

#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/latent_attention.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;

// A block for each row and head, a thread for each kColumns neighbours of its result; splits in
// their order, so that the bits are always the same. Splits without keys, never the first one, may
// have left no values.
template <int kColumns>
__global__ void __launch_bounds__(kThreads)
    MergeSplits(const __grid_constant__ AttentionArgs args, int splits) {
  WaitForPrevious();
  const AttentionParams& p = args.params;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.heads));
  const AttentionPart first(args, args.rows, row, head, splits, 0);
  constexpr int kAtOnce = 8, kStep = kThreads * kColumns;  // splits whose loads are in flight
  float highest = kNoKey;
#pragma unroll 8
  for (int split = 0; split < splits; ++split) {
    highest = fmaxf(highest, first.maxima[first.index + split]);
  }
  for (int dim = static_cast<int>(threadIdx.x) * kColumns; dim < args.width; dim += kStep) {
    float total = 0, value[kColumns] = {};
#pragma unroll 1
    for (int begin = 0; begin < splits; begin += kAtOnce) {
      float weight[kAtOnce], part[kAtOnce][kColumns];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int split = begin + i < splits ? begin + i : 0;
        const float most = begin + i < splits ? first.maxima[first.index + split] : kNoKey;
        const bool has_keys = most != kNoKey;
        weight[i] = has_keys ? Rescale(most, highest) : 0.0f;
        total = fmaf(first.sums[first.index + split], weight[i], total);
        Load(first.values + (has_keys ? std::int64_t{split} * args.width : 0) + dim, part[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) value[c] = fmaf(part[i][c], weight[i], value[c]);
      }
    }
    total = WithSink(args, head, highest, total);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      StoreValue(value[i] / total, args.out, args.out_type,
                 (row * p.heads + head) * args.width + dim + i);
    }
  }
}

cudaError_t Merge(const AttentionArgs& args, int splits, LaunchStream stream) {
  const dim3 grid = Blocks(args.rows * args.params.heads);
  return args.width % 4 == 0 ? Launch(&MergeSplits<4>, grid, kThreads, stream, args, splits)
                             : Launch(&MergeSplits<1>, grid, kThreads, stream, args, splits);
}

// Fills in the derived fields.
AttentionArgs Completed(AttentionArgs args) {
  args.wide = IsWide(args.params.head_dim, static_cast<const char*>(args.k),
                     static_cast<const char*>(args.v));
  args.width = args.params.out_dim();
  constexpr float kLog2E = 1.44269504f;
  args.log2_scale = args.params.scale * kLog2E;
  args.log2_cap = args.params.softcap * kLog2E;
  if (args.params.block_size > 0) {
    args.blocks = static_cast<int>(args.key_rows / args.params.block_size);
    args.per_block = static_cast<std::uint32_t>(
        std::min<std::int64_t>((std::int64_t{1} << 32) / args.params.block_size, 0xFFFFFFFF));
  }
  return args;
}

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

}  // namespace

AttentionPlan PlanAttention(const AttentionShape& shape, bool exact, int multiprocessors,
                            bool clusters, bool wgmma) {
  const AttentionParams& p = shape.params;
  if (p.value_dim > 0) return PlanLatentAttention(shape, exact, multiprocessors, wgmma);
  const std::int64_t group = p.heads / p.kv_heads;
  AttentionPlan plan;
  const bool halves = shape.kv_type == DataType::kBfloat16 || shape.kv_type == DataType::kFloat16;
  const bool codes = shape.kv_type == DataType::kFloat8_e4m3;
  // Rows of heads in pieces of 16 bytes.
  plan.tensor_cores = !exact && (halves || codes) && p.head_dim % (codes ? 16 : 8) == 0;
  // Blocks that fit at once on `units` SMs with `resident` blocks each.
  const auto splits = [&](std::int64_t blocks, int resident, int waves, int least, int most) {
    const std::int64_t wanted =
        std::int64_t{waves} * resident * multiprocessors / std::max<std::int64_t>(blocks, 1);
    return static_cast<int>(
        std::clamp<std::int64_t>(std::min(wanted, CeilDiv(shape.most_keys, least)), 1, most));
  };
  std::int64_t parts = 0;  // of a query's keys, of all queries
  if (!plan.tensor_cores) {
    constexpr int kLeastKeys = 32, kMost = 64;
    plan.lanes.most = splits(shape.rows * p.kv_heads * CeilDiv(group, 8), 4, 1, kLeastKeys, kMost);
    if (plan.lanes.most > 1) parts = shape.rows * p.heads * plan.lanes.most;
  } else {
    constexpr int kMost = kMostSplits;
    // The kernels for tiles of queries have no registers left for a cap: the decoding kernel takes
    // such prompts row by row.
    const bool capped = p.softcap > 0;
    plan.has_tiles = shape.rows > shape.sequences && !capped;
    plan.has_decode = shape.rows <= shape.sequences || shape.sequences > 1 || capped;
    plan.units_are_sequences = plan.has_tiles && plan.has_decode;
    if (plan.has_decode) {
      const std::int64_t units = plan.units_are_sequences ? shape.sequences : shape.rows;
      const std::int64_t blocks = units * DecodePieces(p);
      AttentionSplits& decode = plan.decode;
      decode.fine = 8192;
      // The largest cluster that any device allows, if latency matters beside reading keys and one
      // cluster a row is enough. Clusters are harder to place, which cost 7 to 30 % with four times
      // as many keys (H200).
      constexpr int kMostCluster = 8, kKeysOfCluster = 1024;
      constexpr std::int64_t kMostKeys = 64 << 10;  // of all blocks
      const bool few =
          clusters && blocks * shape.most_keys <= kMostKeys && shape.most_keys <= kKeysOfCluster;
      // Blocks that an SM holds by shared memory. Codes: three, with half the bytes in flight. 16
      // bits: two with three stages if each has enough keys, else three with two. Known for Hopper
      // only. Few keys are worth a block of their own only if a cluster merges it.
      constexpr int kWaves = 4, kKeysMerged = 128;
      const int long_keys = codes ? 256 : 512;
      decode.least = few ? kSplitStep : kKeysMerged;
      std::int64_t places = 0;
      bool are_long = false;
      for (decode.stages = wgmma ? 3 : 2;; --decode.stages) {
        const int resident = decode.stages == 3 && !codes ? 2 : 3;
        places = std::int64_t{resident} * multiprocessors;
        decode.most = splits(blocks, resident, kWaves, decode.least, kMost);
        decode.even = EvenSplits(blocks, places, shape.most_keys, decode.most);
        are_long = shape.most_keys >= std::int64_t{long_keys} * decode.even;
        if (codes || are_long || decode.stages == 2) break;
      }
      // One or two rows get fewer but longer splits of three stages, which leave a sixth of the
      // places free; blocks without keys take most of these. They wait for the previous launch and
      // so keep the next one from starting too early (H200: 1 x 4096 9.4 to 8.6 us, 2 x 2048 8.9 to
      // 8.2).
      constexpr int kBlocksOfFew = 8;
      const bool shared_by_few =
          wgmma && !few && !are_long && decode.even > 1 && blocks * kBlocksOfFew <= multiprocessors;
      if (shared_by_few) {
        decode.stages = 3;
        places = 2 * std::int64_t{multiprocessors};
        decode.even = EvenSplits(blocks, places * 5 / 6, shape.most_keys, decode.most);
      }
      const auto grow = [&](const auto& may) {
        int blocks_of = 1;
        while (few && blocks_of < kMostCluster && may(2 * blocks_of)) blocks_of *= 2;
        return blocks_of;
      };
      // If one block an SM is enough, the next launch's blocks fit beside them and already read
      // their keys: saves 0.6 to 1.5 us of 6 to 9 (H200).
      constexpr int kKeysBeside = 256;
      const int beside = grow([&](int count) {
        return count * blocks <= multiprocessors && count * kSplitStep <= shape.most_keys;
      });
      if (beside > 1 && shape.most_keys <= beside * kKeysBeside) {
        decode.cluster = decode.even = decode.most = beside;
        const bool more = shape.most_keys > beside * kKeysNear;
        if (!codes) decode.stages = wgmma && more ? 3 : 2;
      } else {
        decode.cluster = grow([&](int count) { return count <= decode.even; });
      }
      // Blocks without keys take places from others, so there are no more than some number of keys
      // needs.
      const std::int64_t share =
          CeilDiv(CeilDiv(shape.most_keys, decode.even), kSplitStep) * kSplitStep;
      if (decode.cluster > 1 && shape.most_keys <= decode.cluster * kKeysNear) {
        decode.most = decode.even = decode.cluster;
      } else if (share <= decode.fine) {
        decode.most = decode.even =
            static_cast<int>(std::max<std::int64_t>(CeilDiv(shape.most_keys, share), 1));
      }
      decode.most = std::max(decode.most - decode.most % decode.cluster, decode.cluster);
      decode.even = std::min(decode.even, decode.most);
      if (shared_by_few) {
        const auto most = static_cast<int>(std::min<std::int64_t>(places * 7 / 8 / blocks, kMost));
        decode.most = std::max(decode.most, most);
      }
      // Assumes a similar launch before this one. The prefetched keys must fit into the caches.
      const std::int64_t all = blocks * decode.most, beside_all = places - all;
      if (decode.cluster == 1 && decode.most > 1 && beside_all >= all / 3 && beside_all < all)
        decode.ahead = static_cast<int>(beside_all / blocks);
      // The kernel for few keys needs a whole cluster for each row and an SM for each block, since
      // sums are cut into slices for the blocks (H200: 1 x 512 is 0.1 to 1 us faster, 4 x 512 1.7
      // slower; with 1,000 keys only small heads gain).
      const std::int64_t tiles = CeilDiv(shape.most_keys, decode.cluster * kKeysOfWarp);
      constexpr std::int64_t kSmallSums = 256, kTilesOfLarge = 4;
      const int pieces = NearPieces(p);
      const std::int64_t near_blocks = units * p.kv_heads * pieces * decode.cluster;
      if (shape.near && p.softcap == 0 && shape.kv_type == DataType::kBfloat16 &&
          decode.cluster == kMostCluster && pieces > 0 &&
          near_blocks * std::min(pieces, 2) <= multiprocessors && !plan.has_tiles &&
          (p.head_dim == 64 || p.head_dim == 128) &&
          tiles <= (group / pieces * p.head_dim <= kSmallSums ? kMostNearWarps : kTilesOfLarge)) {
        decode.most = decode.even = decode.cluster;
        plan.near_warps = static_cast<int>(tiles);
      }
      if (plan.decode.most > 1 && plan.near_warps == 0) parts = units * p.heads * plan.decode.most;
      plan.state_bytes = static_cast<std::size_t>(blocks * plan.decode.cluster) * sizeof(unsigned);
    }
    if (plan.has_tiles) {
      // A split must save more than merging all its queries costs: with whole tiles 256 keys do not
      // (a prompt of 512 took 60 us in two splits, H200). The tiles of one sequence are known;
      // several sequences may have as many as there are blocks.
      plan.wgmma = wgmma && WgmmaBox(p.block_size) > 0;
      if (plan.wgmma) plan.wgmma_blocks = multiprocessors;
      const int resident = plan.wgmma ? 1 : 2;
      const int queries = plan.wgmma ? kWgmmaQueries : TileQueries(p.head_dim);
      const std::int64_t blocks = TileBlocks(p, shape.rows, shape.sequences, queries);
      const std::int64_t tiles =
          shape.sequences > 1 ? blocks : CeilDiv(shape.rows * group, queries) * p.kv_heads;
      plan.tiles.least = shape.rows * group < queries ? 256 : 1024;
      plan.tiles.even = plan.tiles.most = splits(tiles, resident, 1, plan.tiles.least, kMost);
      if (plan.tiles.most > 1) parts = std::max(parts, shape.rows * p.heads * plan.tiles.most);
      plan.state_bytes =
          std::max(plan.state_bytes, static_cast<std::size_t>(blocks) * sizeof(unsigned));
    }
  }
  plan.workspace_bytes = static_cast<std::size_t>(parts * (2 + p.head_dim)) * sizeof(float);
  return plan;
}

cudaError_t PrepareAttention(const AttentionShape& shape, const AttentionPlan& plan) {
  const int dim = shape.params.head_dim;
  const bool bf16 = shape.kv_type == DataType::kBfloat16;
  const bool codes = shape.kv_type == DataType::kFloat8_e4m3;
  cudaError_t error = cudaSuccess;
  if (plan.latent) return PrepareLatentAttention(shape, plan);
  if (plan.near_warps > 0) return AllowNearOfBfloat16(dim);
  if (plan.has_decode) {
    error = codes  ? AllowDecodeOfE4m3(dim)
            : bf16 ? AllowDecodeOfBfloat16(dim)
                   : AllowDecodeOfFloat16(dim);
  }
  if (error != cudaSuccess || !plan.has_tiles) return error;
  if (plan.wgmma) {
    return codes  ? AllowWgmmaOfE4m3(dim)
           : bf16 ? AllowWgmmaOfBfloat16(dim)
                  : AllowWgmmaOfFloat16(dim);
  }
  return codes  ? AllowTilesOfE4m3(dim)
         : bf16 ? AllowTilesOfBfloat16(dim)
                : AllowTilesOfFloat16(dim);
}

cudaError_t PrepareHeadsAttention(const AttentionShape& shape, const AttentionPlan& plan) {
  const int dim = shape.params.head_dim;
  if (plan.near_warps > 0) return AllowHeadsNearOfBfloat16(dim);
  if (shape.kv_type == DataType::kFloat8_e4m3) return AllowHeadsDecodeOfE4m3(dim);
  return shape.kv_type == DataType::kBfloat16 ? AllowHeadsDecodeOfBfloat16(dim)
                                              : AllowHeadsDecodeOfFloat16(dim);
}

cudaError_t HeadsAttention(const FusedHeadsArgs& heads, const AttentionArgs& given,
                           LaunchStream stream) {
  if (given.rows == 0) return cudaSuccess;
  const AttentionArgs args = Completed(given);
  const bool wide = args.wide && IsWide(args.params.head_dim, static_cast<const char*>(args.out),
                                        static_cast<const char*>(heads.qkv));
  if (!wide || !args.plan.has_decode || args.plan.has_tiles) return cudaErrorInvalidValue;
  if (args.plan.near_warps > 0) return HeadsNearOfBfloat16(heads, args, stream);
  if (args.kv_type == DataType::kBfloat16) return HeadsDecodeOfBfloat16(heads, args, stream);
  if (args.kv_type == DataType::kFloat16) return HeadsDecodeOfFloat16(heads, args, stream);
  if (args.kv_type == DataType::kFloat8_e4m3) return HeadsDecodeOfE4m3(heads, args, stream);
  return cudaErrorInvalidValue;
}

cudaError_t Attention(const AttentionArgs& given, LaunchStream stream) {
  if (given.rows == 0) return cudaSuccess;
  const AttentionArgs args = Completed(given);
  if (args.plan.latent) {
    int splits = 1;
    const cudaError_t error = LatentAttention(args, stream, &splits);
    return error != cudaSuccess || splits == 1 ? error : Merge(args, splits, stream);
  }
  const auto address = [](const void* pointer) { return static_cast<const char*>(pointer); };
  const bool values_wide = IsWide(args.params.head_dim, address(args.q), address(args.out));
  if (args.plan.tensor_cores && args.wide && values_wide) {
    const bool bf16 = args.kv_type == DataType::kBfloat16;
    const bool codes = args.kv_type == DataType::kFloat8_e4m3;
    if (args.plan.near_warps > 0) return NearOfBfloat16(args, stream);
    cudaError_t error = cudaSuccess;
    if (args.plan.has_decode) {
      error = codes  ? DecodeOfE4m3(args, stream)
              : bf16 ? DecodeOfBfloat16(args, stream)
                     : DecodeOfFloat16(args, stream);
    }
    if (error != cudaSuccess || !args.plan.has_tiles) return error;
    if (args.plan.wgmma) {
      return codes  ? WgmmaOfE4m3(args, stream)
             : bf16 ? WgmmaOfBfloat16(args, stream)
                    : WgmmaOfFloat16(args, stream);
    }
    return codes  ? TilesOfE4m3(args, stream)
           : bf16 ? TilesOfBfloat16(args, stream)
                  : TilesOfFloat16(args, stream);
  }
  cudaError_t error = cudaErrorInvalidValue;
  if (args.kv_type == DataType::kFloat32) error = AttentionOfFloat32(args, stream);
  if (args.kv_type == DataType::kBfloat16) error = AttentionOfBfloat16(args, stream);
  if (args.kv_type == DataType::kFloat16) error = AttentionOfFloat16(args, stream);
  if (args.kv_type == DataType::kFloat8_e4m3) error = AttentionOfE4m3(args, stream);
  if (error != cudaSuccess || args.plan.lanes.most == 1) return error;
  return Merge(args, args.plan.lanes.most, stream);
}

}  // namespace culet::cuda_ops
