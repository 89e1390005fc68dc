// The CUDA dispatch's latent attention on the CPU (tests/host_cuda).
#include "cuda/latent_cases.h"
#include "host_cuda/test_dispatch.h"
