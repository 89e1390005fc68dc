// The architectures that a DecoderConfig can come from: one entry each, made of parts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "culet/decoder.h"
#include "model/config_heads.h"
#include "model/find_architecture.h"

namespace culet {

class DecoderReader;

/// Whether all experts are in experts.gate_up_proj (experts, hidden, 2 * width) and
/// experts.down_proj (experts, width, hidden), their biases in tensors of these names and _bias.
enum class StackedExperts : std::uint8_t {
  kNone = 0,     ///< each has tensors of its own
  kInterleaved,  ///< a gate's column beside its up's
  kHalves,       ///< the gates' columns, then the ups'
};

/// What a layer's tensors are called, below "model.layers.N."; null for what a layer has not.
struct DecoderNames {
  const char* attention_norm = "input_layernorm";
  const char* attention_post_norm = nullptr;
  const char* mlp_norm = "post_attention_layernorm";
  const char* mlp_post_norm = nullptr;
  const char* qkv = nullptr;      ///< rows of q, k and v in one tensor
  const char* gate_up = nullptr;  ///< rows of gate and up in one tensor
  bool gamma_less_one = false;    ///< norms are stored less 1
  const char* dense = "mlp";      ///< of layers without experts
  const char* sparse = "mlp";     ///< with the router, and experts.E.
  StackedExperts stacked = StackedExperts::kNone;
  const char* router = "gate";
  const char* correction = nullptr;     ///< below `sparse`: the bias of scores
  const char* shared = nullptr;         ///< below `sparse`: the expert that all tokens use
  const char* shared_router = nullptr;  ///< below `sparse`: of its own gate
  const char* ahead = nullptr;  ///< in names of tensors that predict tokens ahead: passed over
  const char* expert_gate = "gate_proj";
  const char* expert_up = "up_proj";
  const char* expert_down = "down_proj";
};

/// What counts where config.json lacks a key, and what the usual keys are called.
struct DecoderDefaults {
  HeadDefaults heads = {};
  int vocab = 0;         ///< 0: the key must be there
  int max_position = 0;  ///< as DecoderConfig::max_position
  const char* epsilon_key = "rms_norm_eps";
  double epsilon = 1e-6;
  double theta = 1e4;
  RopeLayout rope_layout = RopeLayout::kNeox;
  double partial_rotary = 0;  ///< 0: whole heads turn, whatever partial_rotary_factor says
  bool tied_head = false;
  const char* width_key = "intermediate_size";  ///< of dense layers
  const char* gate_key = "hidden_act";
  GateKind gate = GateKind::kSilu;
};

struct DecoderArchitecture {
  const char* name;        ///< as in the config's "architectures"
  const char* model_type;  ///< as in the config's "model_type"
  /// Reads what differs from Llama without biases: each is a few calls of DecoderReader's parts.
  void (*read)(DecoderReader& reader);
  DecoderDefaults defaults = {};
  DecoderNames names = {};
  std::span<const char* const> keys = {};    ///< of config.json, beside those of all
  std::span<const char* const> silent = {};  ///< that real files have without any effect
  const char* parts = "";                    ///< for docs/models.md
};

/// All of them.
std::span<const DecoderArchitecture* const> DecoderArchitectures();

/// The one of this class. Requires: a name of the registry.
const DecoderArchitecture& DecoderArchitectureOf(std::string_view name);

/// A model of several parts, of which the text's is read: its config is in text_config, its tensors
/// have a prefix, and the other parts' are passed over.
struct DecoderContainer {
  const char* name;
  const char* model_type;
  std::span<const char* const> text_types;  ///< model_types that text_config may have
};
std::span<const DecoderContainer> DecoderContainers();

/// The names that tensor `name` of a text model may have in a container's files.
std::vector<std::string> NamesInContainer(const std::string& name);
/// Whether the tensor belongs to another part of a container.
bool IsOfOtherPart(std::string_view name);

}  // namespace culet
