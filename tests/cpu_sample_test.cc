// The CPU dispatch's sampling, which takes float32 alone.
#include "cuda/sample_cases.h"
#include "cpu_test_dispatch.h"
