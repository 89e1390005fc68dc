// See host_cuda.h.
#pragma once

#include "host_cuda.h"
