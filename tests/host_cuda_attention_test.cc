// The CUDA dispatch's attention on the CPU (tests/host_cuda).
#include "cuda/attention_cases.h"
#include "host_cuda/test_dispatch.h"
