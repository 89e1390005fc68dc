// Architectures of GGUF files, and what their tensors are called.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace culet {

class GgufFile;
class GgufKeys;

/// A module's name below "model.layers.N." and its tensors' below "blk.N."; or the whole names of
/// one tensor below these.
struct GgufModule {
  std::string_view ours, theirs;
};

/// An architecture of GGUF and what its tensors are called.
struct GgufArchitecture {
  const char* name;  ///< general.architecture
  const char* of;    ///< the architecture of ours
  const char* model_type;
  bool experts = false;  ///< whether it is the one of that name with routed experts
  /// expert_gating_func of the one of that name: 1 softmax, 2 sigmoid, 3 softmax of the chosen. The
  /// first of a name is meant where the key is missing. 0: any.
  std::int64_t gating = 0;
  /// What else tells those of one name apart; null: nothing.
  bool (*is)(const GgufFile& file) = nullptr;
  /// Rows of q and k are stored so that elements 2 i and 2 i + 1 turn together.
  bool interleaved = false;
  bool latent = false;      ///< heads are made of a latent, and sizes are the architecture's own
  bool layer_norm = false;  ///< norms have no attention.layer_norm_rms_epsilon
  /// The config's key for rope.dimension_count over the head's size; null: whole heads turn.
  const char* partial = nullptr;
  std::span<const GgufModule> modules = {};  ///< these before the usual ones
  /// Adds what is the architecture's own to a config; null: nothing is.
  void (*add)(const GgufFile& file, GgufKeys& keys, nlohmann::json& config) = nullptr;
};

std::span<const GgufArchitecture> GgufArchitectures() noexcept;

/// Where a tensor of a Hugging Face checkpoint is in a GGUF file.
struct GgufPlace {
  std::string name;          ///< empty: nowhere
  std::int64_t expert = -1;  ///< >= 0: of a tensor of all experts the part of this one
};
GgufPlace GgufPlaceOf(const GgufArchitecture& architecture, const std::string& name);

}  // namespace culet
