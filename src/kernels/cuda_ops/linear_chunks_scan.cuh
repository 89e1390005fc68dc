// The second kernel of linear_chunks.cuh.
#pragma once

#include "kernels/cuda_ops/linear_chunks.cuh"

namespace culet::cuda_ops::chunks {

template <class X, int kKeys>
struct ScanMemory {
  static constexpr int kTile = kChunk * KeyRows<kKeys>::kRow;  // a part of keys or queries
  static constexpr int kState = kKeys * ColumnRows::kRow;      // a part of the state
  static constexpr int kValues = kChunk * ColumnRows::kRow;    // a part of what has a column
  static constexpr int kKeyTiles = kPartsOfX<X> == 1 ? 2 : 1;  // the next one's beside them
  static constexpr int kKeysAt = 0;
  static constexpr int kQueriesAt = kKeysAt + kKeyTiles * kPartsOfX<X> * kTile;
  static constexpr int kStateAt = kQueriesAt + kPartsOfX<X> * kTile;
  static constexpr int kSolvedAt = kStateAt + kParts<X> * kState;
  static constexpr int kScoresAt = kSolvedAt + kParts<X> * Prepared<X>::kSquare;
  static constexpr int kErrorsAt = kScoresAt + kParts<X> * Prepared<X>::kSquare;
  static constexpr int kChangesAt = kErrorsAt + kParts<X> * kValues;
  static constexpr int kDecayedAt = kChangesAt + kParts<X> * kValues;
  static constexpr int kFactorsAt = kDecayedAt + kParts<X> * kValues;
  static constexpr int kFactorBytes = 4 * kChunk * static_cast<int>(sizeof(float));
  static constexpr int kBytes = kFactorsAt + 2 * kFactorBytes;
};

/// Copies the parts of a square up to its diagonal blocks.
template <class X>
__device__ __forceinline__ void LoadSquare(const char* from, char* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kParts<X> * kChunk * 8; i += kThreads) {
    const int part = i / (kChunk * 8), row = i / 8 % kChunk, piece = i % 8;
    if (piece / 2 > row / 16) continue;
    CopyAsync16(SharedAddress(to + part * Prepared<X>::kSquare + SquareRows::Offset(row, piece)),
                from + part * Prepared<X>::kSquare + row * SquareRows::kRow + piece * 16, 16);
  }
}

/// c (16, 16) += rows [16 block, + 16) of a square that has nothing above its diagonal blocks,
/// times 16 columns, of 64 rows.
template <int kOf>
__device__ __forceinline__ void MultiplySquare(float (&c)[2][4], const char* square, int block,
                                               const char* columns, int pair, int lane) {
  const std::uint32_t left =
      SharedAddress(square) + static_cast<std::uint32_t>(block * 16 * SquareRows::kRow);
  const std::uint32_t right = SharedAddress(columns);
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    if (k > block) break;
    std::uint32_t a[kOf][4], b[kOf][4];
    LoadParts<false>(
        left + static_cast<std::uint32_t>(SquareRows::Behind(RowsFirst<SquareRows>(lane), k * 32)),
        kChunk * SquareRows::kRow, a);
    LoadParts<true>(
        right + static_cast<std::uint32_t>(ColumnRows::Below(
                    ColumnRows::Behind(RowsFirst<ColumnRows>(lane), pair * 32), k * 16)),
        kChunk * ColumnRows::kRow, b);
    MultiplyParts(c, a, b);
  }
}

/// A block has kColumns columns of the state of one value head of a sequence. Of what has a row for
/// each token a warp has 16 rows and 16 columns.
template <class X, int kKeys>
__global__ void __launch_bounds__(kThreads, 1) ScanChunks(const ChunkArgs args) {
  using Memory = ScanMemory<X, kKeys>;
  using Rows = KeyRows<kKeys>;
  constexpr int kOf = kParts<X>, kOfX = kPartsOfX<X>;
  constexpr int kKeyBlocks = kKeys / 16, kPairs = kKeyBlocks / 4;  // of columns of the state
  WaitForPrevious();
  const GatedDeltaArgs& delta = args.delta;
  const int pieces = (delta.value_dim + kColumns - 1) / kColumns;
  const Head head(delta, static_cast<int>(blockIdx.x) / pieces);
  const int first_column = static_cast<int>(blockIdx.x) % pieces * kColumns;
  const Sequence sequence = SequenceAt(delta.states, blockIdx.y);
  if (sequence.end - sequence.begin < kLeastChunked) return;
  const int chunks = static_cast<int>((sequence.end - sequence.begin + kChunk - 1) / kChunk);

  char* const shared = DynamicShared();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int block = warp % 4, pair = warp / 4;  // of 16 tokens, of 16 columns
  const int row = block * 16 + lane / 4, column = pair * 16 + lane % 4 * 2;
  const X* const x = static_cast<const X*>(delta.x);
  const std::int64_t first_slot = args.slots.First(sequence.begin, blockIdx.y);
  const auto rows_of = [&](int chunk) {
    return static_cast<int>(Within(sequence.end - sequence.begin - chunk * kChunk, 0, kChunk));
  };
  const auto prepared = [&](int chunk) {
    return args.workspace + ((first_slot + chunk) * delta.value_heads + head.number) *
                                std::int64_t{Prepared<X>::kBytes};
  };
  const auto tile = [&](int chunk, std::int64_t at, char* to) {
    const std::int64_t token = sequence.begin + std::int64_t{chunk} * kChunk;
    LoadTile<X, kKeys>(x + token * head.cols + at, head.cols, rows_of(chunk), delta.key_dim,
                       args.wide, to);
  };
  const auto keys_of = [&](int chunk) {
    return shared + Memory::kKeysAt + chunk % Memory::kKeyTiles * kOfX * Memory::kTile;
  };
  const auto factors_of = [&](int chunk) {
    return reinterpret_cast<float*>(shared + Memory::kFactorsAt + chunk % 2 * Memory::kFactorBytes);
  };
  const auto load_factors = [&](int chunk) {
    if (thread < Memory::kFactorBytes / 16) {
      CopyAsync16(SharedAddress(factors_of(chunk) + thread * 4),
                  prepared(chunk) + Prepared<X>::kFactors + thread * 16, 16);
    }
  };
  // This lane's values: rows `row` and 8 below, columns `column`, 8 behind, and their neighbours.
  float values[2][4];
  const auto load_values = [&](int chunk) {
    const std::int64_t token = sequence.begin + std::int64_t{chunk} * kChunk;
    const int rows = rows_of(chunk);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = row + i / 2 % 2 * 8, col = first_column + column + i / 4 * 8 + i % 2;
      const bool there = at < rows && col < delta.value_dim;
      values[i / 4][i % 4] = there ? ToFloat(x[(token + at) * head.cols + head.value + col]) : 0.0f;
    }
  };

  tile(0, head.key, keys_of(0));
  tile(0, head.query, shared + Memory::kQueriesAt);
  load_factors(0);
  LoadSquare<X>(prepared(0) + Prepared<X>::kSolved, shared + Memory::kSolvedAt);
  CommitCopies();
  load_values(0);

  // 16 keys of the state, and 16 or 32 of its columns.
  float state[kPairs][2][4];
  const int key = warp % kKeyBlocks * 16 + lane / 4, first_pair = warp / kKeyBlocks;
  const auto at_state = [&](int p, int n, int i, auto&& what) {
    const int k = key + i / 2 * 8;
    const int col = first_column + (first_pair + p) * 16 + n * 8 + lane % 4 * 2 + i % 2;
    if (k < delta.key_dim && col < delta.value_dim) {
      what((std::int64_t{head.number} * delta.key_dim + k) * delta.value_dim + col);
    }
  };
  const auto share_state = [&] {
#pragma unroll
    for (int i = 0; i < kPairs * 4; ++i) {
      const int p = i / 4, n = i / 2 % 2, half = i % 2;
      StorePair<kOf>(state[p][n][half * 2], state[p][n][half * 2 + 1],
                     shared + Memory::kStateAt +
                         ColumnRows::Offset(key + half * 8, (first_pair + p) * 2 + n) +
                         lane % 4 * 4,
                     Memory::kState);
    }
  };
#pragma unroll
  for (int i = 0; i < kPairs * 8; ++i) {
    float& of = state[i / 8][i / 4 % 2][i % 4];
    of = 0;
    if (sequence.from == nullptr) continue;
    at_state(i / 8, i / 4 % 2, i % 4, [&](std::int64_t at) { of = sequence.from[at]; });
  }
  share_state();

  for (int chunk = 0; chunk < chunks; ++chunk) {
    const bool more = chunk + 1 < chunks;
    const float* const factors = factors_of(chunk);
    AwaitCopies<0>();
    __syncthreads();  // all of the chunk before is read; keys, queries and the state are there
    LoadSquare<X>(prepared(chunk) + Prepared<X>::kScores, shared + Memory::kScoresAt);
    CommitCopies();
    if (more) {
      if (Memory::kKeyTiles > 1) tile(chunk + 1, head.key, keys_of(chunk + 1));
      load_factors(chunk + 1);
    }
    CommitCopies();

    // What the state knows of keys and queries.
    float known[2][4] = {}, out[2][4] = {};
    const std::uint32_t of_keys = SharedAddress(keys_of(chunk)),
                        at_rows = of_keys + static_cast<std::uint32_t>(block * 16 * Rows::kRow);
    const std::uint32_t at_queries = SharedAddress(shared + Memory::kQueriesAt) +
                                     static_cast<std::uint32_t>(block * 16 * Rows::kRow);
    const std::uint32_t at_state_parts = SharedAddress(shared + Memory::kStateAt);
#pragma unroll
    for (int k = 0; k < kKeyBlocks; ++k) {
      std::uint32_t a[kOfX][4], b[kOf][4];
      const auto at = static_cast<std::uint32_t>(Rows::Behind(RowsFirst<Rows>(lane), k * 32));
      LoadParts<true>(
          at_state_parts + static_cast<std::uint32_t>(ColumnRows::Below(
                               ColumnRows::Behind(RowsFirst<ColumnRows>(lane), pair * 32), k * 16)),
          Memory::kState, b);
      LoadParts<false>(at_rows + at, Memory::kTile, a);
      MultiplyParts(known, a, b);
      LoadParts<false>(at_queries + at, Memory::kTile, a);
      MultiplyParts(out, a, b);
    }
    // Rows of tokens: what is to be stored of them at `to`.
    const auto store = [&](const float(&from)[2][4], int factor, int to) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = i / 2, half = i % 2;
        const float by = factor < 0 ? 1.0f : factors[factor + row + half * 8];
        StorePair<kOf>(
            from[n][half * 2] * by, from[n][half * 2 + 1] * by,
            shared + to + ColumnRows::Offset(row + half * 8, pair * 2 + n) + lane % 4 * 4,
            Memory::kValues);
      }
    };
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int half = i / 2 % 2;
      float& of = known[i / 4][i % 4];
      of = fmaf(-factors[kOfKnown + row + half * 8], of, values[i / 4][i % 4]);
      out[i / 4][i % 4] *= factors[kOfQuery + row + half * 8];
    }
    store(known, -1, Memory::kErrorsAt);
    if (more) load_values(chunk + 1);
    __syncthreads();
    if (more) tile(chunk + 1, head.query, shared + Memory::kQueriesAt);
    CommitCopies();

    float changes[2][4] = {};
    MultiplySquare<kOf>(changes, shared + Memory::kSolvedAt, block, shared + Memory::kErrorsAt,
                        pair, lane);
    store(changes, -1, Memory::kChangesAt);
    store(changes, kOfKey, Memory::kDecayedAt);
    AwaitCopies<2>();  // the chunk's scores
    __syncthreads();
    if (more) LoadSquare<X>(prepared(chunk + 1) + Prepared<X>::kSolved, shared + Memory::kSolvedAt);
    CommitCopies();

    MultiplySquare<kOf>(out, shared + Memory::kScoresAt, block, shared + Memory::kChangesAt, pair,
                        lane);
    const std::int64_t token = sequence.begin + std::int64_t{chunk} * kChunk;
    const int rows = rows_of(chunk);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = row + i / 2 % 2 * 8, col = first_column + column + i / 4 * 8 + i % 2;
      if (at >= rows || col >= delta.value_dim) continue;
      StoreAs(out[i / 4][i % 4], delta.out, delta.out_type,
              ((token + at) * delta.value_heads + head.number) * delta.value_dim + col);
    }

    const float decay = factors[kOfState];
#pragma unroll
    for (int i = 0; i < kPairs * 8; ++i) state[i / 8][i / 4 % 2][i % 4] *= decay;
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      std::uint32_t a[kOfX][4];
      LoadParts<true>(of_keys + static_cast<std::uint32_t>(
                                    Rows::Below(Rows::Offset(lane % 8 + lane / 16 * 8,
                                                             warp % kKeyBlocks * 2 + lane / 8 % 2),
                                                k * 16)),
                      Memory::kTile, a);
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        std::uint32_t b[kOf][4];
        LoadParts<true>(
            SharedAddress(shared + Memory::kDecayedAt) +
                static_cast<std::uint32_t>(ColumnRows::Below(
                    ColumnRows::Offset(lane % 16, (first_pair + p) * 2 + lane / 16), k * 16)),
            Memory::kValues, b);
        MultiplyParts(state[p], a, b);
      }
    }
    if (Memory::kKeyTiles == 1) {
      __syncthreads();  // all keys are read
      if (more) tile(chunk + 1, head.key, keys_of(chunk + 1));
      CommitCopies();
    }
    if (more) share_state();
  }
  if (sequence.to == nullptr) return;
#pragma unroll
  for (int i = 0; i < kPairs * 8; ++i) {
    at_state(i / 8, i / 4 % 2, i % 4,
             [&](std::int64_t at) { sequence.to[at] = state[i / 8][i / 4 % 2][i % 4]; });
  }
}

}  // namespace culet::cuda_ops::chunks
