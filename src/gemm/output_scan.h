// Looks for elements that a kernel left unwritten and for guard zones that it did not.
#pragma once

#include <cstddef>

#include "gemm/runtime.h"

namespace culet {

/// The scan on the host. Both pointers are aligned to the element.
OutputScan ScanOutput(const OutputLines& lines, const std::byte* found,
                      const std::byte* pristine) noexcept;

}  // namespace culet
