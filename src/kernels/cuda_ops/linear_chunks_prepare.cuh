// The first kernel of linear_chunks.cuh.
#pragma once

#include "kernels/cuda_ops/linear_chunks.cuh"

namespace culet::cuda_ops::chunks {

inline constexpr int kPitch = kChunk + 2;  // of square matrices of float32
inline constexpr int kWorkPitch = kChunk / 2 + 2;

template <class X, int kKeys>
struct PrepareMemory {
  static constexpr int kTile = kPartsOfX<X> * kChunk * KeyRows<kKeys>::kRow;
  static constexpr int kMatrix = kChunk * kPitch * static_cast<int>(sizeof(float));
  static constexpr int kWork = kChunk / 2 * kWorkPitch * static_cast<int>(sizeof(float));
  // Matrices take the place of queries and keys.
  static constexpr int kLarge = 2 * kTile > 2 * kMatrix + kWork ? 2 * kTile : 2 * kMatrix + kWork;
  static constexpr int kLogs = kLarge;
  static constexpr int kScalars = kLogs + kChunk * static_cast<int>(sizeof(double));
  static constexpr int kBytes = kScalars + 3 * kChunk * static_cast<int>(sizeof(float));
};

/// Where A is A and T the inverse of its blocks of kSize on the diagonal, makes T that of blocks
/// twice as large: -T22 A21 T11 below the diagonal.
template <int kSize>
__device__ __forceinline__ void JoinInverses(const float* a, float* t, float* work) {
  constexpr int kRows = kSize / 16;  // of a thread, and two columns
  constexpr int kThreadsOfPair = 8 * kSize;
  const int thread = static_cast<int>(threadIdx.x), within = thread % kThreadsOfPair;
  const int base = thread / kThreadsOfPair * 2 * kSize;
  const int row = within / (kSize / 2) * kRows, col = within % (kSize / 2) * 2;
  float* const product = work + (base / 2 + row) * kWorkPitch + col;
  float sums[kRows][2] = {};
#pragma unroll 8
  for (int k = 0; k < kSize; ++k) {
    const float2 of = *reinterpret_cast<const float2*>(t + (base + k) * kPitch + base + col);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float by = a[(base + kSize + row + i) * kPitch + base + k];
      sums[i][0] = fmaf(by, of.x, sums[i][0]);
      sums[i][1] = fmaf(by, of.y, sums[i][1]);
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    *reinterpret_cast<float2*>(product + i * kWorkPitch) = make_float2(sums[i][0], sums[i][1]);
    sums[i][0] = sums[i][1] = 0;
  }
  __syncthreads();
#pragma unroll 8
  for (int k = 0; k < kSize; ++k) {
    const float2 of = *reinterpret_cast<const float2*>(work + (base / 2 + k) * kWorkPitch + col);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float by = t[(base + kSize + row + i) * kPitch + base + kSize + k];
      sums[i][0] = fmaf(-by, of.x, sums[i][0]);
      sums[i][1] = fmaf(-by, of.y, sums[i][1]);
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    *reinterpret_cast<float2*>(t + (base + kSize + row + i) * kPitch + base + col) =
        make_float2(sums[i][0], sums[i][1]);
  }
  __syncthreads();
}

/// A block has a chunk of one value head.
template <class X, int kKeys>
__global__ void __launch_bounds__(kThreads) PrepareChunks(const ChunkArgs args) {
  using Memory = PrepareMemory<X, kKeys>;
  using Rows = KeyRows<kKeys>;
  using Out = Prepared<X>;
  WaitForPrevious();
  const GatedDeltaArgs& delta = args.delta;
  const std::int64_t slot = blockIdx.x / static_cast<unsigned>(delta.value_heads);
  const Head head(delta, static_cast<int>(blockIdx.x - slot * delta.value_heads));
  // The last sequence that begins at the slot or before.
  std::int64_t number = 0;
  for (std::int64_t beyond = delta.states.sequences; number + 1 < beyond;) {
    const std::int64_t middle = (number + beyond) / 2;
    const std::int64_t begin = Within(delta.states.starts[middle], 0, delta.states.tokens);
    (args.slots.First(begin, middle) <= slot ? number : beyond) = middle;
  }
  const Sequence sequence = SequenceAt(delta.states, number);
  const std::int64_t chunk = slot - args.slots.First(sequence.begin, number);
  const std::int64_t first = sequence.begin + chunk * kChunk;
  if (chunk < 0 || first >= sequence.end || sequence.end - sequence.begin < kLeastChunked) return;
  const int rows = static_cast<int>(Within(sequence.end - first, 0, kChunk));

  char* const shared = DynamicShared();
  char* const queries = shared;
  char* const keys = shared + Memory::kTile;
  auto* const logs = reinterpret_cast<double*>(shared + Memory::kLogs);
  auto* const of_queries = reinterpret_cast<float*>(shared + Memory::kScalars);
  float* const of_keys = of_queries + kChunk;
  float* const shares = of_keys + kChunk;
  const X* const x = static_cast<const X*>(delta.x) + first * head.cols;
  LoadTile<X, kKeys>(x + head.query, head.cols, rows, delta.key_dim, args.wide, queries);
  LoadTile<X, kKeys>(x + head.key, head.cols, rows, delta.key_dim, args.wide, keys);
  CommitCopies();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  float share = 0, step = 0;  // beyond the chunk nothing is learnt or forgotten
  if (thread < rows) {
    const int heads_of_key = delta.value_heads / delta.key_heads;
    const std::int64_t gate = (first + thread) * 2 * delta.value_heads +
                              std::int64_t{2} * head.of * heads_of_key + head.number % heads_of_key;
    share = 1.0f / (1.0f + expf(-LoadAs(delta.gates, delta.gates_type, gate)));
    step = -expf(LoadAs(delta.decays, delta.decays_type, head.number)) *
           SoftPlus(LoadAs(delta.gates, delta.gates_type, gate + heads_of_key) +
                    LoadAs(delta.bias, delta.bias_type, head.number));
  }
  if (thread < kChunk) {
    shares[thread] = share;
    logs[thread] = static_cast<double>(step);
  }
  AwaitCopies<0>();
  __syncthreads();

  // Lengths: four threads a row. The sum of logarithms in double, whose differences count.
  float squares[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int piece = 0; piece < kKeys / 32; ++piece) {
      const char* const at =
          (i == 0 ? queries : keys) + Rows::Offset(thread / 4, piece * 4 + thread % 4);
      float values[8] = {};
#pragma unroll
      for (int part = kPartsOfX<X> - 1; part >= 0; --part) {
        float of_part[8];
        Load(reinterpret_cast<const __nv_bfloat16*>(at + part * kChunk * Rows::kRow), of_part);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] += of_part[e];
      }
#pragma unroll
      for (const float value : values) squares[i] = fmaf(value, value, squares[i]);
    }
    squares[i] = SumLanes<4>(squares[i]) + delta.epsilon;
  }
  double log = 0;
  if (thread < kChunk) {
    for (int i = 0; i <= thread; ++i) log += logs[i];
  }
  if (thread % 4 == 0) {
    of_queries[thread / 4] = 1.0f / sqrtf(squares[0] * static_cast<float>(delta.key_dim));
    of_keys[thread / 4] = 1.0f / sqrtf(squares[1]);
  }
  __syncthreads();
  if (thread < kChunk) logs[thread] = log;

  // Products with keys, up to the diagonal: of keys in half of the warps, of queries in the other.
  const bool scores = warp >= 4;
  const int block = warp % 4;
  float sums[4][2][4] = {};
  const std::uint32_t of_rows =
      SharedAddress(scores ? queries : keys) + static_cast<std::uint32_t>(block * 16 * Rows::kRow);
  const std::uint32_t of_cols = SharedAddress(keys);
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    std::uint32_t a[kPartsOfX<X>][4], b[kPartsOfX<X>][4];
    LoadParts<false>(
        of_rows + static_cast<std::uint32_t>(Rows::Behind(RowsFirst<Rows>(lane), k * 32)),
        kChunk * Rows::kRow, a);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      if (pair > block) break;
      LoadParts<false>(of_cols + static_cast<std::uint32_t>(Rows::Below(
                                     Rows::Behind(PiecesFirst<Rows>(lane), k * 32), pair * 16)),
                       kChunk * Rows::kRow, b);
      MultiplyParts(sums[pair], a, b);
    }
  }
  __syncthreads();

  auto* const a = reinterpret_cast<float*>(shared);
  float* const t = a + kChunk * kPitch;
  float* const work = t + kChunk * kPitch;
  char* const out =
      args.workspace + (slot * delta.value_heads + head.number) * std::int64_t{Out::kBytes};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    if (pair > block) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = block * 16 + lane / 4 + i % 2 * 8;
      const int col = pair * 16 + i / 2 * 8 + lane % 4 * 2;
      float values[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool there = scores ? col + e <= row : col + e < row;
        const float by = (scores ? of_queries[row] : of_keys[row] * shares[row]) *
                         of_keys[col + e] * expf(static_cast<float>(logs[row] - logs[col + e]));
        values[e] = there ? sums[pair][i / 2][i % 2 * 2 + e] * by : 0.0f;
      }
      if (scores) {
        StorePair<kParts<X>>(values[0], values[1],
                             out + Out::kScores + row * SquareRows::kRow + col * 2, Out::kSquare);
      } else {
        *reinterpret_cast<float2*>(a + row * kPitch + col) = make_float2(values[0], values[1]);
      }
    }
  }
  // Above the diagonal blocks of 16, where JoinInverses reads.
  for (int i = thread; i < 512; i += kThreads) {
    const int base = i / 256 * 32;
    t[(base + i / 16 % 16) * kPitch + base + 16 + i % 16] = 0;
  }
  __syncthreads();
  if (thread < kChunk) {
    // A column of the inverse of a block of 16.
    const int base = thread / 16 * 16;
    float column[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) column[i] = i == thread % 16 ? 1.0f : 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
#pragma unroll
      for (int row = i + 1; row < 16; ++row) {
        column[row] = fmaf(-a[(base + row) * kPitch + base + i], column[i], column[row]);
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) t[(base + i) * kPitch + thread] = column[i];
    auto* const factors = reinterpret_cast<float*>(out + Out::kFactors);
    const double last = logs[kChunk - 1];
    const float decayed = expf(static_cast<float>(log));
    factors[kOfKnown + thread] = decayed * of_keys[thread];
    factors[kOfQuery + thread] = decayed * of_queries[thread];
    factors[kOfKey + thread] = expf(static_cast<float>(last - log)) * of_keys[thread];
    factors[kOfState + thread] = expf(static_cast<float>(last));
  }
  __syncthreads();
  JoinInverses<16>(a, t, work);
  JoinInverses<32>(a, t, work);
  for (int i = thread; i < kChunk * 8; i += kThreads) {
    const int row = i / 8, piece = i % 8;
    if (piece / 2 > row / 16) continue;
    float values[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      values[e] = t[row * kPitch + piece * 8 + e] * shares[piece * 8 + e];
    }
    StorePiece<kParts<X>>(values, out + Out::kSolved + row * SquareRows::kRow + piece * 16,
                          Out::kSquare);
  }
}

}  // namespace culet::cuda_ops::chunks
