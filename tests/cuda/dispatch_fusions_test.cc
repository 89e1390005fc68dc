// The fusions of the CUDA dispatch on a GPU.
#include "fusion_cases.h"
#include "test_dispatch.h"
