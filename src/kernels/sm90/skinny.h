// What the host knows of the skinny kernels for Hopper: up to 8 tokens, weights by cp.async into a
// ring of each warp's own. A warp multiplies 8 to 64 rows of the weights (mma's M) by the tokens
// (its N); warps of a CTA share rows and split K. Everything counts bytes of K, so that one host
// side serves all formats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "culet/layout/host_device.h"
#include "kernels/sm90/block_scaled.h"
#include "kernels/sm90/epilogue.h"
#include "kernels/sm90/policy.h"

namespace culet::sm90 {

/// The kernel's one argument. Strides of scales are in elements, so either order is served; a, b
/// and k are in bytes.
struct SkinnyParams {
  const std::uint8_t* a = nullptr;
  const std::uint8_t* b = nullptr;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  void* d = nullptr;
  int lda = 0, ldb = 0;  ///< bytes
  std::int64_t ldd = 0;
  int scale_a_row = 0;
  int scale_a_block = 0;
  int scale_b_column = 0;
  int scale_b_block = 0;
  int m = 0;
  int n = 0;
  int k = 0;            ///< bytes
  int blocks_each = 0;  ///< k-blocks of 128 bytes a warp takes; the first `blocks_rest` one more
  int blocks_rest = 0;
  int slot_bytes = 0;       ///< of a k-block in shared memory
  float alpha = 1.0f;       ///< of a plain epilogue
  int early_weights = 0;    ///< 1: the kernel before writes neither the weights nor their scales
  int early_next = 0;       ///< 1: the next kernel may begin before this one's turn
  int rehearse = 0;         ///< 1: there is a slot of nobody's behind the rings, see the kernel
  EpilogueParams epilogue;  ///< of a general one
};

/// Whether D is alpha times the sums.
CULET_HOST_DEVICE constexpr bool IsPlain(const EpilogueParams& e) {
  return e.scale_a == nullptr && e.scale_b == nullptr && e.bias == nullptr && e.beta == 0.0f;
}

/// What a fused launch computes beside its product.
enum class SkinnyFusion : std::int8_t {
  kNone,       ///< nothing
  kNorm,       ///< before it: the norm of a value, or of the sum of two, which becomes A
  kNormGated,  ///< the same, and behind it SwiGLU of the halves of B's columns
};

inline constexpr int kSkinnyTokens = 8;        ///< rows of A, at most
inline constexpr int kSkinnyMaxThreads = 512;  ///< of a CTA

/// An instance of the kernel, as a list of them says it.
struct SkinnyInstance {
  int rows;       ///< of weights, a warp's: 8, or a multiple of 16
  int depth;      ///< k-blocks a warp has in flight
  int registers;  ///< a thread's, as ptxas reports them
};

/// One compiled kernel.
struct SkinnyKernel {
  SkinnyInstance instance;
  const void* function;
  const void* held;  ///< for launches that hold all of their weights (skinny_held.cuh), or null
  const FormatInfo* format;
  EpilogueKind epilogue;
  OutputType output;  ///< of a plain epilogue; others have D's type at run time
  SkinnyFusion fusion;
  int ring_bytes;  ///< of shared memory: a k-block's in a warp's ring, activations left out

  /// The stable id: sm90_<format>_skinny/<rows of weights a warp>x<tokens>x<k-blocks in flight>,
  /// then f32 where D is F32.
  std::string Id() const;
  constexpr int rows() const { return instance.rows; }
  constexpr int depth() const { return instance.depth; }
  constexpr int registers() const { return instance.registers; }
  /// Bytes of an element of D, by a guess where its type is known at run time.
  constexpr int output_bytes() const { return output == OutputType::kF32 ? 4 : 2; }
  /// Elements of K in a k-block.
  constexpr int block_k() const { return kBlockBytes / format->element_bytes; }
  /// A k-block's with `m` tokens, whose activations lie in the ring where no norm makes them.
  constexpr int SlotBytes(int m) const {
    return ring_bytes + (fusion == SkinnyFusion::kNone ? m * kBlockBytes : 0);
  }
  constexpr int WarpBytes(int m) const { return depth() * SlotBytes(m); }
  constexpr int SmemBytes(int warps, int m, bool rehearse) const {
    return warps * WarpBytes(m) + (rehearse ? SlotBytes(m) : 0);
  }
};

/// All kernels of the family.
std::span<const SkinnyKernel> SkinnyKernels();

struct SkinnyLaunch {
  const SkinnyKernel* kernel = nullptr;
  SkinnyParams params;
  int ctas = 0;
  int splits = 1;      ///< warps along K ...
  int row_groups = 1;  ///< ... and along rows, of a CTA
  int smem_bytes = 0;
  bool holds = false;  ///< see SkinnyHolds

  /// The kernel that it runs, with the operands that it has now.
  const void* Function() const;
};

/// Whether each of `splits` warps along K has as many k-blocks as it holds, and has asked for all
/// of them when its turn comes.
bool SkinnyHolds(const SkinnyKernel& kernel, const BlockScaledProblem& problem, int splits);

/// The most warps that can share K: each has a k-block.
int SkinnyMaxSplits(const SkinnyKernel& kernel, int k);

/// Groups of rows that a CTA takes when `splits` warps share each.
int SkinnyRowGroups(int splits);

/// Everything but the stream, made once. False when the shape or `splits` does not fit. Operands
/// as BlockScaledProblem says, and k a multiple of 16 bytes.
bool PlanSkinny(const SkinnyKernel& kernel, const BlockScaledProblem& problem, int splits,
                SkinnyLaunch* launch);

/// Puts other operands of the plan's shapes and alignments into it.
void RebindSkinny(const GemmOperands& operands, SkinnyLaunch* launch);

/// Whether a CTA of so many warps rehearses: not under programmatic dependent launch, where time
/// passes before the activations and where memory of nobody's keeps the next kernel out.
bool SkinnyRehearses(const SkinnyKernel& kernel, int warps, int m, bool pdl);

/// CTAs of so many warps that a multiprocessor holds.
int SkinnyResidentCtas(const SkinnyKernel& kernel, int warps, int m, bool pdl);

/// Loads the kernel on the current device and raises its shared-memory limit; not during a capture.
cudaError_t LoadSkinny(const SkinnyKernel& kernel);

/// A programmatic dependent launch where the plan says early_weights.
cudaError_t LaunchSkinny(const SkinnyLaunch& launch, cudaStream_t stream);

}  // namespace culet::sm90
