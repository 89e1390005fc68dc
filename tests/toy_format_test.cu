// Compiled, never run: docs/adding-a-format.md's toy format, E5M2, in the large-M Hopper family and
// in the one for few tokens.
#include <span>

#include "kernels/sm90/instances/block.cuh"
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {

// The elements.
struct E5m2 {
  static constexpr int kBytes = 1;
  static constexpr int kBlockK = kBlockBytes / kBytes;
};

// One wgmma of 32 bytes of K and 64 columns: 32 sums a thread.
#define TOY_FOUR(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
template <>
struct Wgmma<E5m2, 64> {
  static constexpr int kRegisters = 32;
  template <bool kAccumulate>
  static __device__ __forceinline__ void Ss(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %34, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e5m2 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,"
        "%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, p, 1, 1;}"
        : TOY_FOUR(0), TOY_FOUR(4), TOY_FOUR(8), TOY_FOUR(12), TOY_FOUR(16), TOY_FOUR(20),
          TOY_FOUR(24), TOY_FOUR(28)
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0));
  }
};
#undef TOY_FOUR

// The policy: what kernels and host need to know.
struct ToyE5m2 {
  using Format = E5m2;
  static constexpr FormatInfo kInfo = {"e5m2", DataType::kNull, Format::kBytes, Sums::kDirect};
};

// The instances of the large-M family, with one tile.
std::span<const BlockKernel> ToyE5m2Blocks() {
  static const BlockKernel kernels[] = {
      MakeBlock<BlockConfig<BlockSchedule{.tile_m = 128, .tile_n = 64, .stages = 8}, ToyE5m2,
                            GeneralEpilogue>>(),
  };
  return kernels;
}

// Those for few tokens, with one tile.
struct ToyList {
  static constexpr SwapInstance kAll[] = {{{.tokens = 64, .min_ctas = 4}, 67, Hold(2, 3)}};
};
std::span<const SwapKernel> ToyE5m2Swap() {
  return SwapInstances<ToyE5m2, ToyList, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
