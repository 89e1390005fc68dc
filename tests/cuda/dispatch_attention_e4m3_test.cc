// The CUDA dispatch's attention over caches of E4M3, on a GPU. Skipped where there is none.
#include "attention_e4m3_cases.h"
#include "test_dispatch.h"
