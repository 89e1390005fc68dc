// The CUDA dispatch's latent attention on tensor cores, on a GPU. Skipped where there is none.
#include "latent_mma_cases.h"
#include "test_dispatch.h"
