// Where a cuBLASLt may lie.
#pragma once

#include <string>
#include <vector>

namespace culet::lt {

/// A file to try, and its description for people.
struct Place {
  std::string file;
  std::string origin;        ///< "CULET_CUBLASLT", "the CUDA toolkit", ...
  bool mapped_only = false;  ///< only if the process has it mapped already
};

/// What the search depends on.
struct Surroundings {
  std::string explicit_file;          ///< then no other place counts
  std::string own_file;               ///< that holds culet's code: libculet.so or a program
  std::string virtual_env;            ///< of Python; empty: none
  std::vector<std::string> toolkits;  ///< folders of CUDA toolkits
};

/// Of this process: CULET_CUBLASLT, VIRTUAL_ENV, CUDA_HOME, CUDA_PATH, /usr/local/cuda.
Surroundings SurroundingsOfProcess();

/// The places in the order in which they are tried: the explicit file alone, or a copy that the
/// process has already (PyTorch's, say), Python's nvidia packages beside culet or in the virtual
/// environment, the loader's path, the toolkits.
std::vector<Place> PlacesOf(const Surroundings& surroundings);

}  // namespace culet::lt
