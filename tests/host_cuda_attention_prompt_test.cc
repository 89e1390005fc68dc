// The CUDA dispatch's attention of prompts, on the CPU (tests/host_cuda).
#include "cuda/attention_prompt_cases.h"
#include "host_cuda/test_dispatch.h"
