// Routers of the CUDA dispatch on a GPU. Skipped where there is none.
#include "router_cases.h"
#include "test_dispatch.h"
