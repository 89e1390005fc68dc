// The process's standard streams, whatever state the caller left them in.
#pragma once

namespace culet::cli {

/// Opens a placeholder for closed descriptors 0 to 2, so that no file opened later, such as a
/// cache, becomes stdout or stderr. Output to a closed stream still fails.
void OpenStandardStreams() noexcept;

/// Writes beyond the process's limit of a file's size (ulimit -f) are errors, not its end.
void IgnoreFileSizeSignal() noexcept;

/// Whether everything printed so far has left the process.
bool FlushStdout() noexcept;

}  // namespace culet::cli
