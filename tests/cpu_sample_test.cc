// The CPU dispatch's sampling, which takes float32 alone.
#include "cpu_test_dispatch.h"
#include "cuda/sample_cases.h"
