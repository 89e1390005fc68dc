// Sessions on a GPU. Skipped where there is none.
#include "session_cases.h"
#include "test_dispatch.h"
