// Attention of single rows that see few keys. All keys of a row fit into the shared memory of one
// cluster, 16 for each warp, and have arrived before the preceding kernel ends. Only latency is
// left, including that of code that runs once and comes from memory. So each warp has one tile of
// keys and no loop over tiles, there is no barrier between the queries' arrival and the exchange of
// sums, and each warp computes the queries itself, in the registers that it multiplies them from: a
// lane has eight contiguous dimensions of every 32 of a head, of keys too. Scores have keys as rows
// and heads as columns; weights are transposed. More heads of a key than a block takes are pieces,
// each with a cluster of its own.
#pragma once

#include <algorithm>

#include "kernels/cuda_ops/attention_decode.cuh"

namespace culet::cuda_ops {

/// How shared memory is used: factors of the heads, tiles of the warps, and what comes from all of
/// the cluster's warps: sums of the block's share of the dimensions, and each head's maximum and
/// sum of weights.
template <int kDim>
struct NearKernel {
  static constexpr int kKeys = kKeysOfWarp, kChunks = kDim / 8;
  static constexpr int kDimShift = kDim == 64 ? 6 : 7;
  static_assert(1 << kDimShift == kDim);
  // A lane of eight reads 16 bytes of a key in each of four; rows of values are ldmatrix's.
  static constexpr int kKeyRow = kDim * 2 + 64, kValueRow = kSharedRow<kDim>;
  static constexpr int kValuesAt = kKeys * kKeyRow, kTile = kValuesAt + kKeys * kValueRow;
  static constexpr int kGammasAt = 4 * kDim, kBarrierAt = kGammasAt + 8 * kDim;
  static constexpr int kTilesAt = kBarrierAt + 16;

  const int part_floats;  ///< of a warp's sums
  const int parts_at, weights_at, bytes;

  CULET_HOST_DEVICE constexpr NearKernel(int warps, int cluster, int heads)
      : part_floats(heads * (kDim / cluster) + 4),
        parts_at(kTilesAt + warps * kTile),
        weights_at(parts_at + warps * cluster * part_floats * 4),
        bytes(weights_at + warps * cluster * heads * 8) {}
};

/// What a lane multiplies keys with: its part of head `lane / 4` of the block's queries, or after
/// those of the row's own key and value.
template <int kDim>
class NearHead {
 public:
  static constexpr int kSteps = kDim / 32;
  uint4 words[kSteps];  ///< 8 elements from dimension 32 i + 8 (lane % 4) on

  __device__ NearHead(const DecodeArgs<false>& given, std::int64_t row, int, int first_head,
                      int group) {
    Find(given.attention.q, row * given.attention.params.heads + first_head, group);
  }
  __device__ NearHead(const DecodeArgs<true>& given, std::int64_t row, int kv_head, int first_head,
                      int group) {
    const FusedHeadsArgs& args = given.heads;
    is_key_ = slot_ == group, is_value_ = slot_ == group + 1;
    const int head = is_key_     ? args.heads + kv_head - slot_
                     : is_value_ ? args.heads + args.kv_heads + kv_head - slot_
                                 : first_head;
    Find(args.qkv, row * (args.heads + 2 * args.kv_heads) + head, group + 2);
    // Arguments read after the wait may come from memory, so they are read before.
    norms_ = args.q_gamma != nullptr ? 1 : 0;
    epsilon_ = is_key_ ? args.k_epsilon : args.q_epsilon;
    Pin(norms_);
    Pin(epsilon_);
  }

  /// Loads what the preceding kernel wrote.
  __device__ __forceinline__ void Read() {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      words[i] = there_ ? *reinterpret_cast<const uint4*>(from_ + 64 * i) : make_uint4(0, 0, 0, 0);
    }
  }

  /// Applies norm and rope to queries and key, with sums in the order of heads.cuh.
  __device__ __forceinline__ void Make() {
    const float* const sines = reinterpret_cast<const float*>(DynamicShared());
    const float* const cosines = sines + kDim / 2;
    const float* const gammas =
        reinterpret_cast<const float*>(DynamicShared() + NearKernel<kDim>::kGammasAt) +
        (is_key_ ? kDim : 0);
    float x[kSteps][kHeadWide];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) Load(reinterpret_cast<const __nv_bfloat16*>(&words[i]), x[i]);
    if (norms_ != 0) {
      float sum[kSteps];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) sum[i] = SumOfSquares(x[i]);
#pragma unroll
      for (int far = kSteps / 2; far > 0; far /= 2) {
#pragma unroll
        for (int i = 0; i < far; ++i) sum[i] += sum[i + far];
      }
      const float scale = NormScale(SumLanes<4>(sum[0]), kDim, epsilon_);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        float gamma[kHeadWide];
        Load(gammas + 32 * i + first_, gamma);
#pragma unroll
        for (int e = 0; e < kHeadWide; ++e) {
          x[i][e] = Rounded<__nv_bfloat16>(x[i][e] * scale * gamma[e]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      float sine[kHeadWide], cosine[kHeadWide];
      Load(sines + 32 * i + first_, sine);
      Load(cosines + 32 * i + first_, cosine);
#pragma unroll
      for (int e = 0; e < kHeadWide; ++e) {
        Turn(x[i][e], x[i + kSteps / 2][e], cosine[e], sine[e]);
      }
    }
    if (is_value_) return;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      using T = __nv_bfloat16;
      words[i] = make_uint4(PackPair<T>(x[i][0], x[i][1]), PackPair<T>(x[i][2], x[i][3]),
                            PackPair<T>(x[i][4], x[i][5]), PackPair<T>(x[i][6], x[i][7]));
    }
  }

  /// Puts the own key and value at their place in a tile.
  __device__ __forceinline__ void PutOwn(char* tile, int key) const {
    using Near = NearKernel<kDim>;
    if (!is_key_ && !is_value_) return;
    char* const to = tile +
                     (is_key_ ? key * Near::kKeyRow : Near::kValuesAt + key * Near::kValueRow) +
                     2 * first_;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) *reinterpret_cast<uint4*>(to + 64 * i) = words[i];
  }

  /// Writes them to the cache, in row `slot`.
  __device__ __forceinline__ void StoreOwn(const FusedHeadsArgs& args, std::int64_t slot,
                                           int kv_head) const {
    if (!is_key_ && !is_value_) return;
    auto* const to = static_cast<__nv_bfloat16*>(is_key_ ? args.keys : args.values) +
                     (slot * args.kv_heads + kv_head) * kDim + first_;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) *reinterpret_cast<uint4*>(to + 32 * i) = words[i];
  }

 private:
  static_assert(kSteps == 2 || kSteps == 4);

  // `first`: the head of slot 0.
  __device__ __forceinline__ void Find(const void* values, std::int64_t first, int slots) {
    there_ = slot_ < slots;
    from_ = static_cast<const char*>(values) + ((first + slot_) * kDim + first_) * 2;
    Pin(from_);
  }

  const int slot_ = static_cast<int>(threadIdx.x) % 32 / 4;
  const int first_ = static_cast<int>(threadIdx.x) % 4 * 8;
  const char* from_;
  bool there_, is_key_ = false, is_value_ = false;
  int norms_ = 0;
  float epsilon_ = 0;
};

/// The weights of 16 keys for two heads, keys `lane / 4` and 8 more, from the lane's unscaled
/// scores; also the heads' maxima (powers of two) and sums.
struct NearWeights {
  float highest[2], sum[2];

  __device__ __forceinline__ NearWeights(float (&scores)[4], float scale) {
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      float most = fmaxf(scores[head], scores[head + 2]);
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
      }
      // Without a key there is no difference of infinities.
      const float base = most == kNoKey ? 0.0f : most * scale;
      highest[head] = most == kNoKey ? kNoKey : base;
      scores[head] = FastExp2(fmaf(scores[head], scale, -base));
      scores[head + 2] = FastExp2(fmaf(scores[head + 2], scale, -base));
      sum[head] = scores[head] + scores[head + 2];
    }
  }
  /// Sums over all lanes, off the critical path of the weights.
  __device__ __forceinline__ void AddLanes() {
#pragma unroll
    for (int head = 0; head < 2; ++head) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        sum[head] += __shfl_xor_sync(kAllLanes, sum[head], offset);
      }
    }
  }
};

/// The block's share of the dimensions of all heads to `out`, of what `count` warps sent: a warp
/// takes four dimensions of a head, its lanes a warp's sums each.
template <int kDim>
__device__ __forceinline__ void MergeNear(const AttentionArgs& args, const NearKernel<kDim>& at,
                                          int count, int group, int first_head, int shift,
                                          __nv_bfloat16* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int quads = kDim / 4 >> shift, items = group * quads;
  const auto* const parts = reinterpret_cast<const float*>(DynamicShared() + at.parts_at);
  const auto* const weights = reinterpret_cast<const float*>(DynamicShared() + at.weights_at);
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x) / 32; item < items;
       item += static_cast<int>(blockDim.x) / 32) {
    const int head = item >> (at.kDimShift - 2 - shift), dim = (item & (quads - 1)) * 4;
    Weighted all;
#pragma unroll 1
    for (int part = lane; part < count; part += 32) {
      float weight[2], value[4];
      Load(weights + (part * group + head) * 2, weight);
      Load(parts + part * at.part_floats + head * 4 * quads + dim, value);
      const float highest = fmaxf(all.highest, weight[0]);
      const float before = Rescale(all.highest, highest), more = Rescale(weight[0], highest);
      all.highest = highest;
      all.total = fmaf(weight[1], more, all.total * before);
#pragma unroll
      for (int d = 0; d < 4; ++d) all.value[d] = fmaf(value[d], more, all.value[d] * before);
    }
    MergeLanes(all, 32);
    // No key: 0 / 0, the mean of no values.
    const float share_of_one =
        __fdiv_rn(1.0f, WithSink(args, first_head + head, all.highest, all.total));
#pragma unroll
    for (int d = 0; d < 4; ++d) all.value[d] *= share_of_one;
    if (lane == 0) Store(all.value, out + head * kDim + dim);
  }
}

/// Requires: a plan with near_warps, a cluster for each row and key-value head; a block has as many
/// warps at least.
template <int kDim, bool kMakesHeads>
__global__ void __launch_bounds__(32 * kMostNearWarps, 1)
    AttentionNear(const __grid_constant__ DecodeArgs<kMakesHeads> given) {
  using Near = NearKernel<kDim>;
  using T = __nv_bfloat16;
  constexpr int kKeys = Near::kKeys, kDimShift = Near::kDimShift;
  const AttentionArgs& args = given.attention;
  const AttentionParams& p = args.params;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int cluster = args.plan.decode.cluster, shift = __ffs(cluster) - 1;
  const int rank = static_cast<int>(blockIdx.y), warps = static_cast<int>(blockDim.x) / 32;
  const int pieces = NearPieces(p), units = p.kv_heads * pieces;
  int group = p.heads / units;
  int in_rows = static_cast<int>(blockIdx.x / static_cast<unsigned>(units));
  const int unit = static_cast<int>(blockIdx.x) - in_rows * units;
  int kv_head = unit / pieces, first_head = unit * group;
  // Divisions take as long as a load: the kernel before may still run meanwhile.
  Pin(group);
  Pin(in_rows);
  Pin(kv_head);
  Pin(first_head);
  const std::int64_t row = in_rows;
  if (args.early) {
    LetNextBegin();
  } else {
    WaitForPrevious();
  }
  const std::uint32_t barrier = SharedAddress(DynamicShared() + Near::kBarrierAt);
  if (thread == 0) MakeStoresBarrier(barrier);
  __syncwarp();
  ArriveAtCluster();
  NearHead<kDim> head(given, row, kv_head, first_head, group);
  const Near layout(args.plan.near_warps, cluster, group);
  const KeyRange range(args, row, row);
  const int first = static_cast<int>(range.first), last = static_cast<int>(range.last);
  const int tiles = last > first ? (last - first + kKeys - 1) / kKeys : 1;
  const int tile = warp * cluster + rank;  // so that all blocks have as many
  const int base = first + tile * kKeys;
  if (thread == 0) ExpectStores(barrier, tiles * group * 4 * ((kDim >> shift) + 2));

  OwnRow own;
  if constexpr (kMakesHeads) {
    const bool visible = range.position >= range.first && range.position < range.last;
    const auto its = visible ? static_cast<int>(range.position - range.first) / kKeys : 0;
    own = OwnRow(given, range, row, tile == its);
  }
  char* const keys = DynamicShared() + Near::kTilesAt + warp * Near::kTile;
  const int mine = base + lane % kKeys;
  const int row_of_key = mine < last && mine != own.key ? range.RowOf(args, mine) : kBeyond;
  const bool missing = __any_sync(kAllLanes, row_of_key == -1) != 0;
  const auto load = [&] {
    const std::int64_t of_row = std::int64_t{p.kv_heads} * kDim * 2;
    const std::int64_t at = (kv_head * kDim + lane % Near::kChunks * 8) * 2;
    constexpr int kAtOnce = 32 / Near::kChunks;
    std::uint32_t to =
        SharedAddress(keys) + static_cast<std::uint32_t>(lane / Near::kChunks * Near::kKeyRow +
                                                         lane % Near::kChunks * 16);
    std::uint32_t to_value = SharedAddress(keys + Near::kValuesAt) +
                             static_cast<std::uint32_t>(lane / Near::kChunks * Near::kValueRow +
                                                        lane % Near::kChunks * 16);
#pragma unroll
    for (int i = 0; i < kKeys; i += kAtOnce) {
      const int of = __shfl_sync(kAllLanes, row_of_key, lane / Near::kChunks + i);
      const std::int64_t from = at + max(of, 0) * of_row;
      const int bytes = of >= 0 ? 16 : 0;
      CopyAsync16(to, static_cast<const char*>(args.k) + from, bytes);
      CopyAsync16(to_value, static_cast<const char*>(args.v) + from, bytes);
      to += kAtOnce * Near::kKeyRow;
      to_value += kAtOnce * Near::kValueRow;
    }
    CommitCopies();
  };
  // The key at the row's position may be written by the preceding kernel.
  const bool at_once = kMakesHeads || !args.early || min(base + kKeys, last) <= range.OldKeys();
  if (tile < tiles && at_once) load();
  if constexpr (kMakesHeads) {
    float* const sines = reinterpret_cast<float*>(DynamicShared());
    MakeTurns(given.heads, row, sines, thread, 32 * warps);
    MakeGammas(given.heads, reinterpret_cast<float*>(DynamicShared() + Near::kGammasAt), thread,
               32 * warps);
    __syncthreads();
  }
  float scale = args.log2_scale;
  auto* out_of_block = static_cast<__nv_bfloat16*>(args.out) + (row * p.heads + first_head) * kDim +
                       rank * (kDim >> shift);
  Pin(scale);
  Pin(out_of_block);
  __syncwarp();
  AwaitCluster();
  if (args.early) WaitForPrevious();

  if (tile < tiles) {
    head.Read();
    if (!at_once) load();
    if constexpr (kMakesHeads) head.Make();
    AwaitCopies<0>();
    __syncwarp();
    if constexpr (kMakesHeads) {
      if (own.key >= 0) head.PutOwn(keys, own.key - base);
      __syncwarp();
    }
    float chains[2][4] = {};
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const char* const from = keys + lane / 4 * Near::kKeyRow + lane % 4 * 16 + 64 * i;
      const uint4 low = *reinterpret_cast<const uint4*>(from);
      const uint4 high = *reinterpret_cast<const uint4*>(from + 8 * Near::kKeyRow);
      const std::uint32_t even[4] = {low.x, high.x, low.y, high.y};
      const std::uint32_t odd[4] = {low.z, high.z, low.w, high.w};
      MultiplyAdd<T>(chains[0], even, head.words[i].x, head.words[i].y);
      MultiplyAdd<T>(chains[1], odd, head.words[i].z, head.words[i].w);
    }
    float scores[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool there = base + lane / 4 + i / 2 * 8 < last;
      scores[i] = there ? chains[0][i] + chains[1][i] : kNoKey;
    }
    NearWeights weights(scores, scale);
    // Of heads, now as rows, there are eight at most.
    const std::uint32_t a[4] = {Transposed(PackPair<T>(scores[0], scores[1])), 0,
                                Transposed(PackPair<T>(scores[2], scores[3])), 0};
    const std::uint32_t values =
        SharedAddress(keys + Near::kValuesAt) +
        static_cast<std::uint32_t>(lane % 16 * Near::kValueRow + lane / 16 * 16);
    float out[kDim / 8][4] = {};
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      std::uint32_t b[4];
      LoadTransposed(values + static_cast<std::uint32_t>(32 * i), b);
      MultiplyAdd<T>(out[2 * i], a, b[0], b[1]);
      MultiplyAdd<T>(out[2 * i + 1], a, b[2], b[3]);
    }
    weights.AddLanes();
    // Each block gets its share of the dimensions, and all the weights.
    if (lane / 4 < group) {
      const int each = kDim >> shift;
      const std::uint32_t to =
          SharedAddress(DynamicShared()) +
          static_cast<std::uint32_t>(
              layout.parts_at + 4 * (tile * layout.part_floats + lane / 4 * each + lane % 4 * 2));
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        StoreToCluster(to + static_cast<std::uint32_t>(32 * i & (4 * each - 1)), barrier,
                       8 * i >> (kDimShift - shift), out[i][0], out[i][1]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int of = lane % 4 * 2 + h;
      if (of >= group || lane / 4 >= cluster) continue;
      const auto weight = static_cast<std::uint32_t>(layout.weights_at + 8 * (tile * group + of));
      StoreToCluster(SharedAddress(DynamicShared()) + weight, barrier, lane / 4, weights.highest[h],
                     missing ? NotANumber() : weights.sum[h]);
    }
  }
  AwaitStores(barrier);
  if constexpr (kMakesHeads) {
    // The first piece is enough.
    const bool stores = first_head == kv_head * (p.heads / p.kv_heads);
    if (own.slot >= 0 && tile < tiles && stores) head.StoreOwn(given.heads, own.slot, kv_head);
  }
  MergeNear<kDim>(args, layout, tiles, group, first_head, shift, out_of_block);
}

/// kernel(std::integral_constant<int, kDim>{}) for heads of kDim elements.
template <class Function>
cudaError_t WithNearDim(int head_dim, Function&& function) {
  if (head_dim == 64) return function(std::integral_constant<int, 64>{});
  return function(std::integral_constant<int, 128>{});
}

template <bool kMakesHeads>
cudaError_t LaunchNear(const DecodeArgs<kMakesHeads>& args, LaunchStream stream) {
  const AttentionArgs& attention = args.attention;
  const AttentionParams& p = attention.params;
  const int tiles = attention.plan.near_warps, cluster = attention.plan.decode.cluster;
  const int units = p.kv_heads * NearPieces(p), group = p.heads / units;
  return WithNearDim(p.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    // Warps without a tile merge their share at the end.
    const int merged = group * (kDim / 4 / cluster);
    const int warps = std::max(tiles, std::min(merged, kMostNearWarps));
    return LaunchClusters(&AttentionNear<kDim, kMakesHeads>,
                          Blocks(attention.rows * units, cluster), 32 * warps,
                          NearKernel<kDim>(tiles, cluster, group).bytes, cluster, stream, args);
  });
}

template <bool kMakesHeads>
cudaError_t AllowNear(int head_dim) {
  return WithNearDim(head_dim, []<int kDim>(std::integral_constant<int, kDim>) {
    constexpr NearKernel<kDim> kMost(kMostNearWarps, 8, kMostNearHeads);
    return AllowShared(&AttentionNear<kDim, kMakesHeads>, kMost.bytes);
  });
}

}  // namespace culet::cuda_ops
