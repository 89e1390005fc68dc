// See host_cuda.h: what kernels name of the driver, on the CPU.
#pragma once

struct alignas(64) CUtensorMap {
  unsigned long long opaque[16];
};
