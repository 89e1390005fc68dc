// The host side of the skinny kernels for Hopper, for up to 8 tokens. Each warp loads weights by
// cp.async into a ring of its own. It multiplies 8 to 64 rows of weights (mma's M) by the tokens
// (mma's N). The warps of a CTA share rows and split K. Everything counts bytes of K, so one host
// side serves all formats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product_launch.h"

namespace culet::sm90 {

/// The kernel's one argument; a, b and k are in bytes.
struct SkinnyParams : ProductParams {
  const std::uint8_t* a = nullptr;
  const std::uint8_t* b = nullptr;
  int lda = 0, ldb = 0;
  int k = 0;
  int blocks_each = 0;  ///< k-blocks of 128 bytes of a warp; the first `blocks_rest` have one more
  int blocks_rest = 0;
  int slot_bytes = 0;     ///< of a k-block in shared memory
  int early_weights = 0;  ///< 1: the kernel before writes neither the weights nor their scales
  int early_next = 0;     ///< 1: the next kernel may begin before this one's wait ends
  int rehearse = 0;       ///< 1: there is an unused slot behind the rings, see the kernel

  bool Bind(const GemmOperands& operands) {
    a = static_cast<const std::uint8_t*>(operands.a);
    return true;
  }
};

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
  const void* held;  ///< for launches whose weights all fit at once (skinny/held.cuh), or null
  const FormatInfo* format;
  EpilogueKind epilogue;
  OutputType output;  ///< of a plain epilogue; others have D's type at run time
  SkinnyFusion fusion;
  int ring_bytes;  ///< of shared memory for a k-block in a warp's ring, without activations

  /// The stable id: sm90_<format>_skinny/<rows of weights a warp>x<tokens>x<k-blocks in flight>,
  /// then f32 where D is F32.
  std::string Id() const;
  constexpr int rows() const { return instance.rows; }
  constexpr int depth() const { return instance.depth; }
  constexpr int registers() const { return instance.registers; }
  /// Bytes of an element of D. A guess if the type is known at run time only.
  constexpr int output_bytes() const { return output == OutputType::kF32 ? 4 : 2; }
  /// Elements of K in a k-block.
  constexpr int block_k() const { return kBlockBytes / format->element_bytes; }
  /// Bytes of a k-block with `m` tokens. Their activations lie in the ring unless a norm makes
  /// them.
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

/// Blocks of (32 threads, warps along K, groups of rows).
using SkinnyLaunch = ProductLaunch<SkinnyParams>;

/// Whether each of `splits` warps along K has as many k-blocks as its ring, so that all are loading
/// when its wait ends.
bool SkinnyHolds(const SkinnyKernel& kernel, const ProductProblem& problem, int splits);

/// The most warps that can split K: each needs a k-block.
int SkinnyMaxSplits(const SkinnyKernel& kernel, int k);

/// Groups of rows that a CTA takes when `splits` warps share each.
int SkinnyRowGroups(int splits);

/// Plans a launch, a dependent one where problem.pdl is set. False when the shape or `splits` does
/// not fit. Requires: operands as ProductProblem says, and k a multiple of 16 bytes.
bool PlanSkinny(const SkinnyKernel& kernel, const ProductProblem& problem, int splits,
                SkinnyLaunch* launch);

/// Whether a CTA of so many warps rehearses. Not under programmatic dependent launch: there is time
/// before the activations arrive, and the extra memory would keep the next kernel out.
bool SkinnyRehearses(const SkinnyKernel& kernel, int warps, int m, bool pdl);

/// CTAs of so many warps that a multiprocessor holds.
int SkinnyResidentCtas(const SkinnyKernel& kernel, int warps, int m, bool pdl);

}  // namespace culet::sm90
