// CUDA kernels on the CPU, for tests: a .cu file compiled as C++ with this folder before the
// toolkit's. Each thread of a block is a fiber; those that can run do so one at a time, in an order
// that is shuffled anew after each barrier, so that a missing barrier shows. Blocks follow each
// other, shuffled too; those of a cluster run at once, and may have no static shared memory. A
// barrier or shuffle that not all of its threads reach fails the launch. Threads of the process are
// GPUs of their own, whose kernels run side by side and meet in memory.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "culet/types.h"

#if __has_include(<vector_types.h>)
#include <vector_types.h>
#undef __shared__
#undef __device__
#undef __global__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#else
struct uint2 {
  unsigned x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
#endif

#define __global__
#define __device__
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

// -- The runtime ----------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorLaunchFailure = 719
};
inline const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "an error of the CPU's CUDA";
}
const char* cudaGetErrorString(cudaError_t error);
/// Nothing is left pending here: each call returns its own error.
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

enum cudaLaunchAttributeID {
  cudaLaunchAttributeProgrammaticStreamSerialization,
  cudaLaunchAttributeClusterDimension
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct cudaFuncAttributes {
  int ptxVersion;
};
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) {
  return attributes->ptxVersion = 90, cudaSuccess;
}

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess,
  cudaDriverEntryPointSymbolNotFound
};
enum { cudaEnableDefault = 0 };
/// The functions of cudaTypedefs.h.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             int flags, cudaDriverEntryPointQueryResult* found);

enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

// One device, whose streams run at once.
inline const cudaStream_t cudaStreamLegacy = nullptr, cudaStreamPerThread = nullptr;
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) { return cudaGetDevice(device); }

namespace culet::host_cuda {

/// Runs a grid; `body` is called once in every thread. With programmatic serialization every thread
/// that runs has to call WaitForPrevious. Clusters are of neighbours in y.
cudaError_t RunGrid(const cudaLaunchConfig_t& config, const std::function<void()>& body);

/// `before` is called at the beginning of each launch, which fails with the error that it returns.
/// Null: nothing.
void OnLaunch(std::function<cudaError_t()> before);

/// Nothing runs before a kernel here, but what OnWait was given.
void WaitForPrevious();
/// `work` is what the kernel before does last: it is called once in each launch, when all threads
/// of a block wait and before one goes on. Null: nothing.
void OnWait(std::function<void()> work);
/// Whether each launch since the last call may begin before the one before it has ended.
std::vector<bool> TakeOverlaps();

/// What was wrong with the last launch that failed.
const std::string& Fault();

enum class Meeting { kBarrier, kShuffle, kBallot, kWork };
/// Waits for all threads of the block; the or of their `flag`.
bool MeetBlock(bool flag);
/// Waits for the lanes of `mask`, which must all come with the same `what`. A shuffle returns the
/// value of lane `from`, a ballot the lanes whose value is not 0.
std::uint64_t MeetWarp(unsigned mask, Meeting what, std::uint64_t value, int from);
int Lane();
/// In a loop that waits for another GPU: the other threads go on, and other GPUs get a processor.
void Pause();
/// Waits for all threads of the block's cluster, of which none may have ended.
void MeetCluster();
/// The dynamic shared memory of block `rank` of the cluster, which must be running.
char* SharedOfCluster(int rank);
/// Waits for all lanes of the warp, each of which gives a pointer; `work` is called once with all.
using Work = void (*)(void* const (&lanes)[32]);
void WorkOfWarp(void* mine, Work work);

/// The block's dynamic shared memory: NaN in any type when it begins.
char* DynamicShared();
/// A kernel may not ask for more than 48 KB of it unless that is allowed here.
void AllowShared(const void* kernel, std::size_t bytes);
bool IsSharedAllowed(const void* kernel, std::size_t bytes);

/// Copies of the running thread: each happens at once or when it is waited for, as may be.
void CopyAsync(void* to, const void* from, std::size_t bytes, std::size_t size);
void CommitCopies();
void AwaitCopies(int pending);

}  // namespace culet::host_cuda

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int bytes) {
  culet::host_cuda::AllowShared(reinterpret_cast<const void*>(kernel),
                                static_cast<std::size_t>(bytes));
  return cudaSuccess;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (!culet::host_cuda::IsSharedAllowed(reinterpret_cast<const void*>(kernel),
                                         config->dynamicSmemBytes)) {
    return cudaErrorInvalidValue;
  }
  return culet::host_cuda::RunGrid(*config, [&] { kernel(arguments...); });
}

// -- What kernels use -----------------------------------------------------------------------------

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

inline void __syncthreads() { culet::host_cuda::MeetBlock(false); }
inline int __syncthreads_or(int flag) { return culet::host_cuda::MeetBlock(flag != 0); }
inline void __syncwarp(unsigned mask = ~0u) {
  culet::host_cuda::MeetWarp(mask, culet::host_cuda::Meeting::kBarrier, 0, 0);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const int first = culet::host_cuda::Lane() / width * width;
  bits = culet::host_cuda::MeetWarp(mask, culet::host_cuda::Meeting::kShuffle, bits,
                                    first + from % width);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, culet::host_cuda::Lane() ^ lanes);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int lanes) {
  const int lane = culet::host_cuda::Lane();
  return __shfl_sync(mask, value, lane < lanes ? lane : lane - lanes);
}
inline unsigned __ballot_sync(unsigned mask, int flag) {
  return static_cast<unsigned>(culet::host_cuda::MeetWarp(
      mask, culet::host_cuda::Meeting::kBallot, static_cast<std::uint64_t>(flag != 0), 0));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const unsigned other = __shfl_xor_sync(mask, value, lanes);
    value = other > value ? other : value;
  }
  return value;
}
inline int __any_sync(unsigned mask, int flag) { return __ballot_sync(mask, flag) != 0; }
inline int __all_sync(unsigned mask, int flag) { return __ballot_sync(mask, flag) == mask; }

// Blocks run one after the other, threads one at a time.
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
inline void __threadfence() {}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
/// Byte i of the result is byte s of y:x, s the i-th four bits of `selector`.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return result;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
inline int __ffs(unsigned bits) { return bits == 0 ? 0 : std::countr_zero(bits) + 1; }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }

inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline unsigned __vmaxu2(unsigned a, unsigned b) {
  const unsigned low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a & 0xFFFFu : b & 0xFFFFu;
  const unsigned high = (a >> 16) > (b >> 16) ? a >> 16 : b >> 16;
  return low | high << 16;
}
inline void sincospif(float x, float* sine, float* cosine) {
  constexpr double kPi = 3.14159265358979323846;
  *sine = static_cast<float>(std::sin(kPi * x));
  *cosine = static_cast<float>(std::cos(kPi * x));
}
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
