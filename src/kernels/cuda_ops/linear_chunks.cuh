// The gated delta rule in chunks of 64 tokens. With a token's key k and query q of length 1, its
// value v, its share b of what a key learns and G, the product of the chunk's decays up to it, a
// chunk that begins with state S gives
//   c = (1 + A)^-1 diag(b) (v - diag(G) k S)   A[t, i] = b[t] G[t] / G[i] k[t] k[i], i < t
//   out = diag(G) q S + P c                    P[t, i] = G[t] / G[i] q[t] k[i], i <= t
//   the next state = G[last] S + sum of G[last] / G[i] k[i] c[i]
// One kernel makes (1 + A)^-1 diag(b) and P of all chunks side by side. The other goes from chunk
// to chunk, a block for 32 columns of a head's state, which stays in registers in FP32. Products
// run on tensor cores; what is no BF16 is a sum of BF16 parts there: two beside BF16 inputs, 16
// bits, and three beside FP32 ones, 24 bits. No number of a chunk's row is without effect on
// the others, so a NaN or infinity may also reach earlier tokens of its chunk.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_ops/linear_attention.cuh"
#include "kernels/cuda_ops/linear_chunks.h"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/shared_rows.cuh"

namespace culet::cuda_ops::chunks {

inline constexpr int kChunk = kDeltaChunk, kThreads = 256, kColumns = 32;

/// BF16 parts of queries and keys, and of everything else.
template <class X>
inline constexpr int kPartsOfX = std::is_same_v<X, float> ? 3 : 1;
template <class X>
inline constexpr int kParts = std::is_same_v<X, float> ? 3 : 2;

template <int kKeys>
using KeyRows = SharedRows<2 * kKeys>;
using SquareRows = SharedRows<2 * kChunk>;
using ColumnRows = SharedRows<2 * kColumns>;

/// What PrepareChunks leaves of a chunk and a value head: the parts of (1 + A)^-1 diag(b) and of P,
/// row by row without what is above blocks of 16 on the diagonal, and factors of each token.
template <class X>
struct Prepared {
  static constexpr int kSquare = kChunk * SquareRows::kRow;
  static constexpr int kSolved = 0, kScores = kParts<X> * kSquare, kFactors = 2 * kScores;
  static constexpr int kBytes = kFactors + 4 * kChunk * static_cast<int>(sizeof(float));
};
/// Places in the factors: of what the state knows of a key, of a query, of a key in the next state,
/// and of the state itself.
enum Factor { kOfKnown = 0, kOfQuery = kChunk, kOfKey = 2 * kChunk, kOfState = 3 * kChunk };

/// Where chunks of a batch lie in the workspace. Sequences have room for the chunks of their
/// tokens and one more, or for one in each kLeastChunked tokens, whichever is less in all.
struct Slots {
  bool by_sequence;
  std::int64_t count;

  static Slots Of(std::int64_t tokens, std::int64_t sequences) {
    const std::int64_t by_sequence = tokens / kChunk + sequences, by_token = tokens / kLeastChunked;
    return by_sequence < by_token ? Slots{true, by_sequence} : Slots{false, by_token};
  }
  __device__ __forceinline__ std::int64_t First(std::int64_t begin, std::int64_t sequence) const {
    return by_sequence ? begin / kChunk + sequence : begin / kLeastChunked;
  }
};
static_assert(2 * kLeastChunked <= kChunk);

struct ChunkArgs {
  GatedDeltaArgs delta;
  Slots slots;
  char* workspace;
  bool wide;  ///< heads of queries and keys lie at multiples of 16 bytes
};

/// Rounds two values to BF16, the first in the low half, and leaves what they lack.
__device__ __forceinline__ std::uint32_t TakePair(float& x, float& y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  const std::uint32_t bits = *reinterpret_cast<const std::uint32_t*>(&pair);
  x -= __uint_as_float(bits << 16);
  y -= __uint_as_float(bits & 0xFFFF0000u);
  return bits;
}

/// Stores neighbours of a row as parts that lie `stride` bytes apart.
template <int kOf>
__device__ __forceinline__ void StorePair(float x, float y, char* to, int stride) {
#pragma unroll
  for (int part = 0; part < kOf; ++part) {
    *reinterpret_cast<std::uint32_t*>(to + part * stride) = TakePair(x, y);
  }
}
template <int kOf>
__device__ __forceinline__ void StorePiece(float (&x)[8], char* to, int stride) {
#pragma unroll
  for (int part = 0; part < kOf; ++part) {
    uint4 piece;
    piece.x = TakePair(x[0], x[1]);
    piece.y = TakePair(x[2], x[3]);
    piece.z = TakePair(x[4], x[5]);
    piece.w = TakePair(x[6], x[7]);
    *reinterpret_cast<uint4*>(to + part * stride) = piece;
  }
}

/// Brings a chunk's keys or queries of one head, zeros behind them; of BF16 at multiples of 16
/// bytes by copies that are not committed.
template <class X, int kKeys>
__device__ __forceinline__ void LoadTile(const X* x, std::int64_t ld, int rows, int elements,
                                         bool wide, char* to) {
  constexpr int kPieces = kKeys / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const int count = row < rows ? elements - piece * 8 : 0;
    const X* const from = x + (count > 0 ? row * ld + piece * 8 : 0);
    char* const at = to + KeyRows<kKeys>::Offset(row, piece);
    if constexpr (!std::is_same_v<X, float>) {
      if (wide) {
        CopyAsync16(SharedAddress(at), from, count > 0 ? 16 : 0);
        continue;
      }
    }
    float values[8] = {};
    if (wide && count > 0) {
      Load(from, values);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (e < count) values[e] = ToFloat(from[e]);
      }
    }
    StorePiece<kPartsOfX<X>>(values, at, kChunk * KeyRows<kKeys>::kRow);
  }
}

/// The fragments of `kOf` parts that lie `stride` bytes apart; kTransposed: as LoadTransposed.
template <bool kTransposed, int kOf>
__device__ __forceinline__ void LoadParts(std::uint32_t from, int stride,
                                          std::uint32_t (&to)[kOf][4]) {
#pragma unroll
  for (int part = 0; part < kOf; ++part) {
    const std::uint32_t at = from + static_cast<std::uint32_t>(part * stride);
    if constexpr (kTransposed) {
      LoadTransposed(at, to[part]);
    } else {
      LoadMatrices(at, to[part]);
    }
  }
}

/// c (16, 16) += a (16, 16) b (16, 16), but for products of parts that are below the last part.
template <int kOfA, int kOfB>
__device__ __forceinline__ void MultiplyParts(float (&c)[2][4], const std::uint32_t (&a)[kOfA][4],
                                              const std::uint32_t (&b)[kOfB][4]) {
  constexpr int kMost = kOfA > kOfB ? kOfA : kOfB;
#pragma unroll
  for (int i = 0; i < kOfA; ++i) {
#pragma unroll
    for (int j = 0; j < kOfB && i + j < kMost; ++j) {
      MultiplyAdd<__nv_bfloat16>(c[0], a[i], b[j][0], b[j][1]);
      MultiplyAdd<__nv_bfloat16>(c[1], a[i], b[j][2], b[j][3]);
    }
  }
}

/// What a lane gives LoadMatrices or LoadTransposed for 16 rows of two pieces: the rows of the
/// first piece come first, or eight rows of both.
template <class Rows>
__device__ __forceinline__ int RowsFirst(int lane) {
  return Rows::Offset(lane % 16, lane / 16);
}
template <class Rows>
__device__ __forceinline__ int PiecesFirst(int lane) {
  return Rows::Offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/// Where a head of the query's, key's and value's columns begins.
struct Head {
  std::int64_t query, key, value, cols;
  int number, of;  ///< value head, key head

  __device__ Head(const GatedDeltaArgs& args, int head)
      : number(head), of(head / (args.value_heads / args.key_heads)) {
    const std::int64_t keys = std::int64_t{args.key_heads} * args.key_dim;
    cols = 2 * keys + std::int64_t{args.value_heads} * args.value_dim;
    query = std::int64_t{of} * args.key_dim;
    key = keys + query;
    value = 2 * keys + std::int64_t{head} * args.value_dim;
  }
};

}  // namespace culet::cuda_ops::chunks
