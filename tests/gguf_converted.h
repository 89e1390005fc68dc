// Checkpoints of fixtures as GGUF files.
#pragma once

#include <unistd.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/float_types.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"
#include "gguf_builder.h"

namespace culet {

struct GgufCase {
  const char* golden;
  const char* architecture;
  bool own = false;
  bool turned = false;        // rows of q and k so that elements 2 i and 2 i + 1 turn together
  bool norms_plus_1 = false;  // Gemma's
  std::uint32_t gating = 0;   // expert_gating_func, where the converter writes it
  bool halves = false;        // of experts in one tensor: gates before ups, not side by side
  bool whole_kv_b = false;    // as files from before attn_k_b have it
  /// What files do not say, so that the fixture's checkpoint with these keys is the reference.
  const char* unsaid = nullptr;
};

inline void PrintTo(const GgufCase& of, std::ostream* out) {
  *out << of.golden << (of.whole_kv_b ? " with attn_kv_b" : "");
}

using GgufNames = std::vector<std::pair<std::string, std::string>>;
inline GgufNames GgufNamesOf(const std::string& architecture) {
  GgufNames names{{"model.embed_tokens.", "token_embd."},
                  {"model.norm.", "output_norm."},
                  {"lm_head.", "output."},
                  {"model.layers.", "blk."},
                  {"self_attn.q_proj", "attn_q"},
                  {"self_attn.k_proj", "attn_k"},
                  {"self_attn.v_proj", "attn_v"},
                  {"self_attn.o_proj", "attn_output"},
                  {"self_attn.qkv_proj", "attn_qkv"},
                  {"self_attn.q_norm", "attn_q_norm"},
                  {"self_attn.k_norm", "attn_k_norm"},
                  {"input_layernorm", "attn_norm"},
                  {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                  {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                  {"block_sparse_moe.experts.w2", "ffn_down_exps"},
                  {"block_sparse_moe.gate", "ffn_gate_inp"},
                  {"mlp.experts.gate_proj", "ffn_gate_exps"},
                  {"mlp.experts.up_proj", "ffn_up_exps"},
                  {"mlp.experts.down_proj", "ffn_down_exps"},
                  {"self_attn.sinks", "attn_sinks.weight"},
                  {"self_attn.q_a_proj", "attn_q_a"},
                  {"self_attn.q_a_layernorm", "attn_q_a_norm"},
                  {"self_attn.q_b_proj", "attn_q_b"},
                  {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                  {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
                  {"self_attn.kv_b_proj", "attn_kv_b"},
                  {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                  {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"},
                  {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
                  {"feed_forward.", "mlp."},
                  {"mlp.shared_experts.", "mlp.shared_expert."},
                  {"mlp.router", "ffn_gate_inp"},
                  {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                  {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                  {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                  {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                  {"mlp.gate_up_proj", "ffn_up"},
                  {"mlp.gate_proj", "ffn_gate"},
                  {"mlp.up_proj", "ffn_up"},
                  {"mlp.down_proj", "ffn_down"},
                  {"mlp.gate.", "ffn_gate_inp."}};
  if (architecture.starts_with("gemma")) {
    names.insert(names.end(), {{"post_attention_layernorm", "post_attention_norm"},
                               {"pre_feedforward_layernorm", "ffn_norm"},
                               {"post_feedforward_layernorm", "post_ffw_norm"}});
  } else if (architecture == "glm4") {
    names.insert(names.end(), {{"post_self_attn_layernorm", "post_attention_norm"},
                               {"post_attention_layernorm", "ffn_norm"},
                               {"post_mlp_layernorm", "post_ffw_norm"}});
  } else if (architecture == "olmo2") {
    names.insert(names.end(), {{"post_attention_layernorm", "post_attention_norm"},
                               {"post_feedforward_layernorm", "post_ffw_norm"}});
  } else {
    const bool behind =
        architecture == "gpt-oss" || architecture == "glm4moe" || architecture == "seed_oss";
    names.emplace_back("post_attention_layernorm", behind ? "post_attention_norm" : "ffn_norm");
  }
  return names;
}

/// Writes the fixture of a case into `builder_`, named and laid out as llama.cpp's converter does.
class GgufConverted : public testing::TestWithParam<GgufCase> {
 protected:
  using json = nlohmann::json;
  static constexpr std::uint32_t kF32 = 0, kMxfp4 = 39;
  void SetUp() override {
    const GgufCase& of = GetParam();
    folder_ = of.own ? OwnGoldens(of.golden) : FixtureFolder(of.golden);
    if (folder_.empty()) {
      GTEST_SKIP() << "no fixture " << of.golden << "; set CULET_FIXTURES";
    }
    config_ = json::parse(std::ifstream(folder_ + "/config.json"));
    path_ = testing::TempDir() + "/culet_" + std::to_string(getpid()) + "_" + of.golden +
            (of.whole_kv_b ? "_whole" : "") + ".gguf";
    AddMetadata();
    AddTensors();
  }
  void TearDown() override {
    if (!path_.empty()) std::filesystem::remove(path_);
  }

  std::uint32_t Int(const char* key) const { return config_.at(key).get<std::uint32_t>(); }
  bool Has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }

  void Number(const std::string& to, std::uint32_t value) {
    builder_.Add(GetParam().architecture + ("." + to), value);
  }
  void Real(const std::string& to, double value) {
    builder_.Add(GetParam().architecture + ("." + to), static_cast<float>(value));
  }
  double Double(const char* key) const { return config_.at(key).get<double>(); }
  // The first of these keys that the config has, if any.
  void NumberOf(const std::string& to, const std::vector<const char*>& keys) {
    for (const char* key : keys) {
      if (Has(key)) return Number(to, Int(key));
    }
  }
  void RealOf(const char* to, const char* key) {
    if (Has(key)) Real(to, Double(key));
  }

  void AddMetadata() {
    const std::string name = GetParam().architecture, prefix = name + ".";
    builder_.Add("general.architecture", name);
    // Blocks that predict tokens ahead are written for GLM-4.5 alone.
    const bool ahead = name == "glm4moe";
    Number("block_count", Int("num_hidden_layers") + (ahead ? Int("num_nextn_predict_layers") : 0));
    if (ahead) Number("nextn_predict_layers", Int("num_nextn_predict_layers"));
    Number("context_length", Int("max_position_embeddings"));
    Number("embedding_length", Int("hidden_size"));
    NumberOf("feed_forward_length", {"intermediate_size_mlp", "intermediate_size"});
    RealOf("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    RealOf("attention.layer_norm_epsilon", "layer_norm_eps");
    const json& rope = Has("rope_theta") ? config_ : config_.at("rope_parameters");
    Real("rope.freq_base", rope.at("rope_theta").get<double>());
    AddHeads();
    NumberOf("expert_count",
             {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
    NumberOf("expert_used_count", {"num_experts_per_tok", "moe_k"});
    if (HasExperts()) {
      NumberOf("expert_feed_forward_length", {"moe_intermediate_size", "intermediate_size"});
    }
    NumberOf("expert_shared_feed_forward_length", {"shared_expert_intermediate_size"});
    NumberOf("expert_shared_count", {"n_shared_experts", "moe_num_shared_experts"});
    NumberOf("leading_dense_block_count", {"first_k_dense_replace", "moe_layer_start_index"});
    NumberOf("interleave_moe_layer_step", {"interleave_moe_layer_step", "moe_layer_interval"});
    RealOf("expert_weights_scale", "routed_scaling_factor");
    if (Has("n_group")) {
      builder_.Add(prefix + "expert_weights_norm", config_.at("norm_topk_prob").get<bool>());
      Number("expert_group_count", Int("n_group"));
      Number("expert_group_used_count", Int("topk_group"));
    }
    if (GetParam().gating > 0) Number("expert_gating_func", GetParam().gating);
    if (Has("sliding_window") && Int("sliding_window") > 0) {
      Number("attention.sliding_window", Int("sliding_window"));
    }
    if (name == "olmo2" && Has("layer_types")) {
      std::vector<bool> windows;
      for (const json& type : config_.at("layer_types")) {
        windows.push_back(type == "sliding_attention");
      }
      builder_.AddFlags(prefix + "attention.sliding_window_pattern", windows);
    }
    RealOf("attn_logit_softcapping", "attn_logit_softcapping");
    RealOf("final_logit_softcapping", "final_logit_softcapping");
    RealOf("attention.scale", "attention_multiplier");
    RealOf("embedding_scale", "embedding_multiplier");
    RealOf("residual_scale", "residual_multiplier");
    RealOf("logit_scale", Has("logits_scaling") ? "logits_scaling" : "logit_scale");
    if (Has("query_pre_attn_scalar")) {
      Real("attention.scale", 1 / std::sqrt(Double("query_pre_attn_scalar")));
    }
    NumberOf("attention.sliding_window_pattern", {"sliding_window_pattern"});
    RealOf("rope.freq_base_swa", "rope_local_base_freq");
    NumberOf("rope.scaling.original_context_length", {"original_max_position_embeddings"});
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (Has(key)) AddScaling(config_.at(key));
    }
  }

  bool HasExperts() const {
    return Has("num_experts") || Has("num_local_experts") || Has("n_routed_experts") ||
           Has("moe_num_experts");
  }

  void AddHeads() {
    const std::uint32_t heads = Int("num_attention_heads");
    Number("attention.head_count", heads);
    if (Has("kv_lora_rank")) {
      const std::uint32_t rank = Int("kv_lora_rank"), rope = Int("qk_rope_head_dim");
      const std::uint32_t key = Int("qk_nope_head_dim") + rope, value = Int("v_head_dim");
      const bool whole = GetParam().whole_kv_b;
      Number("attention.head_count_kv", whole ? heads : 1);
      Number("attention.key_length", whole ? key : rank + rope);
      Number("attention.value_length", whole ? value : rank);
      if (!whole) Number("attention.key_length_mla", key);
      if (!whole) Number("attention.value_length_mla", value);
      NumberOf("attention.q_lora_rank", {"q_lora_rank"});
      Number("attention.kv_lora_rank", rank);
      Number("rope.dimension_count", rope);
      return;
    }
    const std::uint32_t head_dim = Has("head_dim") ? Int("head_dim") : Int("hidden_size") / heads;
    Number("attention.head_count_kv", Int("num_key_value_heads"));
    Number("attention.key_length", head_dim);
    Number("attention.value_length", head_dim);
    const double part = Has("partial_rotary_factor") ? Double("partial_rotary_factor") : 1.0;
    Number("rope.dimension_count", Has("rotary_dim")
                                       ? Int("rotary_dim")
                                       : static_cast<std::uint32_t>(std::lround(part * head_dim)));
  }

  void AddScaling(const json& scaling) {
    if (scaling.contains("short_factor")) {
      for (const char* length : {"short", "long"}) {
        std::string bytes;
        const json& factors = scaling.at(std::string(length) + "_factor");
        for (const json& factor : factors) bytes += GgufBuilder::Bytes(factor.get<float>());
        builder_.Tensor(std::string("rope_factors_") + length + ".weight", {factors.size()}, kF32,
                        bytes);
      }
      return;
    }
    const auto type = scaling.at("rope_type").get<std::string>();
    if (type == "default") return;
    builder_.Add(std::string(GetParam().architecture) + ".rope.scaling.type", type);
    const auto real = [&](const char* to, const char* key, double by = 1) {
      if (scaling.contains(key)) Real(to, scaling.at(key).get<double>() * by);
    };
    real("rope.scaling.factor", "factor");
    real("rope.scaling.yarn_beta_fast", "beta_fast");
    real("rope.scaling.yarn_beta_slow", "beta_slow");
    real("rope.scaling.yarn_attn_factor", "attention_factor");
    real("rope.scaling.yarn_log_multiplier", "mscale_all_dim", 0.1);
    if (scaling.contains("original_max_position_embeddings")) {
      Number("rope.scaling.original_context_length",
             scaling.at("original_max_position_embeddings").get<std::uint32_t>());
    }
  }

  // A tensor as F32.
  std::string Converted(const SafetensorsTensor& tensor) const {
    const GgufCase& of = GetParam();
    const std::int64_t rows = tensor.shape.front(), cols = tensor.elements() / rows;
    const bool turned = of.turned && (tensor.name.find("q_proj") != std::string::npos ||
                                      tensor.name.find("k_proj") != std::string::npos);
    const bool norm = of.norms_plus_1 && tensor.name.find("norm") != std::string::npos;
    const std::int64_t dim = Int("hidden_size") / Int("num_attention_heads");
    const std::size_t size = SizeOf(tensor.type());
    std::string bytes;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t in_head = row % dim;
      const std::int64_t from =
          turned ? row - in_head + in_head % 2 * (dim / 2) + in_head / 2 : row;
      for (std::int64_t col = 0; col < cols; ++col) {
        alignas(4) std::byte element[4] = {};
        std::memcpy(element, tensor.data + static_cast<std::size_t>(from * cols + col) * size,
                    size);
        const auto value = static_cast<float>(LoadAsDouble(element, tensor.type(), 0));
        bytes += GgufBuilder::Bytes(norm ? value + 1 : value);
      }
    }
    return bytes;
  }

  static float At(const SafetensorsTensor& tensor, std::int64_t index) {
    const std::size_t size = SizeOf(tensor.type());
    alignas(4) std::byte element[4] = {};
    std::memcpy(element, tensor.data + static_cast<std::size_t>(index) * size, size);
    return static_cast<float>(LoadAsDouble(element, tensor.type(), 0));
  }

  // Element `of` `which` (0: gates, 1: ups) among those of both.
  std::int64_t Joint(std::int64_t of, int which, std::int64_t count) const {
    return GetParam().halves ? which * count + of : 2 * of + which;
  }

  // gpt-oss's and Llama 4's experts, which lie the other way round in one tensor.
  void AddAllExperts(const SafetensorsFile& file, const SafetensorsTensor& tensor,
                     const std::string& name) {
    const bool both = name.find("gate_up_proj") != std::string::npos;
    const bool bias = name.ends_with("_bias"), blocks = name.ends_with("_blocks");
    const std::string prefix = name.substr(0, name.find("mlp."));
    const std::vector<std::int64_t>& shape = tensor.shape;
    const std::int64_t experts = shape[0], all = shape[bias || blocks ? 1 : 2];
    const std::int64_t cols = bias ? 1 : blocks ? shape[2] * 32 : shape[1];
    const std::int64_t rows = both ? all / 2 : all;
    for (int which = 0; which < (both ? 2 : 1); ++which) {
      std::string bytes;
      for (std::int64_t e = 0; e < experts; ++e) {
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t row = both ? Joint(r, which, rows) : r;
          if (blocks) {
            bytes += Blocks(file, tensor, e * all + row);
            continue;
          }
          for (std::int64_t c = 0; c < cols; ++c) {
            bytes += GgufBuilder::Bytes(At(tensor, (e * cols + c) * all + row));
          }
        }
      }
      const char* const of = !both ? "ffn_down_exps" : which == 0 ? "ffn_gate_exps" : "ffn_up_exps";
      std::vector<std::uint64_t> sizes{static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(experts)};
      if (!bias) sizes.insert(sizes.begin(), static_cast<std::uint64_t>(cols));
      builder_.Tensor(prefix + of + (bias ? ".bias" : ".weight"), sizes, blocks ? kMxfp4 : kF32,
                      bytes);
    }
  }

  // A row of MXFP4: each scale before its codes, of which the first half are the low ones.
  static std::string Blocks(const SafetensorsFile& file, const SafetensorsTensor& tensor,
                            std::int64_t row) {
    std::string name = tensor.name;
    name.replace(name.rfind("_blocks"), 7, "_scales");
    const SafetensorsTensor& scales = *file.Find(name);
    std::string bytes;
    for (std::int64_t g = row * tensor.shape[2]; g < (row + 1) * tensor.shape[2]; ++g) {
      bytes += static_cast<char>(scales.data[g]);
      const auto code = [&](int i) {
        const int pair = std::to_integer<int>(tensor.data[g * 16 + i / 2]);
        return i % 2 == 0 ? pair & 15 : pair >> 4;
      };
      for (int i = 0; i < 16; ++i) bytes += static_cast<char>(code(i) | code(i + 16) << 4);
    }
    return bytes;
  }

  // Keys of each head transposed, values as they are.
  void AddHeadParts(const SafetensorsTensor& tensor, const std::string& layer) {
    const std::int64_t heads = Int("num_attention_heads"), rank = tensor.shape[1];
    const std::int64_t keys = Int("qk_nope_head_dim"), values = Int("v_head_dim");
    std::string of_keys, of_values;
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t first = head * (keys + values);
      for (std::int64_t c = 0; c < rank; ++c) {
        for (std::int64_t r = 0; r < keys; ++r) {
          of_keys += GgufBuilder::Bytes(At(tensor, (first + r) * rank + c));
        }
      }
      for (std::int64_t i = 0; i < values * rank; ++i) {
        of_values += GgufBuilder::Bytes(At(tensor, (first + keys) * rank + i));
      }
    }
    const auto size = [](std::int64_t of) { return static_cast<std::uint64_t>(of); };
    builder_.Tensor(layer + "attn_k_b.weight", {size(keys), size(rank), size(heads)}, kF32,
                    of_keys);
    builder_.Tensor(layer + "attn_v_b.weight", {size(rank), size(values), size(heads)}, kF32,
                    of_values);
  }

  // Of a layer that predicts tokens ahead, which the converter leaves out.
  bool IsLeftOut(const std::string& name) const {
    constexpr std::string_view kLayers = "model.layers.";
    return !name.starts_with(kLayers) || std::string_view(GetParam().architecture) == "glm4moe"
               ? false
               : std::stoi(name.substr(kLayers.size())) >=
                     static_cast<int>(Int("num_hidden_layers"));
  }

  void AddTensors() {
    struct Stack {
      std::vector<std::uint64_t> sizes;
      std::map<int, std::string> experts;
    };
    std::map<std::string, Stack> stacks;
    const GgufNames names = GgufNamesOf(GetParam().architecture);
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string file_name = entry.path().filename().string();
      if (!file_name.ends_with(".safetensors") || file_name.starts_with("golden")) continue;
      const auto file = SafetensorsFile::Open(entry.path().string());
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      for (const SafetensorsTensor& tensor : file->tensors()) {
        if (tensor.name.ends_with("inv_freq") || IsLeftOut(tensor.name)) continue;
        if (tensor.name.ends_with("_scales")) continue;  // with their blocks
        if (tensor.name.starts_with("lm_head") && config_.value("tie_word_embeddings", false)) {
          continue;
        }
        std::string name = tensor.name;
        int expert = -1;
        if (const std::size_t at = name.find(".experts.g"), down = name.find(".experts.d");
            at != std::string::npos || down != std::string::npos) {
          for (const auto& [from, to] :
               GgufNames{{"model.layers.", "blk."}, {"feed_forward.", "mlp."}}) {
            if (const std::size_t old = name.find(from); old != std::string::npos) {
              name.replace(old, from.size(), to);
            }
          }
          AddAllExperts(*file, tensor, name);
          continue;
        }
        if (name.find("kv_b_proj") != std::string::npos && !GetParam().whole_kv_b) {
          AddHeadParts(tensor, "blk." + name.substr(13, name.find('.', 13) - 12));
          continue;
        }
        if (const std::size_t at = name.find("experts.");
            at != std::string::npos && std::isdigit(name[at + 8]) != 0) {
          const std::size_t end = name.find('.', at + 8);
          expert = std::stoi(name.substr(at + 8, end - at - 8));
          name.erase(at + 8, end - at - 7);
        }
        for (const auto& [from, to] : names) {
          if (const std::size_t at = name.find(from); at != std::string::npos) {
            name.replace(at, from.size(), to);
          }
        }
        std::vector<std::uint64_t> sizes(tensor.shape.rbegin(), tensor.shape.rend());
        if (sizes.size() == 2 && sizes[1] == 1) sizes.pop_back();  // one row
        if (expert < 0) {
          builder_.Tensor(name, sizes, kF32, Converted(tensor));
        } else {
          stacks[name].sizes = sizes;
          stacks[name].experts[expert] = Converted(tensor);
        }
      }
    }
    for (auto& [name, stack] : stacks) {
      std::string all;
      for (const auto& [number, bytes] : stack.experts) all += bytes;
      stack.sizes.push_back(stack.experts.size());
      builder_.Tensor(name, stack.sizes, kF32, all);
    }
  }

  std::string folder_, path_;
  json config_;
  GgufBuilder builder_;
};

}  // namespace culet
