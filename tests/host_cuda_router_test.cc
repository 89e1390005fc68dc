// Routers of the CUDA dispatch on the CPU (tests/host_cuda).
#include "cuda/router_cases.h"
#include "host_cuda/test_dispatch.h"
