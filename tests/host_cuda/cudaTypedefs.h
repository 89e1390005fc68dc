// See host_cuda.h: the driver's functions for tensor maps.
#pragma once

#include <cuda.h>

using PFN_cuTensorMapEncodeTiled_v12000 = CUresult (*)(CUtensorMap*, CUtensorMapDataType,
                                                       cuuint32_t, void*, const cuuint64_t*,
                                                       const cuuint64_t*, const cuuint32_t*,
                                                       const cuuint32_t*, CUtensorMapInterleave,
                                                       CUtensorMapSwizzle, CUtensorMapL2promotion,
                                                       CUtensorMapFloatOOBfill);
using PFN_cuTensorMapReplaceAddress_v12000 = CUresult (*)(CUtensorMap*, void*);
