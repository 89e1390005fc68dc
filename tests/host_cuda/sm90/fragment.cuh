// See host_cuda.h: src/sm90/fragment.cuh on the CPU, from the definition in the PTX ISA.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace culet::sm90 {

struct StoredOfLane {
  char* column;  ///< of lanes below 16
  uint32_t words[2];
};

inline void StoreTransposedOfWarp(void* const (&lanes)[32]) {
  const auto of = [&](int lane) { return static_cast<StoredOfLane*>(lanes[lane]); };
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 2; ++matrix)
      for (int i = 0; i < 2; ++i) {
        const auto element = static_cast<std::uint16_t>(of(lane)->words[matrix] >> 16 * i);
        std::memcpy(of(matrix * 8 + lane % 4 * 2 + i)->column + lane / 4 * 2, &element, 2);
      }
}

inline void StoreMatrix2Transposed(uint32_t address, uint32_t r0, uint32_t r1) {
  StoredOfLane mine{host_cuda::DynamicShared() + address, {r0, r1}};
  host_cuda::WorkOfWarp(&mine, &StoreTransposedOfWarp);
}

}  // namespace culet::sm90
