// Sessions on the CUDA dispatch on the CPU (tests/host_cuda), with the CPU's products.
#include "cuda/session_cases.h"
#include "host_cuda/test_dispatch.h"
