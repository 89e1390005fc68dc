// Matrix fragments between a warp's registers and shared memory, for results held as D^T.
#pragma once

#include <cstdint>

namespace culet::sm90 {

/// Two 8x8 matrices of 16-bit elements, each transposed on the way: lane l holds elements 2(l%4)
/// and 2(l%4)+1 of row l/4 of both; lane i < 16 gives the address of column i % 8 of matrix i / 8.
/// PTX ISA 9.7.14.5.16 stmatrix.
__device__ __forceinline__ void StoreMatrix2Transposed(uint32_t address, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(r0), "r"(r1)
               : "memory");
}

}  // namespace culet::sm90
