// What `ptxas -v` tells of the kernels that it compiled.
#pragma once

#include <string>
#include <vector>

#include "culet/status.h"

namespace culet {

/// One kernel for one architecture.
struct KernelResources {
  std::string entry;  ///< mangled
  std::string arch;   ///< "sm_90a"
  int registers = 0;
  int static_smem_bytes = 0;
  int stack_bytes = 0;
  int spill_bytes = 0;  ///< stores and loads together
};

struct PtxasReport {
  std::vector<KernelResources> kernels;
  /// Lines with a code, e.g. C7508 (setmaxnreg ignored), C7510 and C7514 (wgmma serialised).
  std::vector<std::string> advisories;
};

/// Errors: DATA_LOSS for a kernel whose report lacks its stack frame or its registers.
Result<PtxasReport> ParsePtxasReport(const std::string& text);

}  // namespace culet
