// The CPU has no warpgroup products: prompts take the kernel of every GPU.
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/latent_attention.cuh"

namespace culet::cuda_ops {

bool CanMultiplyWarpgroups() { return false; }
cudaError_t WgmmaOfBfloat16(const AttentionArgs&, LaunchStream) { return cudaErrorInvalidValue; }
cudaError_t WgmmaOfFloat16(const AttentionArgs&, LaunchStream) { return cudaErrorInvalidValue; }
cudaError_t WgmmaOfE4m3(const AttentionArgs&, LaunchStream) { return cudaErrorInvalidValue; }
cudaError_t AllowWgmmaOfBfloat16(int) { return cudaErrorInvalidValue; }
cudaError_t AllowWgmmaOfFloat16(int) { return cudaErrorInvalidValue; }
cudaError_t AllowWgmmaOfE4m3(int) { return cudaErrorInvalidValue; }
cudaError_t LatentWgmmaOfBfloat16(const AttentionArgs&, LaunchStream) {
  return cudaErrorInvalidValue;
}
cudaError_t LatentWgmmaOfFloat16(const AttentionArgs&, LaunchStream) {
  return cudaErrorInvalidValue;
}
cudaError_t AllowLatentWgmmaOfBfloat16() { return cudaErrorInvalidValue; }
cudaError_t AllowLatentWgmmaOfFloat16() { return cudaErrorInvalidValue; }

}  // namespace culet::cuda_ops
