// The CUDA dispatch's attention of prompts, on a GPU. Skipped where there is none.
#include "attention_prompt_cases.h"
#include "test_dispatch.h"
