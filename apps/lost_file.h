// What happens when a file that is mapped gets shorter: reading what is gone raises SIGBUS.
#pragma once

namespace culet::cli {

/// From now on SIGBUS that comes of such a file ends the process with a sentence that names the
/// file, and with kFailure; with `json` there is a document, too.
void ExplainLostFiles(bool json) noexcept;

}  // namespace culet::cli
