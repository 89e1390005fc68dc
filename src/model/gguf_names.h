// Architectures of GGUF files, and what their tensors are called.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace culet {

/// The last part of a module's name, below "model.layers.N.", and of a tensor's, below "blk.N.".
struct GgufModule {
  std::string_view ours, theirs;
};

/// An architecture of GGUF and what its tensors are called.
struct GgufArchitecture {
  const char* name;  ///< general.architecture
  const char* of;    ///< the architecture of ours
  const char* model_type;
  bool experts = false;  ///< whether it is the one of that name with routed experts
  /// Rows of q and k are stored so that elements 2 i and 2 i + 1 turn together.
  bool interleaved = false;
  std::span<const GgufModule> modules = {};  ///< these before the usual ones
};

std::span<const GgufArchitecture> GgufArchitectures() noexcept;

/// Where a tensor of a Hugging Face checkpoint is in a GGUF file.
struct GgufPlace {
  std::string name;          ///< empty: nowhere
  std::int64_t expert = -1;  ///< >= 0: of a tensor of all experts the part of this one
};
GgufPlace GgufPlaceOf(const GgufArchitecture& architecture, const std::string& name);

}  // namespace culet
