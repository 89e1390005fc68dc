// The CUDA dispatch's routed experts on a GPU. Skipped where there is none.
#include "expert_cases.h"
#include "test_dispatch.h"
