// Warpgroup matrix products, D(FP32) += A x B^T, both operands of one format and K-major.
// Source: PTX ISA 9.7.15 "Asynchronous Warpgroup Level Matrix Instructions".
// One call is one wgmma.mma_async of 32 bytes of K: m64nNk32 of E4M3, m64nNk16 of BF16 and F16.
// The register lists are string macros that build on each other. Each N therefore needs one line
// with the numbers of its operands.
//
// Numerics: the tensor core keeps 14 significant bits of an FP8 accumulator (measured on an H200),
// so callers add it to FP32 registers at least every 128 of K, unless the user asked for speed.
// Hazards: nothing may touch an accumulator between the product and the wait that covers it. ptxas
// 13.0 serialises every wgmma of a kernel (warning C7514) if a loop reads accumulators that are in
// flight over its back edge. Straight-line bodies that end in WgmmaWait<0> are compiled well.
#pragma once

#include <cstdint>

#include "sm90/format.h"

namespace culet::sm90 {

// PTX ISA 9.7.15.7.1 wgmma.fence: orders register accesses before the first product that uses them.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// PTX ISA 9.7.15.7.2 wgmma.commit_group: makes a group of the products issued since the last one.
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// PTX ISA 9.7.15.7.3 wgmma.wait_group: returns when at most kPending of the latest groups are still
// running.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Ties an accumulator to this point of the program. ptxas then neither reads it before the wait
// above this call, nor moves it into other registers below it.
template <int kCount>
__device__ __forceinline__ void FenceRegisters(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The same for two values that are no accumulator.
__device__ __forceinline__ void FenceRegister(float2& v) {
  asm volatile("" : "+f"(v.x), "+f"(v.y)::"memory");
}

// m64nN, 32 bytes of K. Ss: both operands are shared-memory descriptors (descriptor.h).
// kAccumulate false overwrites D.
template <class Format, int kN>
struct Wgmma;

// The same with an MN-major B (WgmmaDescriptorTransposed128), which only operands of 16 bits have.
template <class Format, int kN>
struct WgmmaSharedTransposedB;

// clang-format off
#define CULET_R4 "%0,%1,%2,%3"
#define CULET_R8 CULET_R4 ",%4,%5,%6,%7"
#define CULET_R16 CULET_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define CULET_R24 CULET_R16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define CULET_R32 CULET_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define CULET_R40 CULET_R32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define CULET_R48 CULET_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define CULET_R56 CULET_R48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define CULET_R64 CULET_R56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define CULET_R72 CULET_R64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define CULET_R80 CULET_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define CULET_R88 CULET_R80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define CULET_R96 CULET_R80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define CULET_R112 CULET_R96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define CULET_R128 CULET_R96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define CULET_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define CULET_D4_ CULET_D4(0)
#define CULET_D8_ CULET_D4_, CULET_D4(4)
#define CULET_D16_ CULET_D8_, CULET_D4(8), CULET_D4(12)
#define CULET_D24_ CULET_D16_, CULET_D4(16), CULET_D4(20)
#define CULET_D32_ CULET_D16_, CULET_D4(16), CULET_D4(20), CULET_D4(24), CULET_D4(28)
#define CULET_D40_ CULET_D32_, CULET_D4(32), CULET_D4(36)
#define CULET_D48_ CULET_D32_, CULET_D4(32), CULET_D4(36), CULET_D4(40), CULET_D4(44)
#define CULET_D56_ CULET_D48_, CULET_D4(48), CULET_D4(52)
#define CULET_D64_ CULET_D56_, CULET_D4(56), CULET_D4(60)
#define CULET_D72_ CULET_D64_, CULET_D4(64), CULET_D4(68)
#define CULET_D80_ CULET_D64_, CULET_D4(64), CULET_D4(68), CULET_D4(72), CULET_D4(76)
#define CULET_D88_ CULET_D80_, CULET_D4(80), CULET_D4(84)
#define CULET_D96_ CULET_D80_, CULET_D4(80), CULET_D4(84), CULET_D4(88), CULET_D4(92)
#define CULET_D112_ CULET_D96_, CULET_D4(96), CULET_D4(100), CULET_D4(104), CULET_D4(108)
#define CULET_D128_ CULET_D96_, CULET_D4(96), CULET_D4(100), CULET_D4(104), CULET_D4(108), CULET_D4(112), CULET_D4(116), \
  CULET_D4(120), CULET_D4(124)
// clang-format on

// kA, kB and kP are the numbers of the asm operands behind the N/2 accumulators. 16-bit formats
// have two more immediates, which say whether an operand is transposed.
#define CULET_WGMMA(Struct, Format, kText, kImmediates, kN, kRegs, kA, kB, kP)             \
  template <>                                                                              \
  struct Struct<Format, kN> {                                                              \
    static constexpr int kRegisters = kRegs;                                               \
    template <bool kAccumulate>                                                            \
    static __device__ __forceinline__ void Ss(float (&d)[kRegs], uint64_t a, uint64_t b) { \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #kP                                   \
                   ", 0; wgmma.mma_async.sync.aligned.m64n" #kN kText " {" CULET_R##kRegs  \
                   "}, %" #kA ", %" #kB ", p, 1, 1" kImmediates ";}"                       \
                   : CULET_D##kRegs##_                                                     \
                   : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0));                            \
    }                                                                                      \
  }
#define CULET_WGMMA_FORMATS(...)                                        \
  CULET_WGMMA(Wgmma, E4m3, "k32.f32.e4m3.e4m3", "", __VA_ARGS__);       \
  CULET_WGMMA(Wgmma, Bf16, "k16.f32.bf16.bf16", ", 0, 0", __VA_ARGS__); \
  CULET_WGMMA(Wgmma, F16, "k16.f32.f16.f16", ", 0, 0", __VA_ARGS__)

CULET_WGMMA_FORMATS(8, 4, 4, 5, 6);
CULET_WGMMA_FORMATS(16, 8, 8, 9, 10);
CULET_WGMMA_FORMATS(32, 16, 16, 17, 18);
CULET_WGMMA_FORMATS(48, 24, 24, 25, 26);
CULET_WGMMA_FORMATS(64, 32, 32, 33, 34);
CULET_WGMMA_FORMATS(80, 40, 40, 41, 42);
CULET_WGMMA_FORMATS(96, 48, 48, 49, 50);
CULET_WGMMA_FORMATS(112, 56, 56, 57, 58);
CULET_WGMMA_FORMATS(128, 64, 64, 65, 66);
CULET_WGMMA_FORMATS(144, 72, 72, 73, 74);
CULET_WGMMA_FORMATS(160, 80, 80, 81, 82);
CULET_WGMMA_FORMATS(176, 88, 88, 89, 90);
CULET_WGMMA_FORMATS(192, 96, 96, 97, 98);
CULET_WGMMA_FORMATS(224, 112, 112, 113, 114);
CULET_WGMMA_FORMATS(256, 128, 128, 129, 130);
CULET_WGMMA(WgmmaSharedTransposedB, Bf16, "k16.f32.bf16.bf16", ", 0, 1", 256, 128, 128, 129, 130);
CULET_WGMMA(WgmmaSharedTransposedB, F16, "k16.f32.f16.f16", ", 0, 1", 256, 128, 128, 129, 130);

// A comes from registers, 16 rows a warp, in the layout of mma.m16n8k16: lane l holds columns
// 2(l%4) and 2(l%4)+1 of rows l/4 and l/4 + 8, then the same 8 columns further. B is MN-major
// (WgmmaDescriptorTransposed128). Only operands of 16 bits can be transposed.
template <class Format, int kN>
struct WgmmaTransposedB;

#define CULET_WGMMA_RS(Format, kText, kN, kRegs, kA0, kA1, kA2, kA3, kB, kP)                 \
  template <>                                                                                \
  struct WgmmaTransposedB<Format, kN> {                                                      \
    template <bool kAccumulate>                                                              \
    static __device__ __forceinline__ void Rs(float (&d)[kRegs], const uint32_t (&a)[4],     \
                                              uint64_t b) {                                  \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #kP                                     \
                   ", 0; wgmma.mma_async.sync.aligned.m64n" #kN kText " {" CULET_R##kRegs    \
                   "}, {%" #kA0 ", %" #kA1 ", %" #kA2 ", %" #kA3 "}, %" #kB ", p, 1, 1, 1;}" \
                   : CULET_D##kRegs##_                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                     \
                     "n"(kAccumulate ? 1 : 0));                                              \
    }                                                                                        \
  }
#define CULET_WGMMA_RS_FORMATS(...)                       \
  CULET_WGMMA_RS(Bf16, "k16.f32.bf16.bf16", __VA_ARGS__); \
  CULET_WGMMA_RS(F16, "k16.f32.f16.f16", __VA_ARGS__)

CULET_WGMMA_RS_FORMATS(64, 32, 32, 33, 34, 35, 36, 37);
CULET_WGMMA_RS_FORMATS(96, 48, 48, 49, 50, 51, 52, 53);
CULET_WGMMA_RS_FORMATS(128, 64, 64, 65, 66, 67, 68, 69);
CULET_WGMMA_RS_FORMATS(256, 128, 128, 129, 130, 131, 132, 133);

#undef CULET_WGMMA_RS_FORMATS
#undef CULET_WGMMA_RS
#undef CULET_WGMMA_FORMATS
#undef CULET_WGMMA
#undef CULET_R4
#undef CULET_R8
#undef CULET_R16
#undef CULET_R24
#undef CULET_R32
#undef CULET_R40
#undef CULET_R48
#undef CULET_R56
#undef CULET_R64
#undef CULET_R72
#undef CULET_R80
#undef CULET_R88
#undef CULET_R96
#undef CULET_R112
#undef CULET_R128
#undef CULET_D4
#undef CULET_D4_
#undef CULET_D8_
#undef CULET_D16_
#undef CULET_D24_
#undef CULET_D32_
#undef CULET_D40_
#undef CULET_D48_
#undef CULET_D56_
#undef CULET_D64_
#undef CULET_D72_
#undef CULET_D80_
#undef CULET_D88_
#undef CULET_D96_
#undef CULET_D112_
#undef CULET_D128_

}  // namespace culet::sm90
