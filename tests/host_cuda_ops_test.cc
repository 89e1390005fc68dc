// The CUDA dispatch and its kernels on the CPU (tests/host_cuda), with the CPU's products.
#include "cuda/op_cases.h"
#include "host_cuda/host_cuda.h"
#include "host_cuda/test_dispatch.h"
#include "kernels/cuda_ops/launch.cuh"

namespace culet {

namespace {

// -- The CUDA emulation itself: faults on a GPU must fail here ----------------------------------

constexpr int kThreads = 96;

__global__ void Reverse(const int* from, int* to, bool barrier) {
  __shared__ int all[kThreads];
  all[threadIdx.x] = from[blockIdx.x * kThreads + threadIdx.x];
  if (barrier) __syncthreads();
  to[blockIdx.x * kThreads + threadIdx.x] = all[kThreads - 1 - threadIdx.x];
}

__global__ void HalfWait() {
  if (threadIdx.x < 32) __syncthreads();
}

__global__ void SumOfLanes(int* to, unsigned mask) {
  int sum = static_cast<int>(threadIdx.x);
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(mask, sum, lanes);
  to[threadIdx.x] = sum;
}

std::vector<int> Numbers(std::size_t count) {
  std::vector<int> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<int>(i);
  return numbers;
}

TEST(HostCuda, AMissingBarrierShows) {
  const std::vector<int> from = Numbers(4 * kThreads);
  std::vector<int> right(from.size()), wrong(from.size());
  ASSERT_EQ(cuda_ops::Launch(&Reverse, dim3(4), kThreads, nullptr, from.data(), right.data(), true),
            cudaSuccess);
  ASSERT_EQ(
      cuda_ops::Launch(&Reverse, dim3(4), kThreads, nullptr, from.data(), wrong.data(), false),
      cudaSuccess);
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(right[i], from[i / kThreads * kThreads + kThreads - 1 - i % kThreads]);
  }
  EXPECT_NE(wrong, right);
}

TEST(HostCuda, ABarrierThatNotAllReachFails) {
  EXPECT_EQ(cuda_ops::Launch(&HalfWait, dim3(1), 64, nullptr), cudaErrorLaunchFailure);
  EXPECT_EQ(host_cuda::Fault(),
            "of 64 threads 32 wait for their block, 0 for their warp, 0 for their cluster, 0 for "
            "barriers, 32 have ended");
}

TEST(HostCuda, AGridThatDoesNotExistIsNotLaunched) {
  std::vector<int> sums(32, -1);
  for (const dim3 grid :
       {cuda_ops::Blocks(std::int64_t{1} << 31), cuda_ops::Blocks((std::int64_t{1} << 32) + 1),
        cuda_ops::Blocks(1, std::int64_t{1} << 16)}) {
    EXPECT_NE(cuda_ops::Launch(&SumOfLanes, grid, 32, nullptr, sums.data(), ~0u), cudaSuccess);
  }
  EXPECT_EQ(sums, std::vector<int>(32, -1));
}

TEST(HostCuda, ShufflesAreOfTheirMask) {
  std::vector<int> sums(64);
  ASSERT_EQ(cuda_ops::Launch(&SumOfLanes, dim3(1), 64, nullptr, sums.data(), ~0u), cudaSuccess);
  EXPECT_EQ(sums[3], 496);
  EXPECT_EQ(sums[40], 496 + 32 * 32);
  EXPECT_EQ(cuda_ops::Launch(&SumOfLanes, dim3(1), 32, nullptr, sums.data(), 0xFFFFu),
            cudaErrorLaunchFailure);
}

__global__ void Hasty(bool wait) {
  if (wait || threadIdx.x < 5) cuda_ops::WaitForPrevious();
}

TEST(HostCuda, AnOverlapWithoutAWaitFails) {
  const cuda_ops::LaunchStream overlapping{nullptr, true};
  EXPECT_EQ(cuda_ops::Launch(&Hasty, dim3(2), 32, nullptr, false), cudaSuccess);
  EXPECT_EQ(cuda_ops::Launch(&Hasty, dim3(2), 32, overlapping, true), cudaSuccess);
  EXPECT_EQ(cuda_ops::Launch(&Hasty, dim3(2), 32, overlapping, false), cudaErrorLaunchFailure);
  EXPECT_EQ(host_cuda::Fault(), "of 64 threads that overlap 10 wait for the kernel before");
}

}  // namespace
}  // namespace culet
