#include "cuda/quantize_e4m3.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace culet {
namespace {

constexpr int kThreads = 256;

// x / scale rounded to nearest even, by one Newton step on x * (1 / scale): equal to the division
// for all 128 x 128 pairs of BF16 mantissas (checked exhaustively), as long as nothing underflows.
__device__ __forceinline__ float DivideExact(float x, float scale, float reciprocal) {
  const float quotient = x * reciprocal;
  const float refined = fmaf(fmaf(-quotient, scale, x), reciprocal, quotient);
  // The step turns -0 into +0; the scale is positive, so the sign is x's.
  return __uint_as_float(__float_as_uint(refined) | (__float_as_uint(x) & 0x80000000u));
}

template <bool kFast>
__device__ __forceinline__ uint32_t QuantizeFour(const float (&x)[4], float scale,
                                                 float reciprocal) {
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    v[i] = kFast ? DivideExact(x[i], scale, reciprocal) : __fdiv_rn(x[i], scale);
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(v[0], v[1]), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high =
      __nv_cvt_float2_to_fp8x2(make_float2(v[2], v[3]), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

__device__ __forceinline__ float FromBf16(uint32_t pair, bool high) {
  return __uint_as_float(high ? pair & 0xFFFF0000u : pair << 16);
}

// A lane takes kLoads x 8 elements of its group.
template <int kLoads>
constexpr int kLanesOfGroup = 16 / kLoads;
template <int kLoads>
constexpr int kGroupsOfCta = kThreads / kLanesOfGroup<kLoads>;

// kVector: rows start at 16-byte boundaries (values: at multiples of 8 * kLoads bytes) and k is a
// multiple of 8 * kLoads. No cache hints: with ld.global.cs a long tensor took 8 % longer.
template <bool kVector, int kLoads>
__global__ void __launch_bounds__(kThreads) QuantizeE4m3(const QuantizeE4m3Args args) {
  static_assert(kVector || kLoads == 1);
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  constexpr int kLanes = kLanesOfGroup<kLoads>;
  const int lane = threadIdx.x % kLanes;
  const uint32_t groups_per_row = (static_cast<uint32_t>(args.k) + 127) / 128;
  const uint32_t group = blockIdx.x * kGroupsOfCta<kLoads> + threadIdx.x / kLanes;
  const uint32_t row = group / groups_per_row, block = group - row * groups_per_row;
  const int k = static_cast<int>(block) * 128 + lane * 8 * kLoads;
  const bool inside = row < static_cast<uint32_t>(args.rows) && k < args.k;
  uint4 data[kLoads] = {};
  if (inside) {
    const auto* from = static_cast<const uint16_t*>(args.source) + row * args.source_ld + k;
    if constexpr (kVector) {
#pragma unroll
      for (int j = 0; j < kLoads; ++j) data[j] = reinterpret_cast<const uint4*>(from)[j];
    } else {
      uint32_t words[4] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (k + i < args.k) words[i / 2] |= static_cast<uint32_t>(from[i]) << (16 * (i % 2));
      data[0] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
  // Magnitudes of BF16 compare as integers, and NaN > infinity > the rest.
  constexpr uint32_t kMagnitude = 0x7FFF7FFFu;
  uint32_t most = 0;
#pragma unroll
  for (const uint4& d : data)
    most = __vmaxu2(most, __vmaxu2(__vmaxu2(d.x & kMagnitude, d.y & kMagnitude),
                                   __vmaxu2(d.z & kMagnitude, d.w & kMagnitude)));
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    most = __vmaxu2(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
  const uint32_t bits = max(most & 0xFFFFu, most >> 16);
  const float amax = bits >= 0x7F80u ? __uint_as_float(0x7FC00000u) : __uint_as_float(bits << 16);
  const float scale = bits == 0 ? 1.0f : __fdiv_rn(amax, 448.0f);
  const float reciprocal = __frcp_rn(scale);
  // False only for NaN, infinity and extreme exponents, which a model does not produce.
  const bool usual = scale > 0x1p-100f && scale < 0x1p100f;
  uint32_t quantized[2 * kLoads];
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    const uint32_t words[4] = {data[j].x, data[j].y, data[j].z, data[j].w};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float x[4] = {FromBf16(words[2 * h], false), FromBf16(words[2 * h], true),
                          FromBf16(words[2 * h + 1], false), FromBf16(words[2 * h + 1], true)};
      quantized[2 * j + h] = usual ? QuantizeFour<true>(x, scale, reciprocal)
                                   : QuantizeFour<false>(x, scale, reciprocal);
    }
  }
  if (!inside) return;
  auto* to = static_cast<uint8_t*>(args.values) + row * args.values_ld + k;
  if constexpr (kVector && kLoads == 2) {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(quantized[0], quantized[1], quantized[2], quantized[3]);
  } else if constexpr (kVector) {
    *reinterpret_cast<uint2*>(to) = make_uint2(quantized[0], quantized[1]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (k + i < args.k) to[i] = static_cast<uint8_t>(quantized[i / 4] >> (8 * (i % 4)));
  }
  if (lane == 0) args.scales[row * args.scale_row + block * args.scale_group] = scale;
}

template <bool kVector, int kLoads>
cudaError_t Launch(const QuantizeE4m3Args& args, uint32_t groups, bool pdl, cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  constexpr uint32_t kGroups = kGroupsOfCta<kLoads>;
  config.gridDim = dim3((groups + kGroups - 1) / kGroups);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = pdl ? 1 : 0;
  void* arguments[] = {const_cast<QuantizeE4m3Args*>(&args)};
  const void* kernel = reinterpret_cast<const void*>(&QuantizeE4m3<kVector, kLoads>);
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace

cudaError_t LaunchQuantizeE4m3(const QuantizeE4m3Args& args, bool pdl, cudaStream_t stream) {
  const uint64_t groups = uint64_t(args.rows) * ((uint64_t(args.k) + 127) / 128);
  if (args.rows <= 0 || args.k <= 0 || groups > 0xFFFF0000u) return cudaErrorInvalidValue;
  const auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  const auto vector = [&](int elements) {
    return address(args.source) % 16 == 0 && args.source_ld % 8 == 0 &&
           address(args.values) % elements == 0 && args.values_ld % elements == 0 &&
           args.k % elements == 0;
  };
  const auto count = static_cast<uint32_t>(groups);
  if (!vector(8)) return Launch<false, 1>(args, count, pdl, stream);
  // Two loads in flight a thread if there is enough work to fill the GPU: more bytes in flight, and
  // the work common to a group's lanes is done half as often.
  const bool large = groups > 132ull * 8 * kGroupsOfCta<1>;
  return large && vector(16) ? Launch<true, 2>(args, count, pdl, stream)
                             : Launch<true, 1>(args, count, pdl, stream);
}

}  // namespace culet
