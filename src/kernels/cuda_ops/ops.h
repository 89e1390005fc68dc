// The operations of a graph besides products on a GPU, one kernel launch each unless it says
// otherwise. Pointers are memory of the current device, matrices are packed and row-major. Values
// are float32 or bfloat16; arithmetic is FP32, with one rounding at the end. Nothing here
// allocates, waits or looks at the device's memory. All return the launch's own error, and
// cudaErrorInvalidValue for a type that they do not take; nothing to do is success. What lies
// outside its range on the device is as culet/graph.h says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/state_rows.h"
#include "culet/tensor.h"
#include "culet/types.h"

namespace culet::cuda_ops {

/// Where an operation is launched, and whether its kernels may begin before the one before them on
/// the stream has ended; without it (any stream converts) they begin afterwards.
struct LaunchStream {
  LaunchStream(cudaStream_t s, bool o = false) : stream(s), overlap(o) {}
  cudaStream_t stream;
  bool overlap;  ///< requires CanOverlap
};
/// Whether the kernels for the current device know how to wait for the one before them: those of
/// compute capability 9.0 on.
bool CanOverlap();

/// Memory that a launch prefetches into L2 for the product after it. Nothing writes it while the
/// launch runs. Ignored before compute capability 9.0.
struct ReadNext {
  const void* data = nullptr;  ///< aligned to 16
  std::int64_t bytes = 0;      ///< a multiple of 16
};

// -- Element by element; out may be an operand (elementwise.cu) -----------------------------------

enum class ElementOp {
  kAdd,
  kMul,
  kSilu,
  kSwiGlu,
  kGeGlu,
  kClampedSwiGlu,
  kSigmoidGate,
  kScale,
  kSoftCap
};
/// `b` is not read by kSilu, kScale and kSoftCap; `scalar` is of the last two and kClampedSwiGlu,
/// `slope` of kClampedSwiGlu.
cudaError_t ElementWise(ElementOp op, DataType type, const void* a, const void* b, void* out,
                        std::int64_t n, float scalar, float slope, LaunchStream stream);

// -- Rows (rows.cu, rms_norm.cu, argmax.cu, quantize.cu) ------------------------------------------

/// Row i of `rows` goes from row from[i] of `source` (source_rows, cols) to row to[i] of `target`
/// (target_rows, cols), converted; null indices: row i. What comes from no row is NaN, what goes to
/// no row is left out. Types: float32, float16, bfloat16. Embedding, gathering, cache writes,
/// casts.
struct MoveRowsArgs {
  const void* source = nullptr;
  DataType source_type = DataType::kNull;
  std::int64_t source_rows = 0;
  /// Of a table of `all_rows` the source has those from `first_row` on, and the others are zeros.
  /// 0: it has all.
  std::int64_t first_row = 0, all_rows = 0;
  const std::int32_t* from = nullptr;
  void* target = nullptr;
  DataType target_type = DataType::kNull;
  std::int64_t target_rows = 0;
  const std::int32_t* to = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
cudaError_t MoveRows(const MoveRowsArgs& args, LaunchStream stream);

/// MoveRows of all rows, element i of each from place order[i]. Requires: 0 <= order[i] < cols.
cudaError_t ReorderColumns(const MoveRowsArgs& args, const std::int32_t* order,
                           LaunchStream stream);

/// A weight (rows, cols) of codes, whose element is (code - zero) * scale; `group` elements of
/// `group_rows` rows share scale and zero point.
struct CodesWeight {
  const void* data = nullptr;
  const void* scales = nullptr;
  const void* zeros = nullptr;  ///< null: none
  DataType type = DataType::kNull, scales_type = DataType::kNull, zeros_type = DataType::kNull;
  std::int64_t rows = 0, cols = 0, group = 1, group_rows = 1;
  std::int64_t row_bytes = 0;                    ///< between rows of codes
  std::int64_t scale_row = 0, scale_column = 1;  ///< elements between scales
};

/// Rows of a weight of codes as numbers, each rounded once: rows from[i], NaN for those that do not
/// exist, or where `from` is null `rows` rows from `first` on (codes.cu).
struct RowsOfCodesArgs {
  CodesWeight weight;
  const std::int32_t* from = nullptr;
  std::int64_t first = 0;
  void* target = nullptr;                  ///< (rows, cols)
  DataType target_type = DataType::kNull;  ///< float32, float16 or bfloat16
  std::int64_t rows = 0;
};
cudaError_t RowsOfCodes(const RowsOfCodesArgs& args, LaunchStream stream);

/// Row i of `rows` goes to row slots[i] of a cache (cache_rows, cols) of E4M3, as codes of its
/// heads' scales, unless that is outside (cache_rows.cu).
struct CacheRowsArgs {
  const void* source = nullptr;
  DataType source_type = DataType::kNull;  ///< float32 or bfloat16
  const std::int32_t* slots = nullptr;
  std::uint8_t* cache = nullptr;
  const float* scales = nullptr;  ///< (cols / head_dim)
  std::int64_t cache_rows = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  int head_dim = 0;
};
cudaError_t WriteCacheRows(const CacheRowsArgs& args, LaunchStream stream);

/// x / sqrt(mean(x^2) + epsilon) * gamma over `groups` groups of `width` elements, or of `stride`
/// where that is more: the others stay as they are. gamma: float32, float16 or bfloat16.
struct RmsNormArgs {
  const void* x = nullptr;
  DataType x_type = DataType::kNull;
  const void* gamma = nullptr;
  DataType gamma_type = DataType::kNull;
  float epsilon = 0;
  void* out = nullptr;
  DataType out_type = DataType::kNull;
  std::int64_t groups = 0;
  int width = 0;
  int stride = 0;
};
cudaError_t RmsNorm(const RmsNormArgs& args, LaunchStream stream);

/// (x - mean(x)) / sqrt(variance(x) + epsilon) * gamma over rows (layer_norm.cu).
cudaError_t LayerNorm(const RmsNormArgs& args, LaunchStream stream);

/// Row i times 1 + by * ln(1 + floor(positions[i] / original)), types as x (layer_norm.cu).
struct PositionScaleArgs {
  const void* x = nullptr;
  DataType type = DataType::kNull;
  const std::int32_t* positions = nullptr;
  double ahead = 0;  ///< what is added to positions
  float by = 0;
  double original = 1;
  void* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
cudaError_t PositionScale(const PositionScaleArgs& args, LaunchStream stream);

/// Index of each row's largest element, the first of equals, the first NaN if there is one.
/// `workspace`: ArgMaxWorkspace bytes, aligned to 8. Two launches where a row is long.
cudaError_t ArgMax(const void* x, DataType type, std::int32_t* out, std::int64_t rows,
                   std::int64_t cols, void* workspace, LaunchStream stream);
std::size_t ArgMaxWorkspace(std::int64_t rows, std::int64_t cols);

/// As the graph's Advance.
struct AdvanceArgs {
  std::int32_t* log = nullptr;  ///< (log_rows, sequences)
  const std::int32_t* tokens = nullptr;
  const void* logits = nullptr;  ///< (sequences, vocab); null: a token is -1 where its logit is NaN
  DataType logits_type = DataType::kNull;
  std::int32_t *ids = nullptr, *positions = nullptr, *slots = nullptr, *lengths = nullptr;
  const std::int32_t* table = nullptr;  ///< (sequences, blocks)
  std::int32_t* other_slots = nullptr;  ///< null: there are none
  const std::int32_t* other_table = nullptr;
  std::int64_t log_rows = 0, sequences = 0, vocab = 0, blocks = 0, other_blocks = 0;
  int block_size = 0;
};
cudaError_t Advance(const AdvanceArgs& args, LaunchStream stream);

/// A token of each row, drawn as the graph's Sample says (sample.cu). Eight launches, most of which
/// do nothing for rows without top_k and top_p. Logits: float32 or bfloat16.
struct SampleArgs {
  const void* logits = nullptr;  ///< (rows, cols)
  DataType type = DataType::kNull;
  const std::int32_t* options = nullptr;  ///< (rows) SamplingRows
  const std::int32_t* draws = nullptr;    ///< (rows)
  std::uint32_t first_draw = 0;           ///< added to them
  std::int32_t* out = nullptr;            ///< (rows)
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  void* workspace = nullptr;  ///< SampleWorkspace bytes, aligned to 256
};
cudaError_t Sample(const SampleArgs& args, LaunchStream stream);
std::size_t SampleWorkspace(std::int64_t rows, std::int64_t cols);

/// E4M3 with one FP32 scale for 128 elements of a row, as culet/quantize.h. `scales`: (rows,
/// ceil(cols / 128)).
cudaError_t QuantizeRows(const void* x, DataType type, std::int64_t rows, std::int64_t cols,
                         std::uint8_t* values, float* scales, LaunchStream stream,
                         const ReadNext& next = {});

/// The same with one scale a row, `given` where that is above 0: then quotients beyond 448 become
/// 448, and what is not finite a NaN. `scales`: (rows) (quantize_whole_rows.cu).
cudaError_t QuantizeWholeRows(const void* x, DataType type, std::int64_t rows, std::int64_t cols,
                              float given, std::uint8_t* values, float* scales,
                              LaunchStream stream);

// -- Rotary embedding (rope.cu) -------------------------------------------------------------------

/// In place on `rows` rows of `heads` heads.
struct RopeArgs {
  void* x = nullptr;
  DataType type = DataType::kNull;
  const std::int32_t* positions = nullptr;
  const double* turns = nullptr;  ///< frequencies over 2 pi, dims / 2 of them
  RopeLayout layout = RopeLayout::kNeox;
  float attention_factor = 1;
  int half = 0;   ///< dims / 2
  int first = 0;  ///< elements of a head before those that turn
  int heads = 0;
  int head_dim = 0;
  std::int64_t rows = 0;
};
cudaError_t Rope(const RopeArgs& args, LaunchStream stream);

// -- Products of heads (head_mul_mat.cu) ----------------------------------------------------------

/// As the graph's HeadMulMat: weight (heads * sums, k) of float32, float16 or bfloat16, x (rows,
/// heads * in), out (rows, heads * (sums + in - k)).
struct HeadMulMatArgs {
  const void* x = nullptr;
  DataType x_type = DataType::kNull;
  const void* weight = nullptr;
  DataType weight_type = DataType::kNull;
  void* out = nullptr;
  DataType out_type = DataType::kNull;
  std::int64_t rows = 0, heads = 0, in = 0, sums = 0, k = 0;
};
cudaError_t HeadMulMat(const HeadMulMatArgs& args, LaunchStream stream);

// -- Linear attention (linear_attention.cu) -------------------------------------------------------

/// Elements [first, first + count) of each of `heads` heads of `size`, of all rows together.
struct HeadSliceArgs {
  const void* x = nullptr;
  DataType type = DataType::kNull;
  void* out = nullptr;
  std::int64_t heads = 0, size = 0, first = 0, count = 0;
};
cudaError_t HeadSlice(const HeadSliceArgs& args, LaunchStream stream);

/// As the graph's CausalConv; weight: float32, float16 or bfloat16.
struct CausalConvArgs {
  StateRows states;
  const void* x = nullptr;  ///< (tokens, in)
  DataType x_type = DataType::kNull;
  const void* weight = nullptr;  ///< (cols, taps)
  DataType weight_type = DataType::kNull;
  void* out = nullptr;  ///< (tokens, cols)
  DataType out_type = DataType::kNull;
  std::int64_t in = 0, cols = 0;
  int taps = 0;  ///< at most kMostTaps
  int key_heads = 0, key_dim = 0;
};
inline constexpr int kMostTaps = 8;
cudaError_t CausalConv(const CausalConvArgs& args, LaunchStream stream);

/// As the graph's GatedDelta; decays and bias: float32, float16 or bfloat16.
struct GatedDeltaArgs {
  StateRows states;
  const void* x = nullptr;
  DataType x_type = DataType::kNull;
  const void* gates = nullptr;
  DataType gates_type = DataType::kNull;  ///< float32 or bfloat16
  const void* decays = nullptr;
  DataType decays_type = DataType::kNull;
  const void* bias = nullptr;
  DataType bias_type = DataType::kNull;
  float epsilon = 0;
  void* out = nullptr;
  DataType out_type = DataType::kNull;
  int key_heads = 0, value_heads = 0;
  int key_dim = 0;  ///< at most kMostDeltaKey
  int value_dim = 0;
};
inline constexpr int kMostDeltaKey = 256;
cudaError_t GatedDelta(const GatedDeltaArgs& args, LaunchStream stream);

// -- Routed experts (experts.cu) ------------------------------------------------------------------

inline constexpr int kMostGroups = 32;  ///< that a Route's experts may be in

/// Shares and routes, as a graph's Route makes them.
struct RouteArgs {
  const void* logits = nullptr;  ///< (rows, experts)
  DataType type = DataType::kNull;
  const void* bias = nullptr;  ///< (experts), or null
  DataType bias_type = DataType::kNull;
  RoutingParams routing;
  /// Without a bias and sums of scores, what orders logits orders scores.
  bool by_logits = true;
  float* shares = nullptr;         ///< (rows, active)
  std::int32_t* starts = nullptr;  ///< (experts + 1)
  std::int32_t* routes = nullptr;  ///< (rows * active)
  std::int32_t* places = nullptr;  ///< (rows * active)
  std::int32_t* ids = nullptr;     ///< (rows, active), scratch memory
  std::int64_t rows = 0;
  int experts = 0;
};
cudaError_t Route(const RouteArgs& args, LaunchStream stream);

/// The weight (n, k) of one expert on the device, with scales where it is E4M3 or codes.
struct ExpertWeight {
  const void* data = nullptr;
  const void* scales = nullptr;  ///< of E4M3 float32
  const void* bias = nullptr;
  const void* zeros = nullptr;
};

/// The product of a graph's ExpertMulMat. Inputs are float32 or bfloat16; E4M3 with scales where
/// the weights are E4M3.
struct ExpertProductArgs {
  const ExpertWeight* weights = nullptr;  ///< (experts), on the device
  DataType weight_type = DataType::kNull, bias_type = DataType::kNull;
  DataType scales_type = DataType::kNull, zeros_type = DataType::kNull;  ///< of codes
  std::int64_t group_n = 1,
               group_k = 1;  ///< of weights with a scale; group_k: k, or a multiple of 8
  const void* x = nullptr;   ///< (rows, k), or of each token
  DataType x_type = DataType::kNull;
  const float* x_scales = nullptr;
  std::int64_t x_group = 1;              ///< elements of a row with a scale, as group_k
  const std::int32_t* starts = nullptr;  ///< (experts + 1), of routes; other rows stay as they are
  const std::int32_t* routes = nullptr;
  const float* shares = nullptr;  ///< that rows are multiplied by; null: all are 1
  int active = 0;                 ///< above 0: row `route / active` of x; 0: in order
  void* out = nullptr;            ///< (rows, n)
  DataType out_type = DataType::kNull;
  std::int64_t rows = 0, n = 0, k = 0;
  int experts = 0;
  bool wide = false;  ///< rows of x and of weights are whole aligned vectors
};
cudaError_t ExpertProduct(const ExpertProductArgs& args, LaunchStream stream);

/// The sums of rows that a graph's Combine makes.
struct CombineArgs {
  const void* x = nullptr;  ///< (rows * active, cols)
  DataType x_type = DataType::kNull;
  const float* shares = nullptr;         ///< (rows, active); null: all are 1
  const std::int32_t* places = nullptr;  ///< (rows, active): where a row of x lies
  /// Rows of x from *first to *end count, others are not read; null: all.
  const std::int32_t *first = nullptr, *end = nullptr;
  void* out = nullptr;  ///< (rows, cols)
  DataType out_type = DataType::kNull;
  std::int64_t rows = 0, active = 0, cols = 0;
  /// Shares and places were there before the preceding kernel could begin.
  bool early = false;
};
cudaError_t Combine(const CombineArgs& args, LaunchStream stream);

// -- Attention (attention.cu) ---------------------------------------------------------------------

/// How the keys of a query are split among blocks: evenly into `even` splits of at least `least`
/// keys; where that leaves more than `fine` keys a split, into up to `most` of at least `fine`.
/// `cluster` splits, a power of two, are a cluster, whose blocks merge what they found in shared
/// memory; few keys go to one cluster. 1 <= even <= most <= kMostSplits, a multiple of cluster.
/// `stages`: tiles of keys that a decoding warp has in shared memory, 2 or 3. `ahead`: splits whose
/// blocks fit beside the previous launch's; they prefetch the keys of the others into L2. 0: no
/// prefetch.
struct AttentionSplits {
  int most = 1, even = 1, least = 64, fine = 1 << 30;
  int cluster = 1, stages = 2, ahead = 0;
};
inline constexpr int kMostSplits = 64;
inline constexpr int kSplitStep = 64;             ///< keys of a split are a multiple
inline constexpr int kKeysNear = 2 * kSplitStep;  ///< of each block, that go to one cluster

/// The kernel for few keys (attention_near.cuh): keys of a warp, and at most so many warps of a
/// block and query heads of a key-value head.
inline constexpr int kKeysOfWarp = 16, kMostNearWarps = 8, kMostNearHeads = 6;

/// What is launched for an attention node, from its shapes alone: lengths are the device's.
struct AttentionPlan {
  /// Queries, weights and products are of the cache's type, of E4M3 float16, on tensor cores.
  bool tensor_cores = false;
  /// The decoding kernel takes the rows that are alone in their sequence, tiles the others.
  bool units_are_sequences = false;
  bool has_decode = false, has_tiles = false;
  /// Values are parts of the keys: without tensor_cores split as `lanes` says, else as `tiles`.
  bool latent = false;
  int latent_queries = 0;  ///< of a tile: 16, 32, or 64 with wgmma
  bool wgmma = false;      ///< tiles are those of Hopper's warpgroup products
  int wgmma_blocks = 0;    ///< that take all tiles in turn: what the device holds at once
  int near_warps = 0;      ///< warps of a block of the kernel for few keys; 0: another kernel
  AttentionSplits lanes, decode, tiles;
  std::size_t workspace_bytes = 0;
  std::size_t state_bytes = 0;  ///< of counters: zero before the first launch
};

/// As the graph's Attention; null pointers: inputs that the node does not have. q, out: float32 or
/// bfloat16; K and V: float16 and, with scales, float8_e4m3, too. Heads of at most kMostHeadDim
/// elements; with a value_dim keys of kMostLatentKey, values of kMostLatentValue, and no
/// float8_e4m3. Up to two launches.
struct AttentionArgs {
  AttentionParams params;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  DataType q_type = DataType::kNull;
  DataType kv_type = DataType::kNull;
  DataType out_type = DataType::kNull;
  const float* k_scales = nullptr;  ///< (kv_heads), of float8_e4m3
  const float* v_scales = nullptr;
  const void* sinks = nullptr;  ///< (heads) of sinks_type, or null
  DataType sinks_type = DataType::kNull;
  bool wide = false;                        ///< set by Attention: rows of K and V in whole vectors
  int width = 0;                            ///< set by Attention: params.out_dim()
  int blocks = 0;                           ///< set by Attention: of the cache
  std::uint32_t per_block = 0;              ///< set by Attention: 2^32 / params.block_size
  float log2_scale = 0;                     ///< set by Attention: params.scale times log2 e
  float log2_cap = 0;                       ///< set by Attention: params.softcap times log2 e
  const std::int32_t* starts = nullptr;     ///< (sequences + 1)
  const std::int32_t* positions = nullptr;  ///< (rows)
  const std::int32_t* lengths = nullptr;    ///< (sequences)
  const std::int32_t* table = nullptr;      ///< (sequences, table_cols)
  std::int64_t rows = 0;
  std::int64_t sequences = 0;
  std::int64_t table_cols = 0;
  std::int64_t key_rows = 0;  ///< of K and V
  /// Decoding may begin while the kernels before it still run: they write nothing that it reads but
  /// its queries and, in a paged cache, the key and value at each row's own position.
  bool early = false;
  AttentionPlan plan;
  void* workspace = nullptr;     ///< plan.workspace_bytes, aligned to 16
  unsigned* counters = nullptr;  ///< plan.state_bytes; launches leave zeros
};
inline constexpr int kMostHeadDim = 256;
inline constexpr int kMostLatentKey = 576, kMostLatentValue = 512;
cudaError_t Attention(const AttentionArgs& args, LaunchStream stream);

struct AttentionShape {
  AttentionParams params;
  DataType kv_type = DataType::kNull;
  std::int64_t rows = 0;
  std::int64_t sequences = 1;
  std::int64_t most_keys = 0;  ///< that a row can see
  /// q and out are bfloat16, and what turns q and k turns them by halves of the whole head.
  bool near = false;
};
/// `exact`: FP32 throughout, as for caches of float32. `clusters`: whether kernels for the current
/// device have them, as they have CanOverlap. `wgmma`: CanMultiplyWarpgroups.
AttentionPlan PlanAttention(const AttentionShape& shape, bool exact, int multiprocessors,
                            bool clusters, bool wgmma);
/// Whether the current device has Hopper's warpgroup products: compute capability 9.0.
bool CanMultiplyWarpgroups();
/// Allows the plan's kernels the shared memory that they need; once for a device.
cudaError_t PrepareAttention(const AttentionShape& shape, const AttentionPlan& plan);

}  // namespace culet::cuda_ops
