// The CUDA dispatch's sampling on a GPU. Skipped where there is none.
#include "sample_cases.h"
#include "test_dispatch.h"
