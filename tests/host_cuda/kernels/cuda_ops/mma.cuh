// See host_cuda.h: the instructions of src/kernels/cuda_ops/mma.cuh on the CPU, from their
// definitions in the PTX ISA.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace culet::cuda_ops {

inline char* DynamicShared() { return host_cuda::DynamicShared(); }

inline std::uint32_t SharedAddress(const void* shared) {
  return static_cast<std::uint32_t>(static_cast<const char*>(shared) - DynamicShared());
}

inline void CopyAsync16(std::uint32_t to, const void* from, int bytes) {
  host_cuda::CopyAsync(DynamicShared() + to, from, static_cast<std::size_t>(bytes), 16);
}
inline void CopyAsync4(std::uint32_t to, const void* from) {
  host_cuda::CopyAsync(DynamicShared() + to, from, 4, 4);
}
/// Reads what a prefetch would, so that sanitizers see where it reaches; what is not aligned stops.
inline void PrefetchBytes(const void* from, int bytes) {
  if (bytes <= 0 ||
      ((reinterpret_cast<std::uintptr_t>(from) | static_cast<unsigned>(bytes)) & 15) != 0)
    std::abort();
  volatile char last = static_cast<const char*>(from)[0];
  last = static_cast<const char*>(from)[bytes - 1];
  static_cast<void>(last);
}
inline void CommitCopies() { host_cuda::CommitCopies(); }
template <int kPending>
void AwaitCopies() {
  host_cuda::AwaitCopies(kPending);
}

using LaneWork = void* const (&)[32];

struct MatricesOfLane {
  const char* row;
  std::uint16_t got[4][2];
};

template <bool kTransposed>
void LoadMatricesOfWarp(LaneWork lanes) {
  const auto of = [&](int lane) { return static_cast<MatricesOfLane*>(lanes[lane]); };
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int i = 0; i < 2; ++i) {
        const int a = lane / 4, b = lane % 4 * 2 + i;
        const int row = kTransposed ? b : a, col = kTransposed ? a : b;
        std::memcpy(&of(lane)->got[matrix][i], of(matrix * 8 + row)->row + 2 * col, 2);
      }
    }
  }
}

template <bool kTransposed>
void LoadMatricesAt(std::uint32_t from, std::uint32_t (&to)[4]) {
  MatricesOfLane mine{DynamicShared() + from, {}};
  host_cuda::WorkOfWarp(&mine, &LoadMatricesOfWarp<kTransposed>);
  std::memcpy(to, mine.got, sizeof mine.got);
}
inline void LoadMatrices(std::uint32_t from, std::uint32_t (&to)[4]) {
  LoadMatricesAt<false>(from, to);
}
inline void LoadTransposed(std::uint32_t from, std::uint32_t (&to)[4]) {
  LoadMatricesAt<true>(from, to);
}

struct PairOfLane {
  std::uint16_t given[2], got[2];
};

inline void TransposeOfWarp(LaneWork lanes) {
  const auto of = [&](int lane) { return static_cast<PairOfLane*>(lanes[lane]); };
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2; ++i) {
      const int row = lane % 4 * 2 + i, col = lane / 4;
      of(lane)->got[i] = of(row * 4 + col / 2)->given[col % 2];
    }
  }
}

inline std::uint32_t Transposed(std::uint32_t pair) {
  PairOfLane mine;
  std::memcpy(mine.given, &pair, sizeof pair);
  host_cuda::WorkOfWarp(&mine, &TransposeOfWarp);
  std::memcpy(&pair, mine.got, sizeof pair);
  return pair;
}

struct ProductOfLane {
  float* c;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

inline float HalfOf(__nv_bfloat16 value) { return __bfloat162float(value); }
inline float HalfOf(__half value) { return __half2float(value); }

template <class T>
float PartOf(std::uint32_t pair, int i) {
  return HalfOf(T{static_cast<unsigned short>(pair >> (16 * i))});
}

// Most of what an emulated product computes. Its bounds are constants: no sanitizer needs to look.
[[gnu::noinline, gnu::no_sanitize_address]] inline void MultiplyTile(const float (&a)[16][16],
                                                                     const float (&b)[16][8],
                                                                     float (&c)[16][8]) {
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int col = 0; col < 8; ++col) c[row][col] += a[row][k] * b[k][col];
    }
  }
}

template <class T>
void MultiplyOfWarp(LaneWork lanes) {
  const auto of = [&](int lane) { return static_cast<ProductOfLane*>(lanes[lane]); };
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2; ++i) {
      const int row = lane / 4, col = lane % 4 * 2 + i;
      for (int part = 0; part < 4; ++part) {
        a[row + part % 2 * 8][col + part / 2 * 8] = PartOf<T>(of(lane)->a[part], i);
      }
      for (int part = 0; part < 2; ++part) {
        b[col + part * 8][row] = PartOf<T>(of(lane)->b[part], i);
      }
    }
  }
  const auto place_of = [](int lane, int i) {
    return std::pair(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, col] = place_of(lane, i);
      c[row][col] = of(lane)->c[i];
    }
  }
  MultiplyTile(a, b, c);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, col] = place_of(lane, i);
      of(lane)->c[i] = c[row][col];
    }
  }
}

template <class T>
void MultiplyAdd(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  ProductOfLane mine{c, a, {b0, b1}};
  host_cuda::WorkOfWarp(&mine, &MultiplyOfWarp<T>);
}

inline float FastExp2(float x) {
  const float y = std::exp2(x);
  return std::fpclassify(y) == FP_SUBNORMAL ? 0 : y;
}

}  // namespace culet::cuda_ops
