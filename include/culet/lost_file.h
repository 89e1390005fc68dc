// What happens when a file that is mapped gets shorter: reading what is gone raises SIGBUS.
#pragma once

namespace culet {

/// How a process ends then.
struct LostFile {
  int exit_code = 0;  ///< 0: by the signal, as without a handler
  bool json = false;  ///< with an error's document on standard output, too
};

/// From now on SIGBUS that comes of such a file writes a sentence with the file's name to standard
/// error before the process ends. For programs: the library itself never handles signals. The last
/// call counts. False, and nothing changes, where another handler is there.
bool ExplainLostFiles(const LostFile& how) noexcept;

}  // namespace culet
