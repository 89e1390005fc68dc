// Linear attention: parts of heads, the short convolution, and the gated delta rule, whose states
// stay in registers for all of a step's tokens. Prompts: linear_chunks.cu.
#include <limits>

#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/linear_attention.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;

// -- Parts of heads -------------------------------------------------------------------------------

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) HeadSliceKernel(const HeadSliceArgs args) {
  WaitForPrevious();
  const std::int64_t pieces = args.count / kWide;
  const std::int64_t piece = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (piece >= args.heads * pieces) return;
  const std::int64_t head = piece / pieces, at = (piece - head * pieces) * kWide;
  float values[kWide];
  Load(static_cast<const T*>(args.x) + head * args.size + args.first + at, values);
  Store(values, static_cast<T*>(args.out) + head * args.count + at);
}

// -- The convolution ------------------------------------------------------------------------------

constexpr int kTile = 32;  // tokens of a sequence, a block
constexpr int kOlder = kMostTaps - 1;
static_assert(kTile >= kOlder);

// A thread has a column, and keeps its last inputs in registers. The first tile of a sequence,
// which alone reads the state, leaves the next one.
template <class X>
__global__ void __launch_bounds__(kThreads) CausalConvKernel(const CausalConvArgs args) {
  WaitForPrevious();
  const std::int64_t parts = (args.cols + kThreads - 1) / kThreads;
  const std::int64_t tile = blockIdx.x / parts;
  const std::int64_t column = (blockIdx.x - tile * parts) * kThreads + threadIdx.x;
  const Sequence sequence = SequenceAt(args.states, blockIdx.y);
  const std::int64_t first = sequence.begin + tile * kTile;
  if (first >= sequence.end || column >= args.cols) return;

  // Where the column lies in X.
  const std::int64_t keys = std::int64_t{args.key_heads} * args.key_dim;
  const std::int64_t group = args.in / args.key_heads;
  std::int64_t from = 0;
  if (column < 2 * keys) {
    const std::int64_t of = column < keys ? column : column - keys;
    from = of / args.key_dim * group + of % args.key_dim + (column < keys ? 0 : args.key_dim);
  } else {
    const std::int64_t of = column - 2 * keys, values = (args.cols - 2 * keys) / args.key_heads;
    from = of / values * group + of % values + 2 * std::int64_t{args.key_dim};
  }
  const X* const x = static_cast<const X*>(args.x) + from;

  float weights[kMostTaps], older[kOlder];
#pragma unroll
  for (int i = 0; i < kMostTaps; ++i) {
    const int tap = i - (kMostTaps - args.taps);
    weights[i] = tap >= 0 ? LoadAs(args.weight, args.weight_type, column * args.taps + tap) : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kOlder; ++i) {
    const std::int64_t row = first - kOlder + i;
    const std::int64_t line = row - sequence.begin + args.taps - 1;  // of the state
    older[i] = 0;
    if (line < 0) continue;
    if (row >= sequence.begin) {
      older[i] = ToFloat(x[row * args.in]);
    } else if (sequence.from != nullptr) {
      older[i] = sequence.from[line * args.cols + column];
    }
  }
  const std::int64_t end = first + kTile < sequence.end ? first + kTile : sequence.end;
  for (std::int64_t row = first; row < end; ++row) {
    const float value = ToFloat(x[row * args.in]);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOlder; ++i) sum = fmaf(older[i], weights[i], sum);
    sum = fmaf(value, weights[kOlder], sum);
    StoreAs(Silu(sum), args.out, args.out_type, row * args.cols + column);
#pragma unroll
    for (int i = 0; i + 1 < kOlder; ++i) older[i] = older[i + 1];
    older[kOlder - 1] = value;
  }
  if (tile > 0 || sequence.to == nullptr) return;
#pragma unroll
  for (int i = 0; i < kOlder; ++i) {
    const int line = i - (kMostTaps - args.taps);
    if (line < 0) continue;
    const std::int64_t row = sequence.end - kOlder + i;
    sequence.to[line * args.cols + column] =
        end == sequence.end ? older[i] : ToFloat(x[row * args.in]);
  }
}

// -- The gated delta rule -------------------------------------------------------------------------

constexpr int kParts = 4;  // of a key: lanes that share a column of the state
constexpr int kWarpColumns = 32 / kParts;
constexpr int kColumns = kThreads / kParts;

// The sum over the lanes of a column.
__device__ __forceinline__ float SumParts(float value) {
  value += __shfl_xor_sync(kAllLanes, value, kWarpColumns);
  return value + __shfl_xor_sync(kAllLanes, value, 2 * kWarpColumns);
}

// A block has columns of the state of one value head of a sequence, token by token; a lane kRows
// elements of a column. While a token is computed, the next one's values are on their way.
template <class X, int kRows>
__global__ void __launch_bounds__(kThreads)
    GatedDeltaKernel(const GatedDeltaArgs args, std::int64_t most_tokens) {
  constexpr int kKeys = kRows * kParts;
  constexpr int kLoads = (2 * kKeys + kThreads - 1) / kThreads;
  __shared__ float lines[2][2 * kKeys];  // a token's key, then its query, zeros behind them
  WaitForPrevious();
  const int pieces = (args.value_dim + kColumns - 1) / kColumns;
  const int head = static_cast<int>(blockIdx.x) / pieces;
  const int share = args.value_heads / args.key_heads, of = head / share;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, part = lane / kWarpColumns;
  const int column = (static_cast<int>(blockIdx.x) - head * pieces) * kColumns +
                     thread / 32 * kWarpColumns + lane % kWarpColumns;
  const bool inside = column < args.value_dim;
  const Sequence sequence = SequenceAt(args.states, blockIdx.y);
  if (sequence.begin == sequence.end || sequence.end - sequence.begin >= most_tokens) return;

  const std::int64_t keys = std::int64_t{args.key_heads} * args.key_dim;
  const std::int64_t cols = 2 * keys + std::int64_t{args.value_heads} * args.value_dim;
  const X* const x = static_cast<const X*>(args.x);
  const std::int64_t query_at = std::int64_t{of} * args.key_dim;
  const std::int64_t value_at = 2 * keys + std::int64_t{head} * args.value_dim + column;
  const std::int64_t gate_at = 2 * std::int64_t{of} * share + head % share;
  const float decay = expf(LoadAs(args.decays, args.decays_type, head));
  const float bias = LoadAs(args.bias, args.bias_type, head);

  const std::int64_t state_at = std::int64_t{head} * args.key_dim * args.value_dim + column;
  float state[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = part + r * kParts;
    const bool known = inside && i < args.key_dim && sequence.from != nullptr;
    state[r] = known ? sequence.from[state_at + std::int64_t{i} * args.value_dim] : 0.0f;
  }

  float next_lines[kLoads], next_value = 0, next_by = 0, next_step = 0;
  const auto fetch = [&](std::int64_t row) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = thread + i * kThreads, element = at < kKeys ? at : at - kKeys;
      const bool there = at < 2 * kKeys && element < args.key_dim;
      next_lines[i] =
          there ? ToFloat(x[row * cols + query_at + (at < kKeys ? keys : 0) + element]) : 0.0f;
    }
    next_value = inside ? ToFloat(x[row * cols + value_at]) : 0.0f;
    const std::int64_t gate = row * 2 * args.value_heads + gate_at;
    next_by = LoadAs(args.gates, args.gates_type, gate);
    next_step = LoadAs(args.gates, args.gates_type, gate + share);
  };
  fetch(sequence.begin);
  for (std::int64_t row = sequence.begin; row < sequence.end; ++row) {
    float* const line = lines[(row - sequence.begin) % 2];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = thread + i * kThreads;
      if (at < 2 * kKeys) line[at] = next_lines[i];
    }
    const float value = next_value;
    const float by = 1.0f / (1.0f + expf(-next_by));
    const float kept = expf(-decay * SoftPlus(next_step + bias));
    __syncthreads();  // who is behind still reads the other line
    if (row + 1 < sequence.end) fetch(row + 1);

    float of_key = 0, of_query = 0;
    for (int i = lane; i < kKeys; i += 32) {
      of_key = fmaf(line[i], line[i], of_key);
      of_query = fmaf(line[kKeys + i], line[kKeys + i], of_query);
    }
    of_key = 1.0f / sqrtf(SumLanes<32>(of_key) + args.epsilon);
    of_query =
        1.0f / sqrtf((SumLanes<32>(of_query) + args.epsilon) * static_cast<float>(args.key_dim));

    float known = 0, result = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) known = fmaf(line[part + r * kParts], state[r], known);
    const float change = (value - SumParts(known) * kept * of_key) * by * of_key;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      state[r] = fmaf(line[part + r * kParts], change, kept * state[r]);
      result = fmaf(line[kKeys + part + r * kParts], state[r], result);
    }
    result = SumParts(result) * of_query;
    if (part == 0 && inside) {
      StoreAs(result, args.out, args.out_type,
              (row * args.value_heads + head) * args.value_dim + column);
    }
  }
  if (sequence.to == nullptr || !inside) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = part + r * kParts;
    if (i < args.key_dim) sequence.to[state_at + std::int64_t{i} * args.value_dim] = state[r];
  }
}

template <class X, int kRows>
cudaError_t LaunchDelta(const GatedDeltaArgs& args, std::int64_t most_tokens, LaunchStream stream) {
  const std::int64_t pieces = CeilDiv(args.value_dim, kColumns);
  return Launch(&GatedDeltaKernel<X, kRows>,
                Blocks(args.value_heads * pieces, args.states.sequences), kThreads, stream, args,
                most_tokens);
}

}  // namespace

cudaError_t HeadSlice(const HeadSliceArgs& args, LaunchStream stream) {
  if (args.heads == 0) return cudaSuccess;
  return WithValue(args.type, [&]<class T>(T) {
    const auto *x = static_cast<const T*>(args.x), *out = static_cast<const T*>(args.out);
    const bool wide = IsWide(args.count | args.size | args.first, x, out);
    const int elements = wide ? 8 : 1;
    const dim3 grid = Blocks(CeilDiv(args.heads * args.count, std::int64_t{kThreads} * elements));
    return wide ? Launch(&HeadSliceKernel<T, 8>, grid, kThreads, stream, args)
                : Launch(&HeadSliceKernel<T, 1>, grid, kThreads, stream, args);
  });
}

cudaError_t CausalConv(const CausalConvArgs& args, LaunchStream stream) {
  if (args.states.tokens == 0) return cudaSuccess;
  if (args.taps > kMostTaps) return cudaErrorInvalidValue;
  const std::int64_t tiles = CeilDiv(args.states.tokens, kTile);
  const dim3 grid = Blocks(CeilDiv(args.cols, kThreads) * tiles, args.states.sequences);
  return WithValue(args.x_type, [&]<class X>(X) {
    return Launch(&CausalConvKernel<X>, grid, kThreads, stream, args);
  });
}

cudaError_t GatedDeltaTokens(const GatedDeltaArgs& args, std::int64_t most_tokens,
                             LaunchStream stream) {
  if (args.states.tokens == 0) return cudaSuccess;
  return WithValue(args.x_type, [&]<class X>(X) {
    if (args.key_dim <= 32) return LaunchDelta<X, 8>(args, most_tokens, stream);
    if (args.key_dim <= 64) return LaunchDelta<X, 16>(args, most_tokens, stream);
    if (args.key_dim <= 128) return LaunchDelta<X, 32>(args, most_tokens, stream);
    if (args.key_dim <= kMostDeltaKey) return LaunchDelta<X, 64>(args, most_tokens, stream);
    return cudaErrorInvalidValue;
  });
}

cudaError_t GatedDelta(const GatedDeltaArgs& args, LaunchStream stream) {
  return GatedDeltaTokens(args, std::numeric_limits<std::int64_t>::max(), stream);
}

}  // namespace culet::cuda_ops
