// One source for host and device: functions marked so compile with and without CUDA.
#pragma once

#ifdef __CUDACC__
#define CULET_HOST_DEVICE __host__ __device__
#else
#define CULET_HOST_DEVICE
#endif
