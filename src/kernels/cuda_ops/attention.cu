// Attention: the launches of a plan, and the merge of what splits of the keys found.
#include "kernels/cuda_ops/attention.cuh"

#include <algorithm>
#include <iterator>

#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/latent_attention.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;

// A block for each row and head, a thread for each kColumns neighbours of its result; splits in
// their order, so that the bits are always the same. Splits without keys, never the first one, may
// have left no values.
template <int kColumns>
__global__ void __launch_bounds__(kThreads)
    MergeSplits(const __grid_constant__ AttentionArgs args, int splits) {
  WaitForPrevious();
  const AttentionParams& p = args.params;
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.heads));
  const AttentionPart first(args, args.rows, row, head, splits, 0);
  constexpr int kAtOnce = 8, kStep = kThreads * kColumns;  // splits whose loads are in flight
  float highest = kNoKey;
#pragma unroll 8
  for (int split = 0; split < splits; ++split) {
    highest = fmaxf(highest, first.maxima[first.index + split]);
  }
  for (int dim = static_cast<int>(threadIdx.x) * kColumns; dim < args.width; dim += kStep) {
    float total = 0, value[kColumns] = {};
#pragma unroll 1
    for (int begin = 0; begin < splits; begin += kAtOnce) {
      float weight[kAtOnce], part[kAtOnce][kColumns];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int split = begin + i < splits ? begin + i : 0;
        const float most = begin + i < splits ? first.maxima[first.index + split] : kNoKey;
        const bool has_keys = most != kNoKey;
        weight[i] = has_keys ? Rescale(most, highest) : 0.0f;
        total = fmaf(first.sums[first.index + split], weight[i], total);
        Load(first.values + (has_keys ? std::int64_t{split} * args.width : 0) + dim, part[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) value[c] = fmaf(part[i][c], weight[i], value[c]);
      }
    }
    total = WithSink(args, head, highest, total);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      StoreValue(value[i] / total, args.out, args.out_type,
                 (row * p.heads + head) * args.width + dim + i);
    }
  }
}

cudaError_t Merge(const AttentionArgs& args, int splits, LaunchStream stream) {
  const dim3 grid = Blocks(args.rows * args.params.heads);
  return args.width % 4 == 0 ? Launch(&MergeSplits<4>, grid, kThreads, stream, args, splits)
                             : Launch(&MergeSplits<1>, grid, kThreads, stream, args, splits);
}

// Fills in the derived fields.
AttentionArgs Completed(AttentionArgs args) {
  args.wide = IsWide(args.params.head_dim, static_cast<const char*>(args.k),
                     static_cast<const char*>(args.v));
  args.width = args.params.out_dim();
  constexpr float kLog2E = 1.44269504f;
  args.log2_scale = args.params.scale * kLog2E;
  args.log2_cap = args.params.softcap * kLog2E;
  if (args.params.block_size > 0) {
    args.blocks = static_cast<int>(args.key_rows / args.params.block_size);
    args.per_block = static_cast<std::uint32_t>(
        std::min<std::int64_t>((std::int64_t{1} << 32) / args.params.block_size, 0xFFFFFFFF));
  }
  return args;
}

// The kernels on tensor cores of a type of keys and values: how each is launched, and allowed its
// shared memory.
struct TypeKernels {
  template <class... Args>
  struct Kernel {
    cudaError_t (*launch)(Args... args, LaunchStream stream);
    cudaError_t (*allow)(int head_dim);
  };
  DataType type;
  Kernel<const AttentionArgs&> decode, tiles, wgmma;
  Kernel<const FusedHeadsArgs&, const AttentionArgs&> heads;
};
constexpr TypeKernels kKernels[] = {
    {.type = DataType::kBfloat16,
     .decode = {DecodeOfBfloat16, AllowDecodeOfBfloat16},
     .tiles = {TilesOfBfloat16, AllowTilesOfBfloat16},
     .wgmma = {WgmmaOfBfloat16, AllowWgmmaOfBfloat16},
     .heads = {HeadsDecodeOfBfloat16, AllowHeadsDecodeOfBfloat16}},
    {.type = DataType::kFloat16,
     .decode = {DecodeOfFloat16, AllowDecodeOfFloat16},
     .tiles = {TilesOfFloat16, AllowTilesOfFloat16},
     .wgmma = {WgmmaOfFloat16, AllowWgmmaOfFloat16},
     .heads = {HeadsDecodeOfFloat16, AllowHeadsDecodeOfFloat16}},
    {.type = DataType::kFloat8_e4m3,
     .decode = {DecodeOfE4m3, AllowDecodeOfE4m3},
     .tiles = {TilesOfE4m3, AllowTilesOfE4m3},
     .wgmma = {WgmmaOfE4m3, AllowWgmmaOfE4m3},
     .heads = {HeadsDecodeOfE4m3, AllowHeadsDecodeOfE4m3}},
};

// Null for a type that they do not take.
const TypeKernels* KernelsOf(DataType type) {
  const auto* const found = std::ranges::find(kKernels, type, &TypeKernels::type);
  return found != std::end(kKernels) ? found : nullptr;
}

// Row by row, in FP32.
cudaError_t LanesOf(const AttentionArgs& args, LaunchStream stream) {
  switch (args.kv_type) {
    case DataType::kFloat32:
      return AttentionOfFloat32(args, stream);
    case DataType::kBfloat16:
      return AttentionOfBfloat16(args, stream);
    case DataType::kFloat16:
      return AttentionOfFloat16(args, stream);
    case DataType::kFloat8_e4m3:
      return AttentionOfE4m3(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t PrepareAttention(const AttentionShape& shape, const AttentionPlan& plan) {
  const int dim = shape.params.head_dim;
  if (plan.latent) return PrepareLatentAttention(shape, plan);
  if (plan.near_warps > 0) return AllowNearOfBfloat16(dim);
  if (!plan.tensor_cores) return cudaSuccess;
  const TypeKernels* const kernels = KernelsOf(shape.kv_type);
  if (kernels == nullptr) return cudaErrorInvalidValue;
  const cudaError_t error = plan.has_decode ? kernels->decode.allow(dim) : cudaSuccess;
  if (error != cudaSuccess || !plan.has_tiles) return error;
  return (plan.wgmma ? kernels->wgmma : kernels->tiles).allow(dim);
}

cudaError_t PrepareHeadsAttention(const AttentionShape& shape, const AttentionPlan& plan) {
  const int dim = shape.params.head_dim;
  if (plan.near_warps > 0) return AllowHeadsNearOfBfloat16(dim);
  const TypeKernels* const kernels = KernelsOf(shape.kv_type);
  return kernels != nullptr ? kernels->heads.allow(dim) : cudaErrorInvalidValue;
}

cudaError_t HeadsAttention(const FusedHeadsArgs& heads, const AttentionArgs& given,
                           LaunchStream stream) {
  if (given.rows == 0) return cudaSuccess;
  const AttentionArgs args = Completed(given);
  const TypeKernels* const kernels = KernelsOf(args.kv_type);
  const bool wide = args.wide && IsWide(args.params.head_dim, static_cast<const char*>(args.out),
                                        static_cast<const char*>(heads.qkv));
  if (kernels == nullptr || !wide || !args.plan.has_decode || args.plan.has_tiles) {
    return cudaErrorInvalidValue;
  }
  if (args.plan.near_warps > 0) return HeadsNearOfBfloat16(heads, args, stream);
  return kernels->heads.launch(heads, args, stream);
}

cudaError_t Attention(const AttentionArgs& given, LaunchStream stream) {
  if (given.rows == 0) return cudaSuccess;
  const AttentionArgs args = Completed(given);
  const AttentionPlan& plan = args.plan;
  if (plan.latent) {
    int splits = 1;
    const cudaError_t error = LatentAttention(args, stream, &splits);
    return error != cudaSuccess || splits == 1 ? error : Merge(args, splits, stream);
  }
  const auto address = [](const void* pointer) { return static_cast<const char*>(pointer); };
  const bool values_wide = IsWide(args.params.head_dim, address(args.q), address(args.out));
  if (!plan.tensor_cores || !args.wide || !values_wide) {
    const cudaError_t error = LanesOf(args, stream);
    if (error != cudaSuccess || plan.lanes.most == 1) return error;
    return Merge(args, plan.lanes.most, stream);
  }
  if (plan.near_warps > 0) return NearOfBfloat16(args, stream);
  const TypeKernels* const kernels = KernelsOf(args.kv_type);
  if (kernels == nullptr) return cudaErrorInvalidValue;
  const cudaError_t error = plan.has_decode ? kernels->decode.launch(args, stream) : cudaSuccess;
  if (error != cudaSuccess || !plan.has_tiles) return error;
  return (plan.wgmma ? kernels->wgmma : kernels->tiles).launch(args, stream);
}

}  // namespace culet::cuda_ops
