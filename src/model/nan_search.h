// Which node of a step made a NaN.
#pragma once

#include <string>

#include "culet/graph.h"
#include "culet/status.h"

namespace culet {

/// Launches the graph anew, node by node, with the inputs that it had, and looks at each value.
/// Always an error: DATA_LOSS with the first node whose value has a NaN, and where; `consequence`
/// ends the sentence. INTERNAL when there is none now. What a launch or a download returns.
Status NaNFrom(GraphExecutor& executor, const std::string& consequence, cudaStream_t stream);

}  // namespace culet
