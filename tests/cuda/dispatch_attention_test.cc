// The CUDA dispatch's attention on a GPU. Skipped where there is none.
#include "attention_cases.h"
#include "test_dispatch.h"
