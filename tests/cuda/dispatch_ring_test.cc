// Rings of keys on the CUDA dispatch of a GPU. Skipped where there is none.
#include "ring_cases.h"
#include "test_dispatch.h"
