// The CUDA dispatch's operations on a GPU. Skipped where there is none.
#include "op_cases.h"
#include "test_dispatch.h"
