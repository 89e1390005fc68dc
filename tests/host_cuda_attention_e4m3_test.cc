// The CUDA dispatch's attention over caches of E4M3, on the CPU (tests/host_cuda).
#include "cuda/attention_e4m3_cases.h"
#include "host_cuda/test_dispatch.h"
