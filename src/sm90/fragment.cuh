// Stores matrix fragments from a warp's registers to shared memory.
#pragma once

#include <cstdint>

namespace culet::sm90 {

/// Stores four 8x8 matrices of 16-bit elements. Lane i gives the address of row i % 8 of matrix
/// i / 8. PTX ISA 9.7.14.5.16 stmatrix.
__device__ __forceinline__ void StoreMatrix4(uint32_t address, uint32_t r0, uint32_t r1,
                                             uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

/// Stores two 8x8 matrices of 16-bit elements, each transposed. Lane l holds elements 2(l%4) and
/// 2(l%4)+1 of row l/4 of both. Lane i < 16 gives the address of column i % 8 of matrix i / 8.
/// PTX ISA 9.7.14.5.16 stmatrix.
__device__ __forceinline__ void StoreMatrix2Transposed(uint32_t address, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(r0), "r"(r1)
               : "memory");
}

}  // namespace culet::sm90
