// The CUDA dispatch's attention on tensor cores, on the CPU (tests/host_cuda).
#include "cuda/attention_mma_cases.h"
#include "host_cuda/test_dispatch.h"
