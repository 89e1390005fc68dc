// Problems that ran without a measured choice, written down to be measured later.
#pragma once

#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/status.h"

namespace culet {

/// A problem of such a file.
struct UntunedProblem {
  std::string device_class;
  GemmDesc desc;
  int times = 1;  ///< lines that name it: one for each engine that met it
};

/// What GemmOptions::record wrote: each problem once, in the order in which they were met.
struct UntunedFile {
  std::vector<UntunedProblem> problems;
  int unreadable = 0;  ///< lines that are damaged, or another version's
};

/// Errors: NOT_FOUND, IO; DATA_LOSS when the file is no such file.
Result<UntunedFile> ReadUntuned(const std::string& path);

/// How many distinct problems an engine has chosen kernels for, and how many of these choices were
/// measured: by this user, at this site, or shipped.
struct Coverage {
  int problems = 0;
  int measured = 0;
};

}  // namespace culet
