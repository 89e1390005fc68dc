// The CUDA dispatch's attention on tensor cores, on a GPU. Skipped where there is none.
#include "attention_mma_cases.h"
#include "test_dispatch.h"
