// The CUDA dispatch's sampling on the CPU (tests/host_cuda).
#include "cuda/sample_cases.h"
#include "host_cuda/test_dispatch.h"
