// The SwiGLU, and the quantisation, that a caller runs behind a product where nothing is fused: a
// kernel of its own over D in BF16.
#pragma once

#include "bench/sm90_data.cuh"
#include "kernels/sm90/block/quantise.cuh"

namespace culet::bench {
namespace {

// Sixteen lanes a group of 128 outputs, 8 each: 16 bytes of gate, and of up beside them.
__global__ void __launch_bounds__(256) GateApart(const uint4* product, Problem p, bool quantises) {
  const int columns = p.n / 2, groups = (columns + 127) / 128;
  const int64_t index = int64_t(blockIdx.x) * 16 + threadIdx.x / 16;
  const int64_t row = index / groups;
  const int group = int(index % groups), lane = threadIdx.x % 16, column = group * 128 + lane * 8;
  const bool inside = row < p.m && column < columns;
  float v[8] = {};
  if (inside) {
    const int up_column = p.epilogue.up_column;
    const uint4* const from = product + (row * p.n + (up_column != 0 ? column : column * 2)) / 8;
    const uint4 gates = from[0], ups = from[up_column != 0 ? up_column / 8 : 1];
    const auto* const gate = reinterpret_cast<const __nv_bfloat162*>(&gates);
    const auto* const up = reinterpret_cast<const __nv_bfloat162*>(&ups);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 g = __bfloat1622float2(gate[i]), u = __bfloat1622float2(up[i]);
      v[i * 2] = sm90::Silu(g.x) * u.x, v[i * 2 + 1] = sm90::Silu(g.y) * u.y;
    }
  }
  if (!quantises) {
    uint4 out;
    auto* const to = reinterpret_cast<__nv_bfloat162*>(&out);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __floats2bfloat162_rn(v[i * 2], v[i * 2 + 1]);
    if (inside)
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.d) + row * p.ldd + column) = out;
    return;
  }
  float most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) most = sm90::LargerMagnitude(most, v[i]);
#pragma unroll
  for (int o = 8; o > 0; o /= 2) most = sm90::LargerMagnitude(most, __shfl_xor_sync(~0u, most, o));
  bool lifts;
  const sm90::RowScale scale = sm90::ScaleOfLargest(most, lifts);
  if (!inside) return;
  uint16_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[i] = sm90::PackE4m3(v[i * 2] * scale.inverse, v[i * 2 + 1] * scale.inverse);
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.d) + row * p.ldd + column) =
      make_uint2(out[0] | uint32_t(out[1]) << 16, out[2] | uint32_t(out[3]) << 16);
  if (lane == 0)
    p.epilogue.d_scale[row * p.epilogue.d_scale_row + group * p.epilogue.d_scale_block] =
        scale.scale;
}

// `product`: D of the plain product, (m, n) in BF16; `p`: the gated problem.
cudaError_t LaunchGateApart(const void* product, const Problem& p, bool quantises,
                            cudaStream_t stream) {
  const int64_t groups = int64_t(p.m) * ((p.n / 2 + 127) / 128);
  GateApart<<<unsigned((groups + 15) / 16), 256, 0, stream>>>(static_cast<const uint4*>(product), p,
                                                              quantises);
  return cudaGetLastError();
}

}  // namespace
}  // namespace culet::bench
