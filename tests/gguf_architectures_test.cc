// Checkpoints of several architectures as GGUF files, named and laid out as llama.cpp's converter
// does it, against the goldens of the checkpoints.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/float_types.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"
#include "gguf_builder.h"

namespace culet {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::uint32_t kF32 = 0;

struct Case {
  const char* golden;
  const char* architecture;
  bool own = false;
  bool turned = false;        // rows of q and k so that elements 2 i and 2 i + 1 turn together
  bool norms_plus_1 = false;  // Gemma's
};

void PrintTo(const Case& of, std::ostream* out) { *out << of.golden; }

using Names = std::vector<std::pair<std::string, std::string>>;
Names NamesOf(const std::string& architecture) {
  Names names{{"model.embed_tokens.", "token_embd."},
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
  } else {
    names.emplace_back("post_attention_layernorm", "ffn_norm");
  }
  return names;
}

class GgufArchitectures : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& of = GetParam();
    folder_ = of.own ? OwnGoldens(of.golden) : FixtureFolder(of.golden);
    if (folder_.empty()) {
      GTEST_SKIP() << "no fixture " << of.golden << "; set CULET_FIXTURES";
    }
    config_ = json::parse(std::ifstream(folder_ + "/config.json"));
    path_ = testing::TempDir() + "/culet_architecture_" + of.golden + ".gguf";
    AddMetadata();
    AddTensors();
  }
  void TearDown() override {
    if (!path_.empty()) fs::remove(path_);
  }

  std::uint32_t Int(const char* key) const { return config_.at(key).get<std::uint32_t>(); }
  bool Has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }

  void AddMetadata() {
    const std::string name = GetParam().architecture, prefix = name + ".";
    const std::uint32_t heads = Int("num_attention_heads");
    const std::uint32_t head_dim = Has("head_dim") ? Int("head_dim") : Int("hidden_size") / heads;
    builder_.Add("general.architecture", name);
    const auto number = [&](const char* to, std::uint32_t value) {
      builder_.Add(prefix + to, value);
    };
    const auto real = [&](const char* to, double value) {
      builder_.Add(prefix + to, static_cast<float>(value));
    };
    number("block_count", Int("num_hidden_layers"));
    number("context_length", Int("max_position_embeddings"));
    number("embedding_length", Int("hidden_size"));
    number("feed_forward_length", Int("intermediate_size"));
    number("attention.head_count", heads);
    number("attention.head_count_kv", Int("num_key_value_heads"));
    number("attention.key_length", head_dim);
    number("attention.value_length", head_dim);
    real("attention.layer_norm_rms_epsilon", config_.at("rms_norm_eps").get<double>());
    const json& rope = Has("rope_theta") ? config_ : config_.at("rope_parameters");
    real("rope.freq_base", rope.at("rope_theta").get<double>());
    const double turning =
        Has("partial_rotary_factor") ? config_.at("partial_rotary_factor").get<double>() : 1.0;
    number("rope.dimension_count", static_cast<std::uint32_t>(std::lround(turning * head_dim)));
    for (const char* key : {"num_experts", "num_local_experts"}) {
      if (Has(key)) number("expert_count", Int(key));
    }
    if (Has("num_experts_per_tok")) number("expert_used_count", Int("num_experts_per_tok"));
    if (Has("moe_intermediate_size")) {
      number("expert_feed_forward_length", Int("moe_intermediate_size"));
    }
    if (Has("shared_expert_intermediate_size")) {
      number("expert_shared_feed_forward_length", Int("shared_expert_intermediate_size"));
    }
    if (Has("sliding_window") && Int("sliding_window") > 0) {
      number("attention.sliding_window", Int("sliding_window"));
    }
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (Has(key)) real(key, config_.at(key).get<double>());
    }
    if (Has("query_pre_attn_scalar")) {
      real("attention.scale", 1 / std::sqrt(config_.at("query_pre_attn_scalar").get<double>()));
    }
    if (Has("sliding_window_pattern")) {
      number("attention.sliding_window_pattern", Int("sliding_window_pattern"));
    }
    if (Has("rope_local_base_freq")) {
      real("rope.freq_base_swa", config_.at("rope_local_base_freq").get<double>());
    }
    if (Has("original_max_position_embeddings")) {
      number("rope.scaling.original_context_length", Int("original_max_position_embeddings"));
    }
    if (!Has("rope_scaling")) return;
    const json& scaling = config_.at("rope_scaling");
    if (scaling.contains("short_factor")) {
      for (const char* length : {"short", "long"}) {
        std::string bytes;
        const json& factors = scaling.at(std::string(length) + "_factor");
        for (const json& factor : factors) bytes += GgufBuilder::Bytes(factor.get<float>());
        builder_.Tensor(std::string("rope_factors_") + length + ".weight", {factors.size()}, kF32,
                        bytes);
      }
    } else {
      builder_.Add(prefix + "rope.scaling.type", scaling.at("rope_type").get<std::string>());
      real("rope.scaling.factor", scaling.at("factor").get<double>());
    }
  }

  // A tensor as F32.
  std::string Converted(const SafetensorsTensor& tensor) const {
    const Case& of = GetParam();
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

  void AddTensors() {
    struct Stack {
      std::vector<std::uint64_t> sizes;
      std::map<int, std::string> experts;
    };
    std::map<std::string, Stack> stacks;
    const Names names = NamesOf(GetParam().architecture);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string file_name = entry.path().filename().string();
      if (!file_name.ends_with(".safetensors") || file_name.starts_with("golden")) continue;
      const auto file = SafetensorsFile::Open(entry.path().string());
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      for (const SafetensorsTensor& tensor : file->tensors()) {
        if (tensor.name.ends_with("inv_freq")) continue;
        if (tensor.name.starts_with("lm_head") && config_.value("tie_word_embeddings", false)) {
          continue;
        }
        std::string name = tensor.name;
        int expert = -1;
        if (const std::size_t at = name.find("experts."); at != std::string::npos) {
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
        if (name.find("gate_inp_shexp") != std::string::npos) sizes.pop_back();  // one row
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

TEST_P(GgufArchitectures, IsTheCheckpointThatItWasMadeFrom) {
  const auto goldens = ReadGoldens(folder_);
  ASSERT_TRUE(goldens.has_value());
  builder_.Write(path_);
  const auto model = DecoderModel::Load(path_, HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_THAT(model->config().warnings, testing::IsEmpty());
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  auto session = Session::Create(*model, *dispatch, {});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  const auto result = session->Prefill(sequence, goldens->input_ids, {.all_logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ASSERT_EQ(result->logits.size(), goldens->logits.size());
  EXPECT_LE(RelativeL2(result->logits.data(), goldens->logits.data(), result->logits.size()), 1e-5);
}

// The number of experts in a tensor is the metadata's.
TEST_P(GgufArchitectures, WhatContradictsIsNamed) {
  const std::string name = GetParam().architecture;
  if (config_.contains("num_experts_per_tok")) {
    GgufBuilder other = builder_;
    for (const std::string part : {"expert_count", "expert_used_count"}) {
      const std::string key = GgufBuilder::Text(name + "." + part);
      const std::size_t at = other.metadata.find(key);
      ASSERT_NE(at, std::string::npos);
      other.metadata[at + key.size() + 4] = 2;
    }
    other.Write(path_);
    const auto model = DecoderModel::Load(path_, HostMemory());
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.status().message(), HasSubstr("tensor blk.0.ffn_gate_inp.weight is ["));
    return;
  }
  builder_.Add(name + ".expert_count", 4u);
  builder_.Write(path_);
  const auto model = DecoderModel::Load(path_, HostMemory());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(model.status().message(),
              HasSubstr("expert_count is 4; known is this architecture without routed experts"));
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufArchitectures,
    testing::Values(
        Case{.golden = "mixtral-shards", .architecture = "llama", .own = true, .turned = true},
        Case{.golden = "qwen3-moe", .architecture = "qwen3moe"},
        Case{.golden = "qwen2-moe", .architecture = "qwen2moe"},
        Case{.golden = "gemma2", .architecture = "gemma2", .norms_plus_1 = true},
        Case{.golden = "gemma3", .architecture = "gemma3", .norms_plus_1 = true},
        Case{.golden = "phi3-longrope-short", .architecture = "phi3"},
        Case{.golden = "phi3-longrope-long", .architecture = "phi3"},
        Case{.golden = "phi4-mini", .architecture = "phi3"}));

}  // namespace
}  // namespace culet
