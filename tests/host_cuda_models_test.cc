// Whole models on the CUDA dispatch on the CPU (tests/host_cuda), with the CPU's products.
#include "cuda/model_cases.h"
#include "host_cuda/test_dispatch.h"
