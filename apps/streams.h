// The process's standard streams, whatever state the caller left them in.
#pragma once

namespace culet::cli {

/// Puts something behind descriptors 0 to 2 that are closed, so that no file that is opened later,
/// a cache for instance, becomes stdout or stderr. Output to a stream that was closed still fails.
void OpenStandardStreams() noexcept;

/// Writes beyond the process's limit of a file's size (ulimit -f) are errors, not its end.
void IgnoreFileSizeSignal() noexcept;

/// Whether everything printed so far has left the process.
bool FlushStdout() noexcept;

}  // namespace culet::cli
