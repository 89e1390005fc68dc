// What the host knows of the small-M kernels for Hopper. They compute D^T = B A^T ("swap-AB"):
// 64-row blocks of the weights are wgmma's M, the tokens are its N, so that a token costs what it
// is worth, and K is split over the CTAs of a cluster. Everything counts bytes of K, so that one
// host side serves all formats.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product_launch.h"

namespace culet::sm90 {

/// How a CTA shares its tile of D^T among warpgroups and time.
struct SwapSchedule {
  int tokens;              ///< columns of D^T a CTA computes
  int row_groups = 1;      ///< consumer warpgroups along the weights' rows, 64 each ...
  int token_groups = 1;    ///< ... and along the tokens
  int product_tokens = 0;  ///< columns of one wgmma; 0: all of a warpgroup's
  /// Products that run in the tensor core at a time; of Sums::kDirect, stages.
  int depth = 2;
  int min_ctas = 1;      ///< CTAs that a multiprocessor must be able to hold
  int stage_blocks = 1;  ///< k-blocks of a stage of the ring
  /// 2: two warpgroups take the k-blocks of the same 64 rows and tokens in turn: one promotes while
  /// the other's product runs, and products stay wide, which read shared memory least.
  int turns = 1;

  constexpr int rows() const { return 64 * row_groups; }
  constexpr int warpgroups() const { return row_groups * token_groups * turns; }
};

/// CTAs of so many rows of weights whose 128 columns of D, pairs of rows, share a scale.
constexpr int SwapSharers(int rows) { return 256 / rows; }

inline constexpr int kSwapMaxStages = 16;
inline constexpr int kSwapMaxSplits = 8;  ///< the largest portable cluster

/// Where things lie in a CTA's shared memory, for host and device: the ring, then a tail that the
/// offsets below count from the ring's end. Stages and splits are chosen per launch.
struct SwapLayout {
  static constexpr int kScaleBlocks = 4;   ///< k-blocks whose scales come together
  static constexpr int kScaleBuffers = 4;  ///< such chunks in flight
  static constexpr int kBarriers = 2 * kSwapMaxStages + 2 * kScaleBuffers + 2;

  int stage_bytes;         ///< rows of weights, then of activations, one k-block after the other
  int weights_bytes;       ///< the weights' part of it
  int tile_bytes;          ///< what is stored in the end, in the ring's place
  int scale_stride;        ///< floats of a k-block's scales
  int factors;             ///< those of tokens, then of rows; then the bias's (GeneralEpilogue)
  int barriers;            ///< full, empty, scales_full, scales_empty, exchange_full, largest_full
  int largest;             ///< of each token the largest magnitude in each warp that shares its scale
  int exchange;            ///< sums from the other CTAs of the cluster
  int exchange_bytes_set;  ///< bytes for each group of 8 tokens from each of them
  int token_octets;        ///< groups of 8 tokens that a warpgroup sums

  static constexpr SwapLayout Make(const SwapSchedule& s, Sums sums, EpilogueKind epilogue) {
    SwapLayout l{};
    l.weights_bytes = s.rows() * kBlockBytes * s.stage_blocks;
    l.stage_bytes = l.weights_bytes + s.tokens * kBlockBytes * s.stage_blocks;
    const bool general = epilogue != EpilogueKind::kPlain;
    // A plain tile fits every stage, and pairs are stored from registers.
    l.tile_bytes = epilogue == EpilogueKind::kGeneral ? s.rows() * s.tokens * 4 : 0;
    // At least 16: the scales of two groups of 8 tokens lie together.
    l.scale_stride = sums == Sums::kBlockScaled ? std::max(s.tokens, 16) : 0;
    l.factors = kScaleBuffers * kScaleBlocks * l.scale_stride * 4;
    l.barriers = l.factors + (general ? 2 * (s.tokens + s.rows()) * 4 : 0);
    l.largest = l.barriers + kBarriers * 8;
    l.exchange = l.largest + (epilogue == EpilogueKind::kGatedQuant
                                  ? SwapSharers(s.rows()) * 4 * s.tokens * 4
                                  : 0);
    l.exchange_bytes_set = s.warpgroups() * 128 * 16;  // 4 sums of each consumer thread
    l.token_octets = s.tokens / s.token_groups / s.turns / 8;
    return l;
  }

  CULET_HOST_DEVICE constexpr int RingBytes(int stages) const {
    const int bytes = stages * stage_bytes;
    return tile_bytes <= stage_bytes || tile_bytes <= bytes ? bytes : tile_bytes;
  }
  constexpr int Total(int stages, int splits) const {
    const int slots = (token_octets + splits - 1) / splits;
    return RingBytes(stages) + exchange + (splits - 1) * slots * exchange_bytes_set;
  }
};

/// An instance of the kernel, as a list of them says it.
struct SwapInstance {
  SwapSchedule schedule;
  int registers;    ///< a thread's at the start, as ptxas reports them
  int residencies;  ///< from Hold
  /// Of the id, where rows, tokens and depth of a stage do not tell instances apart: "p32" where a
  /// product covers 32 tokens, "t2" where two warpgroups take turns, "f32" where D is F32.
  const char* suffix = "";
};

inline constexpr int kSwapMaxResidency = 4;  ///< CTAs a multiprocessor, at most

/// CTAs a multiprocessor that an instance is worth running with, as bits.
constexpr int Hold(auto... ctas) { return (0 | ... | (1 << ctas)); }

/// The kernel's one argument.
struct SwapParams : ProductParams {
  CUtensorMap weights;      ///< (k, n) bytes, box (128, rows of a CTA); see `sliced`
  CUtensorMap activations;  ///< (k, m) bytes, box (128, tokens of a CTA)
  /// The same with boxes of one k-block that end with the last row, for tiles that reach beyond the
  /// matrix: the copy engine takes longer to fill a row with zeros than to load one.
  CUtensorMap weights_rest, activations_rest;
  int k_blocks = 0;    ///< of 128 bytes
  int loads_each = 0;  ///< stages for each CTA of a cluster; the first `loads_rest` take one more
  int loads_rest = 0;
  int sliced = 0;  ///< 1: the maps are (128, rows, k / 128), and one box brings a stage's k-blocks
  int stages = 0;
  int early_weights = 0;  ///< 1: the kernel before writes neither the weights nor their scales

  bool Bind(const GemmOperands& operands);
};

/// One compiled kernel.
struct SwapKernel {
  SwapInstance instance;
  const void* function;
  const FormatInfo* format;
  SwapLayout layout;
  EpilogueKind epilogue;
  OutputType output;  ///< of a plain epilogue; others have D's type at run time
  int min_stages;     ///< unless a stage is used once
  int threads;

  /// The stable id with `residency` CTAs a multiprocessor: sm90_<format>_swap/<rows>x<tokens>x
  /// <elements of K in a stage><suffix>/r<residency>[/gated[_e4m3]].
  std::string Id(int residency) const;
  constexpr int tokens() const { return instance.schedule.tokens; }
  constexpr int rows() const { return instance.schedule.rows(); }
  /// CTAs that quantise together, of a cluster.
  constexpr int sharers() const {
    return epilogue == EpilogueKind::kGatedQuant ? SwapSharers(rows()) : 1;
  }
  constexpr int stage_blocks() const { return instance.schedule.stage_blocks; }
  /// Bytes of an element of D, by a guess where its type is known at run time.
  constexpr int output_bytes() const { return output == OutputType::kF32 ? 4 : 2; }
  /// Elements of K in a k-block, which is a row of an operand's tile.
  constexpr int block_k() const { return kBlockBytes / format->element_bytes; }
};

/// All kernels of the family, format by format.
std::span<const SwapKernel> SwapKernels();

/// A grid of (splits * sharers, tiles of tokens, tiles of rows, or as many rows as a scale has).
using SwapLaunch = ProductLaunch<SwapParams>;

/// Stages of the ring that fit beside `residency` CTAs a multiprocessor, at most the k-blocks there
/// are; 0 when the exchange of the sums alone is too large.
int SwapStages(const SwapKernel& kernel, int k_blocks, int splits, int residency);

/// CTAs with such a ring that a multiprocessor holds.
int SwapResidentCtas(const SwapKernel& kernel, int stages, int splits);

/// Whether `splits` and `residency` leave each CTA k-blocks and enough stages.
bool SwapFits(const SwapKernel& kernel, int k_blocks, int splits, int residency);

/// Plans a launch; a programmatic dependent one where problem.pdl is set. `splits` CTAs of a cluster share a tile along K;
/// `residency` is the number of CTAs a multiprocessor shall hold, which sets the stages. False when
/// the shape does not fit (SwapFits) or a tensor map cannot be made.
bool PlanSwap(const SwapKernel& kernel, const ProductProblem& problem, int splits,
              int residency, SwapLaunch* launch);

}  // namespace culet::sm90
