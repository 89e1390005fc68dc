// DecoderReader: the parts of which each architecture reads its config.json.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "culet/decoder.h"
#include "model/config_reader.h"
#include "model/decoder_architecture.h"

namespace culet {

/// What keys of routed experts are called.
struct ExpertKeys {
  const char* width;  ///< of one of them
  const char* experts = "num_experts";
  const char* other_experts = nullptr;  ///< another spelling
  const char* active = "num_experts_per_tok";
};

/// What counts where the keys of experts in groups are missing.
struct GroupDefaults {
  int dense_layers = 1;
  int groups = 1, kept_groups = 1;
  double scale = 1;
};

class DecoderReader {
 public:
  /// `root` is the config of the text model.
  DecoderReader(const nlohmann::json& root, const std::string& origin,
                const DecoderArchitecture& architecture);

  /// What all architectures have, then what `architecture` reads; without `quantised` not how
  /// weights are stored.
  Result<DecoderConfig> Read(bool quantised = true);

  // -- For architectures --------------------------------------------------------------------------

  DecoderConfig& config() noexcept { return config_; }
  ConfigReader& keys() noexcept { return keys_; }
  const nlohmann::json& root() const noexcept { return root_; }

  /// A finite number above 0 as float; a missing or null key gives `fallback`.
  float Positive(const char* key, double fallback);
  /// The same, but null means none, which is 0, and 0 is refused. For soft caps.
  float PositiveOrNone(const char* key, double fallback);
  /// attention_bias: of q, k and v, and of o where `output` says so.
  void AttentionBias(bool fallback, bool output);
  /// mlp_bias.
  void MlpBias();
  /// Refuses a flag that is true.
  void RefuseTrue(const char* key, const char* why);
  /// sliding_window: 0 for null; `fallback` without the key.
  int Window(int fallback);
  /// The same where null is refused.
  int WindowOfSome(int fallback);
  /// `window` in layers from `first` on.
  void WindowsFrom(int first, int window);
  /// `window` in all layers but each `pattern`-th, counted from 1; all of them where it is 0.
  void WindowsBut(int pattern, int window);
  /// layer_types: `window` where it says sliding_attention, none where it says full_attention.
  /// False without the key.
  bool LayerTypes(int window);
  /// The same of `chunk` and chunked_attention.
  bool ChunkTypes(int chunk);
  /// The same of linear_attention, which goes to config().linear_layers.
  bool LinearTypes();

  /// Layers with routed experts: each decoder_sparse_step-th but those of mlp_only_layers.
  void SparseLayers();
  /// Routed experts where config().sparse says so.
  void Experts(const ExpertKeys& keys, bool renormalize);
  /// So many shared experts, which are one, of the others' width each.
  void SharedExperts(const char* key, int fallback);
  /// Those of DeepSeek-V3 and GLM-4.5: behind the first layers, chosen by sigmoid and a bias from
  /// the groups of the two best, scaled, beside shared ones. Layers that predict tokens ahead.
  void ExpertsInGroups(const GroupDefaults& defaults);
  /// first_k_dense_replace: layers with experts lie behind so many.
  void SparseBehind(int fallback);
  /// n_group and topk_group: the experts that a token may use are those of the best groups.
  void Groups(const GroupDefaults& defaults, GroupScore score);
  /// swiglu_limit and swiglu_alpha: a gate that is clamped.
  void ClampedGate(double limit, double slope);

  /// The rotary embedding of layers with a window, in v5's form under rope_parameters.
  RopeParams RopeOf(const char* layer_type, double default_theta);
  /// Gives layers with a window the local rope.
  void LocalRopesWithWindows();
  /// Whether rope_parameters has a part for each type of layer.
  bool HasRopeByType() const;

 private:
  bool Types(const char* limited, int limit, std::vector<int>& limits);
  void Sizes();
  void Refusals();
  void Gate(const char* key, GateKind kind);
  void Quantization();

  const nlohmann::json& root_;
  const std::string& origin_;
  const DecoderArchitecture& architecture_;
  ConfigReader keys_;
  DecoderConfig config_;
};

/// The names of all architectures and containers.
std::vector<ArchitectureName> DecoderNamesOfAll();

/// ParseDecoderConfig of JSON. Requires: an object. Errors: as ParseDecoderConfig; without
/// `quantised`, quantization_config is not looked at.
Result<DecoderConfig> ReadDecoder(const nlohmann::json& root, const std::string& origin,
                                  bool quantised = true);

}  // namespace culet
