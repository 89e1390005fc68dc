// The CUDA dispatch's latent attention on tensor cores, on the CPU (tests/host_cuda).
#include "cuda/latent_mma_cases.h"
#include "host_cuda/test_dispatch.h"
