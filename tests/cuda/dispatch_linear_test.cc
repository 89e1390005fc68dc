// The CUDA dispatch's linear attention on a GPU. Skipped where there is none.
#include "linear_cases.h"
#include "test_dispatch.h"
