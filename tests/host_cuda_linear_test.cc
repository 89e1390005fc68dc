// The CUDA dispatch's linear attention on the CPU (tests/host_cuda).
#include "cuda/linear_cases.h"
#include "host_cuda/test_dispatch.h"
