// The CUDA dispatch's routed experts on the CPU (tests/host_cuda).
#include "cuda/expert_cases.h"
#include "host_cuda/test_dispatch.h"
