// See host_cuda.h: src/sm90/fragment.cuh on the CPU, from the definition in the PTX ISA.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace culet::sm90 {

struct StoredOfLane {
  char* row;  ///< of a matrix; transposed a column
  uint32_t words[4];
};

template <int kMatrices, bool kTransposed>
void StoreMatricesOfWarp(void* const (&lanes)[32]) {
  const auto of = [&](int lane) { return static_cast<StoredOfLane*>(lanes[lane]); };
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < kMatrices; ++matrix)
      for (int i = 0; i < 2; ++i) {
        const auto element = static_cast<std::uint16_t>(of(lane)->words[matrix] >> 16 * i);
        const int pair = lane % 4 * 2 + i, row = kTransposed ? pair : lane / 4,
                  column = kTransposed ? lane / 4 : pair;
        std::memcpy(of(matrix * 8 + row)->row + column * 2, &element, 2);
      }
}

inline void StoreMatrix4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  StoredOfLane mine{host_cuda::DynamicShared() + address, {r0, r1, r2, r3}};
  host_cuda::WorkOfWarp(&mine, &StoreMatricesOfWarp<4, false>);
}

inline void StoreMatrix2Transposed(uint32_t address, uint32_t r0, uint32_t r1) {
  StoredOfLane mine{host_cuda::DynamicShared() + address, {r0, r1, 0, 0}};
  host_cuda::WorkOfWarp(&mine, &StoreMatricesOfWarp<2, true>);
}

}  // namespace culet::sm90
