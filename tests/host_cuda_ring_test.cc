// Rings of keys on the CUDA dispatch, on the CPU (tests/host_cuda).
#include "cuda/ring_cases.h"
#include "host_cuda/test_dispatch.h"
