// The CUDA dispatch's latent attention on a GPU. Skipped where there is none.
#include "latent_cases.h"
#include "test_dispatch.h"
