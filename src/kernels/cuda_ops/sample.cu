// Sample without a sort. The least key that top_k and top_p keep is found digit by digit: blocks
// over slices of the rows count tokens and add their weights by the next digit of the logits'
// order, and the next launch's blocks look up where the bound falls. Sums are whole numbers, so
// that no order of blocks changes the token. Launches: the largest logit; three digits of the first
// bound; two more of the second, whose first digit is known, for rows with both top_k and top_p;
// sums of the slices; the draw. What a row does not need, its blocks pass by.
#include "base/sampling_math.h"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/order.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

using sampling::kOne;
using sampling::OrderOf;
using sampling::Row;
using sampling::WeightOf;
using Sum = unsigned long long;  // what atomicAdd takes

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr std::int64_t kSlice = kThreads * 8 * 2;  // elements

// Digits of an order, from the top: 11, 11 and 10 bits.
constexpr int kBins = 2048;
constexpr int kPasses = 5;
constexpr int kBinBits[kPasses] = {11, 11, 10, 11, 10};
constexpr int kShift[kPasses] = {21, 10, 0, 10, 0};

// What the passes before know of a row's bound.
enum class Bound : std::uint32_t { kNone, kCount, kWeight };
struct Step {
  Bound bound;
  std::uint32_t prefix;  // digits of the order that the bound falls on
  Sum left;              // tokens, or their weight, that are kept of those with the prefix
  Sum above;             // the weight of all tokens above them
};

// What is kept: orders above `order`, and the first `ties` tokens of it.
struct Kept {
  std::uint32_t order;
  std::uint32_t ties;
};

struct SliceSum {
  Sum above;
  std::uint32_t ties;
};

struct Histogram {
  Sum weights[kBins];
  std::uint32_t counts[kBins];
};

struct RowState {
  Histogram passes[kPasses];
  Step steps[kPasses];  // before each pass
  Kept kept;
};

// The workspace: (rows) states, (rows, slices) sums, (rows, slices) largest keys.
struct Places {
  RowState* rows;
  SliceSum* sums;
  std::uint64_t* largest;
  int slices;
};

struct Args {
  const std::int32_t* options;
  const std::int32_t* draws;
  std::uint32_t first_draw;
  std::int32_t* out;
  std::int64_t cols;
  Places at;
};

__device__ __forceinline__ bool IsFinite(float value) {
  return (__float_as_uint(value) & 0x7F800000u) != 0x7F800000u;
}

// The sum of the values of the threads before, and of all threads.
struct Scanned {
  Sum before, total;
};
__device__ __forceinline__ Scanned ScanBlock(Sum value) {
  __shared__ Sum warps[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  Sum sum = value;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const Sum other = __shfl_sync(kAllLanes, sum, lane >= offset ? lane - offset : lane);
    if (lane >= offset) sum += other;
  }
  __syncthreads();  // those who read the sums of a scan before are done
  if (lane == kWarp - 1) warps[warp] = sum;
  __syncthreads();
  Scanned scanned{sum - value, 0};
#pragma unroll
  for (int i = 0; i < kThreads / kWarp; ++i) {
    if (i < warp) scanned.before += warps[i];
    scanned.total += warps[i];
  }
  return scanned;
}

// The row's largest logit, as KeyOf makes keys, in all threads.
__device__ __forceinline__ std::uint64_t LargestOfRow(const Args& args, std::int64_t row) {
  __shared__ std::uint64_t warps[kThreads / kWarp];
  std::uint64_t best = 0;
  for (int slice = static_cast<int>(threadIdx.x); slice < args.at.slices; slice += kThreads) {
    const std::uint64_t key = args.at.largest[row * args.at.slices + slice];
    best = key > best ? key : best;
  }
  best = LargestOfWarp(best);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = best;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreads / kWarp; ++i) best = warps[i] > best ? warps[i] : best;
  return best;
}

struct Found {
  std::uint32_t bin;
  Sum left, above;
  bool any;
};
// The bin, from the last to the first, in which the sum of counts or weights reaches `bound`; none
// when all of them together do not. A bound of 0 is `share` of all weights. In all threads.
__device__ __forceinline__ Found Find(const Histogram& in, int bins, bool by_count, Sum bound,
                                      std::uint64_t share) {
  __shared__ Found found;
  const int each = bins / kThreads;
  const int last = bins - 1 - static_cast<int>(threadIdx.x) * each;
  Sum count = 0, weight = 0;
  for (int i = 0; i < each; ++i) {
    count += in.counts[last - i];
    weight += in.weights[last - i];
  }
  const Scanned weights = ScanBlock(weight);
  const Scanned measure = by_count ? ScanBlock(count) : weights;
  if (bound == 0) {
    bound = sampling::ShareOf(weights.total, share);
    if (bound == 0) bound = 1;
  }
  if (threadIdx.x == 0) found.any = false;
  __syncthreads();
  if (measure.before < bound && bound <= measure.before + (by_count ? count : weight)) {
    Sum left = bound - measure.before, above = weights.before;
    int bin = last;
    while (true) {
      const Sum here = by_count ? Sum{in.counts[bin]} : in.weights[bin];
      if (left <= here) break;
      left -= here;
      above += in.weights[bin];
      --bin;
    }
    found = {static_cast<std::uint32_t>(bin), left, above, true};
  }
  __syncthreads();
  return found;
}

// What pass kPass - 1 found; kPass is a pass, or kPasses: what all have found.
template <int kBits>
__device__ __forceinline__ Step Next(const Step& before, const Histogram& in) {
  const Found found = Find(in, 1 << kBits, before.bound == Bound::kCount, before.left, 0);
  return {before.bound, before.prefix << kBits | found.bin, found.left, before.above + found.above};
}

__device__ __forceinline__ Step First(const Row& row, const Histogram& in) {
  if (row.top_k > 0) {
    const Found found = Find(in, kBins, true, row.top_k, 0);
    if (found.any) return {Bound::kCount, found.bin, found.left, found.above};
  }
  if (row.top_p < kOne) {
    const Found found = Find(in, kBins, false, 0, row.top_p);
    if (found.any) return {Bound::kWeight, found.bin, found.left, found.above};
  }
  return {Bound::kNone, 0, 0, 0};
}

// Whether top_p asks for a bound of its own once that of top_k is known.
__device__ __forceinline__ bool IsSecond(const Row& row, const Step& first) {
  return first.bound == Bound::kCount && row.top_p < kOne;
}

// The bound of top_p: a share of what top_k keeps. `last`: top_k's bound, as an order.
__device__ __forceinline__ Step Second(const Row& row, const Step& last, const Histogram& in,
                                       float largest) {
  const Sum tie = WeightOf(sampling::ValueOf(last.prefix), largest, row.scale);
  Sum bound = sampling::ShareOf(last.above + last.left * tie, row.top_p);
  if (bound == 0) bound = 1;
  const Found found = Find(in, kBins, false, bound, 0);
  return {Bound::kWeight, found.bin, found.left, found.above};
}

// The step that pass kPass begins with; kNone where the row does not need the pass. By the row's
// first block it is kept for the passes behind.
template <int kPass>
__device__ __forceinline__ Step StepOf(const Row& row, RowState& state, float largest) {
  const Step none{Bound::kNone, 0, 0, 0};
  if constexpr (kPass == 1) {
    return First(row, state.passes[0]);
  } else if constexpr (kPass == 2) {
    const Step before = state.steps[1];
    return before.bound == Bound::kNone ? none : Next<11>(before, state.passes[1]);
  } else if constexpr (kPass == 3) {
    const Step before = state.steps[2];
    if (!IsSecond(row, before)) return none;
    return Second(row, Next<10>(before, state.passes[2]), state.passes[0], largest);
  } else {
    const Step before = state.steps[3];
    return before.bound == Bound::kNone ? none : Next<11>(before, state.passes[3]);
  }
}

__device__ __forceinline__ Kept KeptOf(const Row& row, const RowState& state, float largest) {
  const Step first = state.steps[2];
  if (first.bound == Bound::kNone) return {0, 0};
  const Step last = IsSecond(row, first) ? Next<10>(state.steps[4], state.passes[4])
                                         : Next<10>(first, state.passes[2]);
  if (last.bound == Bound::kCount) return {last.prefix, static_cast<std::uint32_t>(last.left)};
  const Sum tie = WeightOf(sampling::ValueOf(last.prefix), largest, row.scale);
  return {last.prefix, static_cast<std::uint32_t>((last.left + tie - 1) / tie)};
}

struct Block {
  std::int64_t row;
  int slice;
  std::int64_t begin, end;  // columns
};
__device__ __forceinline__ Block BlockOf(const Args& args) {
  const auto slices = static_cast<unsigned>(args.at.slices);
  const auto slice = static_cast<int>(blockIdx.x % slices);
  const std::int64_t begin = slice * kSlice;
  return {static_cast<std::int64_t>(blockIdx.x / slices), slice, begin,
          begin + kSlice < args.cols ? begin + kSlice : args.cols};
}

// The row's options and its largest logit; of rows that are not drawn the scale is 0.
struct Head {
  Row row;
  std::uint64_t key;
  float largest;
};
__device__ __forceinline__ Head HeadOf(const Args& args, std::int64_t row) {
  Head head{sampling::ReadRow(args.options + row * sampling::kWords), 0, 0};
  if (!(head.row.scale > 0)) head.row.scale = 0;
  head.key = LargestOfRow(args, row);
  head.largest = sampling::ValueOf(static_cast<std::uint32_t>(head.key >> 32));
  if (!IsFinite(head.largest)) head.row.scale = 0;
  return head;
}

// function(logit) of the block's elements that this thread reads, in no order of the row.
template <class T, int kWide, class Function>
__device__ __forceinline__ void EachLogit(const T* x, const Args& args, const Block& block,
                                          Function&& function) {
  for (std::int64_t at = block.begin + threadIdx.x * kWide; at < block.end;
       at += kThreads * kWide) {
    float values[kWide];
    Load(x + block.row * args.cols + at, values);
#pragma unroll
    for (int i = 0; i < kWide; ++i) function(values[i], at + i);
  }
}

// Also zeroes what the passes add to.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) SampleLargest(const T* x, const Args args) {
  WaitForPrevious();
  __shared__ std::uint64_t warps[kThreads / kWarp];
  const Block block = BlockOf(args);
  std::uint64_t best = 0;
  EachLogit<T, kWide>(x, args, block, [&](float value, std::int64_t at) {
    const std::uint64_t key = KeyOf(value, static_cast<std::uint32_t>(at));
    best = key > best ? key : best;
  });
  best = LargestOfWarp(best);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = best;
  const Row row = sampling::ReadRow(args.options + block.row * sampling::kWords);
  if (row.scale > 0 && (row.top_k > 0 || row.top_p < kOne)) {
    auto* const words = reinterpret_cast<Sum*>(args.at.rows[block.row].passes);
    constexpr int kWords = sizeof(Histogram) * kPasses / sizeof(Sum);
    for (int i = block.slice * kThreads + static_cast<int>(threadIdx.x); i < kWords;
         i += args.at.slices * kThreads) {
      words[i] = 0;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int i = 1; i < kThreads / kWarp; ++i) best = warps[i] > best ? warps[i] : best;
  args.at.largest[blockIdx.x] = best;
}

// At least 4 blocks a multiprocessor: with a target of its own ptxas spills for some GPUs.
template <class T, int kWide, int kPass>
__global__ void __launch_bounds__(kThreads, 4) SamplePass(const T* x, const Args args) {
  WaitForPrevious();
  // Weights in two halves: shared memory adds 32 bits at once, and a slice's halves fit.
  __shared__ std::uint32_t counts[kBins], low[kBins], high[kBins];
  constexpr int kBits = kBinBits[kPass], kUsed = 1 << kBits, kBelow = kShift[kPass];
  const Block block = BlockOf(args);
  const Head head = HeadOf(args, block.row);
  if (head.row.scale == 0 || (head.row.top_k == 0 && head.row.top_p >= kOne)) return;
  RowState& state = args.at.rows[block.row];
  Step step{};
  if constexpr (kPass > 0) {
    step = StepOf<kPass>(head.row, state, head.largest);
    if (block.slice == 0 && threadIdx.x == 0) state.steps[kPass] = step;
    if (step.bound == Bound::kNone) return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kUsed; i += kThreads) {
    counts[i] = low[i] = high[i] = 0;
  }
  __syncthreads();
  EachLogit<T, kWide>(x, args, block, [&](float value, std::int64_t) {
    const std::uint32_t order = OrderOf(value);
    if constexpr (kPass > 0) {
      if (order >> (kBelow + kBits) != step.prefix) return;
    }
    const std::uint64_t weight = WeightOf(value, head.largest, head.row.scale);
    if (weight == 0) return;
    const std::uint32_t bin = order >> kBelow & (kUsed - 1);
    atomicAdd(counts + bin, 1u);
    atomicAdd(low + bin, static_cast<std::uint32_t>(weight) & 0xFFFFu);
    atomicAdd(high + bin, static_cast<std::uint32_t>(weight >> 16));
  });
  __syncthreads();
  Histogram& to = state.passes[kPass];
  for (int i = static_cast<int>(threadIdx.x); i < kUsed; i += kThreads) {
    if (counts[i] == 0) continue;
    atomicAdd(to.counts + i, counts[i]);
    atomicAdd(to.weights + i, (Sum{high[i]} << 16) + low[i]);
  }
}

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) SampleSums(const T* x, const Args args) {
  WaitForPrevious();
  const Block block = BlockOf(args);
  const Head head = HeadOf(args, block.row);
  if (head.row.scale == 0) return;
  RowState& state = args.at.rows[block.row];
  Kept kept{0, 0};
  if (head.row.top_k > 0 || head.row.top_p < kOne) kept = KeptOf(head.row, state, head.largest);
  Sum above = 0, ties = 0;
  EachLogit<T, kWide>(x, args, block, [&](float value, std::int64_t) {
    const std::uint32_t order = OrderOf(value);
    if (order < kept.order) return;
    const std::uint64_t weight = WeightOf(value, head.largest, head.row.scale);
    if (order == kept.order) ++ties;
    if (order > kept.order && weight >= head.row.min_p) above += weight;
  });
  const Sum all_above = ScanBlock(above).total, all_ties = ScanBlock(ties).total;
  if (threadIdx.x != 0) return;
  args.at.sums[blockIdx.x] = {all_above, static_cast<std::uint32_t>(all_ties)};
  if (block.slice == 0) state.kept = kept;
}

// What of the ties of a part is kept, when `before` of them come first.
__device__ __forceinline__ Sum TiesOf(const Kept& kept, Sum before, Sum ties) {
  const Sum left = before < kept.ties ? kept.ties - before : 0;
  return ties < left ? ties : left;
}

// A block a row: the slice that the random number falls into, the thread, the token.
template <class T>
__global__ void __launch_bounds__(kThreads) SampleDraw(const T* x, const Args args) {
  WaitForPrevious();
  __shared__ int hit_slice;
  __shared__ Sum hit_left, hit_ties;
  const std::int64_t row = blockIdx.x;
  const Head head = HeadOf(args, row);
  if (threadIdx.x == 0) {
    args.out[row] = IndexOf(head.key);
    hit_slice = -1;
  }
  if (head.row.scale == 0) return;
  const Kept kept = args.at.rows[row].kept;
  Sum tie =
      kept.ties > 0 ? WeightOf(sampling::ValueOf(kept.order), head.largest, head.row.scale) : 0;
  if (tie < head.row.min_p) tie = 0;
  const SliceSum* const sums = args.at.sums + row * args.at.slices;

  // Over all slices: their sum at first, then where the draw falls.
  Sum target = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const bool drawn = pass == 1;
    Sum all = 0, all_ties = 0;
    for (int first = 0; first < args.at.slices; first += kThreads) {
      const int slice = first + static_cast<int>(threadIdx.x);
      const SliceSum its = slice < args.at.slices ? sums[slice] : SliceSum{0, 0};
      const Scanned ties = ScanBlock(its.ties);
      const Sum weight = its.above + TiesOf(kept, all_ties + ties.before, its.ties) * tie;
      const Scanned weights = ScanBlock(weight);
      const Sum before = all + weights.before;
      if (drawn && before <= target && target < before + weight) {
        hit_slice = slice;
        hit_left = target - before;
        hit_ties = all_ties + ties.before;
      }
      all += weights.total;
      all_ties += ties.total;
    }
    if (!drawn) {
      const std::uint32_t draw = static_cast<std::uint32_t>(args.draws[row]) + args.first_draw;
      target = sampling::MulHigh64(sampling::RandomBits(head.row.seed, draw), all);
    }
  }
  __syncthreads();
  if (hit_slice < 0) return;  // options that nobody packed

  constexpr int kEach = kSlice / kThreads;
  const std::int64_t begin = hit_slice * kSlice + static_cast<std::int64_t>(threadIdx.x) * kEach;
  const int count = begin + kEach <= args.cols ? kEach
                    : begin < args.cols        ? static_cast<int>(args.cols - begin)
                                               : 0;
  const T* const from = x + row * args.cols + begin;
  Sum above = 0, its_ties = 0;
  for (int i = 0; i < count; ++i) {
    const float value = ToFloat(from[i]);
    const std::uint32_t order = OrderOf(value);
    if (order == kept.order) ++its_ties;
    if (order <= kept.order) continue;
    const Sum weight = WeightOf(value, head.largest, head.row.scale);
    if (weight >= head.row.min_p) above += weight;
  }
  Sum ties_before = hit_ties + ScanBlock(its_ties).before;
  const Sum weight = above + TiesOf(kept, ties_before, its_ties) * tie;
  const Scanned weights = ScanBlock(weight);
  if (hit_left < weights.before || hit_left >= weights.before + weight) return;
  Sum left = hit_left - weights.before;
  for (int i = 0; i < count; ++i) {
    const float value = ToFloat(from[i]);
    const std::uint32_t order = OrderOf(value);
    if (order < kept.order) continue;
    Sum its = WeightOf(value, head.largest, head.row.scale);
    if (its < head.row.min_p) its = 0;
    if (order == kept.order && ties_before++ >= kept.ties) its = 0;
    if (left < its) {
      args.out[row] = static_cast<std::int32_t>(begin + i);
      return;
    }
    left -= its;
  }
}

std::size_t Aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// Where the parts of a workspace begin, and how many bytes it has.
std::size_t Lay(std::int64_t rows, std::int64_t cols, std::uintptr_t workspace, Places& at) {
  at.slices = static_cast<int>(CeilDiv(cols, kSlice));
  const auto count = static_cast<std::size_t>(rows);
  const std::size_t slices = count * static_cast<std::size_t>(at.slices);
  const std::size_t states = Aligned(count * sizeof(RowState));
  const std::size_t sums = Aligned(slices * sizeof(SliceSum));
  at.rows = reinterpret_cast<RowState*>(workspace);
  at.sums = reinterpret_cast<SliceSum*>(workspace + states);
  at.largest = reinterpret_cast<std::uint64_t*>(workspace + states + sums);
  return states + sums + slices * sizeof(std::uint64_t);
}

template <class T, int kWide>
cudaError_t LaunchAll(const T* x, const Args& args, std::int64_t rows, LaunchStream stream) {
  using Kernel = void (*)(const T*, const Args);
  const dim3 slices = Blocks(rows * args.at.slices);
  const Kernel kernels[] = {&SampleLargest<T, kWide>, &SamplePass<T, kWide, 0>,
                            &SamplePass<T, kWide, 1>, &SamplePass<T, kWide, 2>,
                            &SamplePass<T, kWide, 3>, &SamplePass<T, kWide, 4>,
                            &SampleSums<T, kWide>};
  for (const Kernel kernel : kernels) {
    const cudaError_t error = Launch(kernel, slices, kThreads, stream, x, args);
    if (error != cudaSuccess) return error;
  }
  return Launch(Kernel{&SampleDraw<T>}, Blocks(rows), kThreads, stream, x, args);
}

}  // namespace

std::size_t SampleWorkspace(std::int64_t rows, std::int64_t cols) {
  Places at{};
  return Lay(rows, cols, 0, at);
}

cudaError_t Sample(const SampleArgs& from, LaunchStream stream) {
  if (from.rows == 0) return cudaSuccess;
  Args args{from.options, from.draws, from.first_draw, from.out, from.cols, {}};
  Lay(from.rows, from.cols, reinterpret_cast<std::uintptr_t>(from.workspace), args.at);
  return WithValue(from.type, [&]<class T>(T) {
    const auto* x = static_cast<const T*>(from.logits);
    return IsWide(from.cols, x) ? LaunchAll<T, 8>(x, args, from.rows, stream)
                                : LaunchAll<T, 1>(x, args, from.rows, stream);
  });
}

}  // namespace culet::cuda_ops
