// Launches of the gated delta rule in chunks.
#include "kernels/cuda_ops/linear_chunks.h"

#include "kernels/cuda_ops/linear_chunks_prepare.cuh"
#include "kernels/cuda_ops/linear_chunks_scan.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kMostKey = 128;

// function(X{}, the number of keys with which kernels are made).
template <class Function>
auto WithKernels(DataType type, int key_dim, Function&& function) {
  using Keys64 = std::integral_constant<int, 64>;
  using Keys128 = std::integral_constant<int, 128>;
  if (type == DataType::kFloat32) {
    return key_dim <= 64 ? function(float{}, Keys64{}) : function(float{}, Keys128{});
  }
  return key_dim <= 64 ? function(__nv_bfloat16{}, Keys64{}) : function(__nv_bfloat16{}, Keys128{});
}

template <class Kernel>
bool AllowShared(Kernel kernel, int bytes) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
      cudaSuccess) {
    return true;
  }
  static_cast<void>(cudaGetLastError());  // the device has less
  return false;
}

chunks::ChunkArgs ArgsOf(const GatedDeltaArgs& args, void* workspace) {
  chunks::ChunkArgs of;
  of.delta = args;
  of.slots = chunks::Slots::Of(args.states.tokens, args.states.sequences);
  of.workspace = static_cast<char*>(workspace);
  const std::int64_t value_cols = std::int64_t{args.value_heads} * args.value_dim;
  of.wide = IsWide(args.key_dim | value_cols, static_cast<const char*>(args.x));
  return of;
}

}  // namespace

std::size_t PrepareDeltaChunks(const DeltaShape& shape) {
  if (shape.tokens < kLeastChunked || shape.sequences < 1 || shape.key_dim > kMostKey) return 0;
  // Where every row is a sequence's own, none has a chunk.
  if (shape.tokens - shape.sequences + 1 < kLeastChunked) return 0;
  return WithKernels(
      shape.type, shape.key_dim, [&]<class X, int kKeys>(X, std::integral_constant<int, kKeys>) {
        if (!AllowShared(&chunks::PrepareChunks<X, kKeys>,
                         chunks::PrepareMemory<X, kKeys>::kBytes) ||
            !AllowShared(&chunks::ScanChunks<X, kKeys>, chunks::ScanMemory<X, kKeys>::kBytes)) {
          return std::size_t{0};
        }
        const std::int64_t slots = chunks::Slots::Of(shape.tokens, shape.sequences).count;
        return static_cast<std::size_t>(slots * shape.value_heads) * chunks::Prepared<X>::kBytes;
      });
}

cudaError_t SolveDeltaChunks(const GatedDeltaArgs& args, void* workspace, LaunchStream stream) {
  const chunks::ChunkArgs of = ArgsOf(args, workspace);
  return WithKernels(
      args.x_type, args.key_dim, [&]<class X, int kKeys>(X, std::integral_constant<int, kKeys>) {
        return LaunchShared(&chunks::PrepareChunks<X, kKeys>,
                            Blocks(of.slots.count * args.value_heads), chunks::kThreads,
                            chunks::PrepareMemory<X, kKeys>::kBytes, stream, of);
      });
}

cudaError_t GatedDeltaChunks(const GatedDeltaArgs& args, void* workspace, LaunchStream stream) {
  cudaError_t error = GatedDeltaTokens(args, kLeastChunked, stream);
  if (error == cudaSuccess) error = SolveDeltaChunks(args, workspace, stream);
  if (error != cudaSuccess) return error;
  const chunks::ChunkArgs of = ArgsOf(args, workspace);
  return WithKernels(
      args.x_type, args.key_dim, [&]<class X, int kKeys>(X, std::integral_constant<int, kKeys>) {
        const std::int64_t pieces = CeilDiv(args.value_dim, chunks::kColumns);
        return LaunchShared(&chunks::ScanChunks<X, kKeys>,
                            Blocks(args.value_heads * pieces, args.states.sequences),
                            chunks::kThreads, chunks::ScanMemory<X, kKeys>::kBytes, stream, of);
      });
}

}  // namespace culet::cuda_ops
