// Products on tensor cores of any generation from Ampere on, through mma.sync. Tiles of A and B are
// rows of 128 bytes along K in shared memory, copied ahead over several stages; E4M3 is widened to
// F16, which holds every E4M3 value, on the way to the registers. Sums of scaled products are
// promoted with their scales every 128 of K.
#include "culet/layout/tma_swizzle.h"
#include "kernels/cuda/any_shape.h"
#include "kernels/cuda/any_shape_finish.cuh"

namespace culet::any_shape {
namespace {

constexpr int kRowBytes = 128;  // of an operand's row in a stage
constexpr int kRowChunks = 8;   // of 16 bytes

struct E4m3 {
  static constexpr DataType kType = DataType::kFloat8_e4m3;
  using Storage = std::uint8_t;
};
struct F16 {
  static constexpr DataType kType = DataType::kFloat16;
  using Storage = std::uint16_t;
};
struct Bf16 {
  static constexpr DataType kType = DataType::kBfloat16;
  using Storage = std::uint16_t;
};

/// A CTA computes kM x kN sums with warps of kWarpM x kWarpN and kStages of copies in flight; kCtas
/// of them share a multiprocessor where its shared memory allows.
template <class Element_, int kM_, int kN_, int kWarpM_, int kWarpN_, int kStages_, int kCtas_>
struct Config {
  using Element = Element_;
  using Storage = typename Element::Storage;
  static constexpr int kSize = sizeof(Storage);
  static constexpr bool kScaled = kSize == 1;
  static constexpr int kM = kM_, kN = kN_, kWarpM = kWarpM_, kWarpN = kWarpN_, kStages = kStages_;
  static constexpr int kCtas = kCtas_;
  static constexpr int kK = kRowBytes / kSize;
  static constexpr int kWarpsN = kN / kWarpN;
  static constexpr int kThreads = kM / kWarpM * kWarpsN * 32;
  /// A warp's sums take half of the registers: loops around them are not unrolled.
  static constexpr bool kLarge = kWarpM * kWarpN > 64 * 32;
  static constexpr int kScaleBytes = kScaled ? (kM + kN) * 4 : 0;
  static constexpr int kStageBytes = (kM + kN) * kRowBytes + kScaleBytes;
  static constexpr int kSmemBytes = kStages * kStageBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0);
  static_assert(FinishBytes(kM, kN) <= kSmemBytes);
  static_assert(kSmemBytes <= 99 * 1024, "what a CTA may have on compute capability 8.6 and 12.0");
};

/// Byte offset of a chunk in a tile, as TMA would put it: the chunks of eight rows lie on different
/// banks.
__device__ __forceinline__ int ChunkOffset(int row, int chunk) {
  static_assert(kRowBytes == 128);
  return static_cast<int>(
      TmaOffset128(static_cast<unsigned>(row), static_cast<unsigned>(chunk) * 16));
}

// PTX ISA, cp.async: copies `bytes` and fills up with zeros; with 0 it reads nothing.
__device__ __forceinline__ void CopyAsync16(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CopyAsync4(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// PTX ISA, ldmatrix: four 8 x 8 matrices of 16 bits; lane l gives the address of row l % 8 of l
// / 8.
__device__ __forceinline__ void LoadMatrices(std::uint32_t from, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// PTX ISA, mma.m16n8k16 with FP32 sums.
template <class Element>
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const std::uint32_t (&a)[4],
                                            std::uint32_t b0, std::uint32_t b1) {
  if constexpr (Element::kType == DataType::kBfloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Four E4M3 as two pairs of F16, exactly.
__device__ __forceinline__ void Widen(std::uint32_t four, std::uint32_t& low, std::uint32_t& high) {
#if __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
#else
  // The fields in F16's places are 2^-8 of the value, subnormal ones included.
  const auto pair = [](std::uint32_t bytes, std::uint32_t nan) {
    const std::uint32_t placed = (bytes & 0x80008000u) | (bytes & 0x7F007F00u) >> 1;
    const std::uint32_t scale = 0x5C005C00u;  // 2^8
    std::uint32_t wide;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(wide) : "r"(placed), "r"(scale));
    return wide | nan;
  };
  // E4M3's NaN is all ones below the sign, where F16 has a number.
  std::uint32_t nan_low = 0, nan_high = 0;
  if ((((four & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u) != 0) {
    const auto nan = [four](int byte) {
      return (four >> 8 * byte & 0x7Fu) == 0x7Fu ? 0x7FFFu : 0u;
    };
    nan_low = nan(0) | nan(1) << 16;
    nan_high = nan(2) | nan(3) << 16;
  }
  low = pair(__byte_perm(four, 0, 0x1404), nan_low);
  high = pair(__byte_perm(four, 0, 0x3424), nan_high);
#endif
}

/// A tile of one operand: `rows` and `k_left` are what there is from (row0, k0) on.
struct Window {
  int row0, rows;
  int k0, k_left;
};

// A word of consecutive elements along K, from anywhere; zeros where there is no element.
template <class C>
__device__ __forceinline__ std::uint32_t GatherWord(const Operand& operand, const Window& window,
                                                    int row, int k) {
  constexpr int kElements = 4 / C::kSize;
  const auto* from = static_cast<const typename C::Storage*>(operand.data) +
                     (window.row0 + static_cast<std::int64_t>(row)) * operand.row_stride +
                     (window.k0 + static_cast<std::int64_t>(k)) * operand.k_stride;
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (row < window.rows && k + i < window.k_left) {
      word |= static_cast<std::uint32_t>(from[i * operand.k_stride]) << (i * 8 * C::kSize);
    }
  }
  return word;
}

// One tile of an operand, tile_rows x 128 bytes, into a stage: asynchronously where its alignment
// allows, else through registers.
template <class C>
__device__ __forceinline__ void CopyTile(const Operand& operand, const Window& window,
                                         int tile_rows, std::uint8_t* to) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto to_shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const std::int64_t pitch = operand.row_stride * C::kSize;
  const char* from = static_cast<const char*>(operand.data) + window.row0 * pitch +
                     static_cast<std::int64_t>(window.k0) * C::kSize;
  const int left = min(window.k_left, C::kK) * C::kSize;  // bytes of a row
  if (operand.copy_bytes == 16) {
    constexpr int kStep = C::kThreads / kRowChunks;  // rows that all threads copy at a time
    static_assert(kStep % kRowChunks == 0, "a thread's chunk lies at the same place in its rows");
    const int chunk = thread % kRowChunks;
    const int bytes = min(max(left - chunk * 16, 0), 16);
    int row = thread / kRowChunks;
    from += row * pitch + chunk * 16;
#pragma unroll 4
    for (std::uint32_t at = to_shared + ChunkOffset(row, chunk); row < tile_rows;
         row += kStep, at += kStep * kRowBytes, from += kStep * pitch) {
      CopyAsync16(at, from, row < window.rows ? bytes : 0);
    }
  } else if (operand.copy_bytes == 4) {
    const int word = thread % 32;
    const int bytes = min(max(left - word * 4, 0), 4);
    from += word * 4;
#pragma unroll 2
    for (int row = thread / 32; row < tile_rows; row += C::kThreads / 32) {
      CopyAsync4(to_shared + ChunkOffset(row, word / 4) + word % 4 * 4, from + row * pitch,
                 row < window.rows ? bytes : 0);
    }
  } else {
    // Neighbouring threads take neighbouring elements: along K, or along the rows.
    const bool along_k = operand.k_stride == 1;
#pragma unroll C::kLarge ? 1 : 4
    for (int i = thread; i < tile_rows * kRowBytes / 4; i += C::kThreads) {
      const int row = along_k ? i / 32 : i % tile_rows, word = along_k ? i % 32 : i / tile_rows;
      *reinterpret_cast<std::uint32_t*>(to + ChunkOffset(row, word / 4) + word % 4 * 4) =
          GatherWord<C>(operand, window, row, word * 4 / C::kSize);
    }
  }
}

// The scales of a tile's rows for one k-tile, which lies in one group along K.
template <class C>
__device__ __forceinline__ void CopyScales(const Operand& operand, const Window& window,
                                           int tile_rows, float* to) {
  const auto* from = static_cast<const float*>(operand.scales) +
                     window.k0 / operand.group_k * operand.scale_k_stride;
  for (int row = static_cast<int>(threadIdx.x); row < tile_rows; row += C::kThreads) {
    if (operand.scales == nullptr) {
      to[row] = 1.0f;
      continue;
    }
    const bool there = row < window.rows;
    const int group = there ? (window.row0 + row) / operand.group_rows : 0;
    CopyAsync4(static_cast<std::uint32_t>(__cvta_generic_to_shared(to + row)),
               from + group * operand.scale_row_stride, there ? 4 : 0);
  }
}

/// A stage of shared memory: rows of A, rows of B, their scales.
template <class C>
struct Stage {
  std::uint8_t* rows;
  __device__ __forceinline__ Stage(std::uint8_t* smem, int index)
      : rows(smem + index * C::kStageBytes) {}
  __device__ __forceinline__ const std::uint8_t* a() const { return rows; }
  __device__ __forceinline__ const std::uint8_t* b() const { return rows + C::kM * kRowBytes; }
  __device__ __forceinline__ float* scales() const {
    return reinterpret_cast<float*>(rows + (C::kM + C::kN) * kRowBytes);
  }
};

template <class C>
__device__ __forceinline__ void FillStage(const Problem& p, const WorkOrder::Position& at,
                                          int k_tile, const Stage<C>& stage) {
  const int k0 = k_tile * C::kK;
  // One piece of code for both operands.
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const Operand& operand = p.operands[side];
    const int tile_rows = side == 0 ? C::kM : C::kN;
    const int row0 = side == 0 ? at.tile_m * C::kM : at.tile_n * C::kN;
    const Window window{row0, (side == 0 ? p.m : p.n) - row0, k0, p.k - k0};
    CopyTile<C>(operand, window, tile_rows, stage.rows + side * (C::kM * kRowBytes));
    if constexpr (C::kScaled) {
      CopyScales<C>(operand, window, tile_rows, stage.scales() + side * C::kM);
    }
  }
}

/// A warp's sums: c[i][j] is the m16n8 block at (16 i, 8 j). Of a block, lane l holds columns
/// 2 (l % 4) and + 1 of rows l / 4 (elements 0 and 1) and l / 4 + 8 (2 and 3).
template <class C>
struct Sums {
  static constexpr int kBlocksM = C::kWarpM / 16, kBlocksN = C::kWarpN / 8;
  static constexpr int kCount = kBlocksM * kBlocksN * 4;
  float c[kBlocksM][kBlocksN][4];
};

// The product of a stage's tiles, 32 bytes of K at a time. E4M3 has k in another order within each
// 16 than mma's registers have, the same for A and B.
template <class C>
__device__ __forceinline__ void MultiplyStage(const Stage<C>& stage, int warp_row, int warp_col,
                                              Sums<C>& sums) {
  constexpr int kBlocksM = Sums<C>::kBlocksM, kBlocksN = Sums<C>::kBlocksN;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto a = static_cast<std::uint32_t>(__cvta_generic_to_shared(stage.a()));
  const auto b = static_cast<std::uint32_t>(__cvta_generic_to_shared(stage.b()));
#pragma unroll C::kLarge ? 1 : kRowChunks / 2
  for (int pair = 0; pair < kRowChunks / 2; ++pair) {
    // raw_a: rows 0 to 7 and 8 to 15 of the first chunk, then of the second.
    std::uint32_t raw_a[kBlocksM][4];
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) {
      LoadMatrices(a + ChunkOffset(warp_row + 16 * i + lane % 16, 2 * pair + lane / 16), raw_a[i]);
    }
    // raw_b: both chunks of rows 0 to 7, then of rows 8 to 15.
    std::uint32_t raw_b[kBlocksN / 2][4];
#pragma unroll
    for (int j = 0; j < kBlocksN / 2; ++j) {
      LoadMatrices(
          b + ChunkOffset(warp_col + 16 * j + lane / 16 * 8 + lane % 8, 2 * pair + lane / 8 % 2),
          raw_b[j]);
    }
    if constexpr (C::kSize == 2) {
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) {
          MultiplyAdd<typename C::Element>(sums.c[i][j], raw_a[i], raw_b[j / 2][j % 2 * 2],
                                           raw_b[j / 2][j % 2 * 2 + 1]);
        }
      }
    } else {
#pragma unroll
      for (int chunk = 0; chunk < 2; ++chunk) {
        std::uint32_t wide_a[kBlocksM][4];
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) {
          Widen(raw_a[i][2 * chunk], wide_a[i][0], wide_a[i][2]);
          Widen(raw_a[i][2 * chunk + 1], wide_a[i][1], wide_a[i][3]);
        }
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j) {
          std::uint32_t b0, b1;
          Widen(raw_b[j / 2][j % 2 * 2 + chunk], b0, b1);
#pragma unroll
          for (int i = 0; i < kBlocksM; ++i) {
            MultiplyAdd<typename C::Element>(sums.c[i][j], wide_a[i], b0, b1);
          }
        }
      }
    }
  }
}

// Moves a stage's sums to the totals, times the scales of rows and columns.
template <class C>
__device__ __forceinline__ void Promote(const Stage<C>& stage, int warp_row, int warp_col,
                                        Sums<C>& sums, Sums<C>& totals) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < Sums<C>::kBlocksN; ++j) {
    const float2 scale_b =
        *reinterpret_cast<const float2*>(stage.scales() + C::kM + warp_col + 8 * j + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < Sums<C>::kBlocksM; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float scale_a = stage.scales()[warp_row + 16 * i + lane / 4 + e / 2 * 8];
        const float scale = scale_a * (e % 2 == 0 ? scale_b.x : scale_b.y);
        totals.c[i][j][e] = fmaf(sums.c[i][j][e], scale, totals.c[i][j][e]);
        sums.c[i][j][e] = 0;
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtas)
    AnyShapeMma(const __grid_constant__ Problem p) {
  extern __shared__ __align__(128) std::uint8_t smem[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / C::kWarpsN * C::kWarpM, warp_col = warp % C::kWarpsN * C::kWarpN;
  const int k_tiles = (p.k - 1) / C::kK + 1;

  for (std::int64_t work = blockIdx.x; work < p.order.count(); work += gridDim.x) {
    const WorkOrder::Position at = p.order.At(work);
    const int begin = SplitBegin(k_tiles, p.order.splits, at.split);
    const int end = SplitBegin(k_tiles, p.order.splits, at.split + 1);

    Sums<C> totals{}, sums{};
    int filled = 0, full = 0;  // stages
    __syncthreads();           // the tile before is finished
#pragma unroll 1
    for (int ahead = begin; ahead < end + C::kStages - 1; ++ahead) {
      const int k_tile = ahead - (C::kStages - 1);
      if (k_tile >= begin) {
        AwaitCopies<C::kStages - 2>();
        __syncthreads();  // the stage to multiply is full, and the one to fill is read
      }
      if (ahead < end) FillStage<C>(p, at, ahead, Stage<C>(smem, filled));
      CommitCopies();
      filled = filled + 1 == C::kStages ? 0 : filled + 1;
      if (k_tile < begin) continue;
      const Stage<C> stage(smem, full);
      full = full + 1 == C::kStages ? 0 : full + 1;
      if constexpr (C::kScaled) {
        MultiplyStage(stage, warp_row, warp_col, sums);
        Promote(stage, warp_row, warp_col, sums, totals);
      } else {
        MultiplyStage(stage, warp_row, warp_col, totals);
      }
    }
    __syncthreads();  // all stages are read
    auto& flat = reinterpret_cast<float(&)[Sums<C>::kCount]>(totals.c);
    Finish<C::kThreads, C::kM, C::kN>(
        p, at, flat,
        [&](int i) {
          const int block_m = i / 4 / Sums<C>::kBlocksN, block_n = i / 4 % Sums<C>::kBlocksN;
          return make_int2(warp_row + 16 * block_m + lane / 4 + i % 4 / 2 * 8,
                           warp_col + 8 * block_n + lane % 4 * 2 + i % 2);
        },
        reinterpret_cast<float*>(smem));
  }
}

template <class C>
CompiledKernel Compiled(const char* id, int registers) {
  return {.id = id,
          .function = reinterpret_cast<const void*>(&AnyShapeMma<C>),
          .type = C::Element::kType,
          .tile_m = C::kM,
          .tile_n = C::kN,
          .tile_k = C::kK,
          .threads = C::kThreads,
          .stages = C::kStages,
          .smem_bytes = C::kSmemBytes,
          .ctas = C::kCtas,
          .registers = registers};
}

}  // namespace

std::span<const CompiledKernel> MmaKernels() {
  static const CompiledKernel kernels[] = {
      Compiled<Config<E4m3, 16, 64, 16, 16, 4, 5>>("e4m3/16x64", 96),
      Compiled<Config<E4m3, 64, 64, 32, 32, 3, 3>>("e4m3/64x64", 162),
      Compiled<Config<E4m3, 128, 128, 64, 32, 3, 1>>("e4m3/128x128", 250),
      Compiled<Config<F16, 16, 64, 16, 16, 4, 5>>("f16/16x64", 96),
      Compiled<Config<F16, 64, 64, 32, 32, 3, 3>>("f16/64x64", 140),
      Compiled<Config<F16, 128, 128, 64, 64, 3, 2>>("f16/128x128", 254),
      Compiled<Config<Bf16, 16, 64, 16, 16, 4, 5>>("bf16/16x64", 96),
      Compiled<Config<Bf16, 64, 64, 32, 32, 3, 3>>("bf16/64x64", 140),
      Compiled<Config<Bf16, 128, 128, 64, 64, 3, 2>>("bf16/128x128", 254),
  };
  return kernels;
}

}  // namespace culet::any_shape
