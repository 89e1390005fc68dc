// Attention: the choice of a kernel, and the merge of what splits of the keys found.
#include "kernels/cuda_ops/attention.cuh"

#include <algorithm>

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;

// A block for each row and head; splits in their order, so that the bits are always the same.
__global__ void __launch_bounds__(kThreads)
    MergeSplits(const __grid_constant__ AttentionArgs args) {
  WaitForPrevious();
  const AttentionParams& p = args.params;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.heads));
  const AttentionPart first(args, row, head, 0);
  float highest = kNoKey;
#pragma unroll 8
  for (int split = 0; split < args.splits; ++split) {
    highest = fmaxf(highest, first.maxima[first.index + split]);
  }
  for (int dim = static_cast<int>(threadIdx.x); dim < p.head_dim; dim += kThreads) {
    float total = 0, value = 0;
#pragma unroll 8
    for (int split = 0; split < args.splits; ++split) {
      const float weight = Rescale(first.maxima[first.index + split], highest);
      total = fmaf(first.sums[first.index + split], weight, total);
      value = fmaf(first.values[std::int64_t{split} * p.head_dim + dim], weight, value);
    }
    StoreValue(value / total, args.out, args.out_type, (row * p.heads + head) * p.head_dim + dim);
  }
}

}  // namespace

int AttentionSplits(const AttentionParams& params, std::int64_t rows, std::int64_t most_keys,
                    int multiprocessors) {
  // Blocks that a multiprocessor holds at a time, and keys below which a block is all overhead.
  constexpr std::int64_t kResident = 4, kLeastKeys = 32, kMost = 64;
  const int group = params.heads / params.kv_heads;
  const std::int64_t blocks = rows * params.kv_heads * CeilDiv(group, 8);
  const std::int64_t wanted = kResident * multiprocessors / std::max<std::int64_t>(blocks, 1);
  return static_cast<int>(
      std::clamp<std::int64_t>(std::min(wanted, most_keys / kLeastKeys), 1, kMost));
}

std::size_t AttentionWorkspace(const AttentionParams& params, std::int64_t rows, int splits) {
  if (splits == 1) return 0;
  const std::int64_t parts = rows * params.heads * splits;
  return static_cast<std::size_t>(parts * (2 + params.head_dim)) * sizeof(float);
}

cudaError_t Attention(const AttentionArgs& given, LaunchStream stream) {
  if (given.rows == 0) return cudaSuccess;
  AttentionArgs args = given;
  const auto address = [](const void* pointer) { return static_cast<const char*>(pointer); };
  args.wide = IsWide(args.params.head_dim, address(args.k), address(args.v));
  cudaError_t error = cudaErrorInvalidValue;
  if (args.kv_type == DataType::kFloat32) error = AttentionOfFloat32(args, stream);
  if (args.kv_type == DataType::kBfloat16) error = AttentionOfBfloat16(args, stream);
  if (args.kv_type == DataType::kFloat16) error = AttentionOfFloat16(args, stream);
  if (error != cudaSuccess || args.splits == 1) return error;
  return Launch(&MergeSplits, Blocks(args.rows * args.params.heads), kThreads, stream, args);
}

}  // namespace culet::cuda_ops
