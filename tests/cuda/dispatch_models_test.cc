// Whole models on a GPU. Skipped where there is none.
#include "model_cases.h"
#include "test_dispatch.h"
