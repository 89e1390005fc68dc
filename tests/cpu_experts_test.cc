// The CPU dispatch's routed experts, which take float32 values alone.
#include "cpu_test_dispatch.h"
#include "cuda/expert_cases.h"
