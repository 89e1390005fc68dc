// Keys of config.json and generation_config.json, and folders that hold something else.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/model.h"

namespace culet {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Config(const std::string& more, const std::string& architecture = "LlamaForCausalLM") {
  return fmt::format(R"({{"architectures": ["{}"], "vocab_size": 96, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 80, "head_dim": 16,
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "max_position_embeddings": 64{}}})",
                     architecture, more);
}

Result<DecoderConfig> Parse(const std::string& more) {
  return ParseDecoderConfig(Config(more), "config");
}

// Where null is another value to transformers than a missing key, or none that it takes.
TEST(DecoderConfig, NullsThatAreNoDefault) {
  const auto refused = [](const char* architecture, const char* more, const char* key) {
    const auto config = ParseDecoderConfig(Config(more, architecture), "config");
    EXPECT_THAT(config.status().message(), HasSubstr(key)) << architecture;
    EXPECT_THAT(config.status().message(), HasSubstr("is null")) << architecture;
  };
  refused("Glm4ForCausalLM", R"(, "partial_rotary_factor": null)", "partial_rotary_factor");
  refused("Qwen3NextForCausalLM", R"(, "shared_expert_intermediate_size": 40, "rope_parameters":
      {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": null})",
          "partial_rotary_factor");
  refused("Glm4MoeForCausalLM", R"(, "n_routed_experts": 4, "norm_topk_prob": null)",
          "norm_topk_prob");
  refused("Qwen3ForCausalLM", R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4,
      "original_max_position_embeddings": 16, "truncate": null})",
          "truncate");
}

// What counts where the key is missing is each class's own.
TEST(DecoderConfig, ThetasByDefault) {
  const auto config = [](const char* architecture, const char* more) {
    return *ParseDecoderConfig(Config(more, architecture), "config");
  };
  EXPECT_EQ(config("CohereForCausalLM", "").rope.theta, 5e5);
  EXPECT_EQ(config("Cohere2ForCausalLM", "").rope.theta, 1e4);
  EXPECT_EQ(config("Olmo3ForCausalLM", "").rope.theta, 5e5);
  // Those of layers with a window know no rope_theta.
  const DecoderConfig olmo = config("Olmo3ForCausalLM", R"(, "rope_theta": 1e6)");
  EXPECT_EQ(olmo.rope.theta, 1e6);
  EXPECT_EQ(olmo.local_rope.theta, 5e5);
}

TEST(DecoderConfig, Gemma3HasNoCapOfAttention) {
  const auto config = ParseDecoderConfig(
      Config(R"(, "attn_logit_softcapping": 50.0)", "Gemma3ForCausalLM"), "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->attention_softcap, 0);
  EXPECT_THAT(config->warnings, Contains(HasSubstr("attn_logit_softcapping")));
}

// Those of which each takes a config without more than the usual keys.
constexpr const char* kWholeHeads[] = {
    "LlamaForCausalLM",   "MistralForCausalLM",  "MixtralForCausalLM", "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",   "Qwen3MoeForCausalLM", "Gemma2ForCausalLM",  "Gemma3ForCausalLM",
    "Olmo2ForCausalLM",   "Olmo3ForCausalLM",    "SmolLM3ForCausalLM", "SeedOssForCausalLM",
    "GraniteForCausalLM", "Ernie4_5ForCausalLM", "CohereForCausalLM",  "Cohere2ForCausalLM"};

TEST(DecoderConfig, PartialRotaryFactorTurnsPartsOfHeadsInPhi3AndGlm4) {
  for (const char* architecture : {"Phi3ForCausalLM", "Glm4ForCausalLM"}) {
    for (const char* more : {R"(, "partial_rotary_factor": 0.75)",
                             R"(, "rope_parameters": {"partial_rotary_factor": 0.75})"}) {
      const auto config = ParseDecoderConfig(Config(more, architecture), "config");
      ASSERT_TRUE(config.ok()) << config.status().ToString();
      EXPECT_EQ(config->rope.dims, 12) << architecture;
    }
    for (const char* bad : {"0", "-1", "1.5", "0.07", "1e9"}) {
      const auto config = ParseDecoderConfig(
          Config(fmt::format(R"(, "partial_rotary_factor": {})", bad), architecture), "config");
      EXPECT_THAT(config.status().message(), HasSubstr("partial_rotary_factor is")) << bad;
    }
  }
  EXPECT_EQ(ParseDecoderConfig(Config("", "Phi3ForCausalLM"), "")->rope.dims, 16);
  EXPECT_EQ(ParseDecoderConfig(Config("", "Glm4ForCausalLM"), "")->rope.dims, 8);
}

TEST(DecoderConfig, PartialRotaryFactorTurnsNoLessOfAHead) {
  for (const std::string architecture : kWholeHeads) {
    for (const char* more : {R"(, "partial_rotary_factor": 0.5)",
                             R"(, "rope_parameters": {"partial_rotary_factor": 0.5})"}) {
      const auto config = ParseDecoderConfig(Config(more, architecture), "config");
      ASSERT_TRUE(config.ok()) << config.status().ToString();
      EXPECT_EQ(config->rope.dims, 16) << architecture;
    }
  }
  EXPECT_TRUE(Parse(R"(, "partial_rotary_factor": 1.0,
    "rope_scaling": {"type": "linear", "factor": 2})")
                  .ok());
}

TEST(DecoderConfig, WhatIsNotHonouredIsRefused) {
  const std::pair<const char*, const char*> refused[] = {
      {R"(, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2})",
       "partial_rotary_factor is 0.5 with rope type linear; known is 1"},
      {R"(, "rope_parameters": {"full_attention": {"rope_theta": 1e6},
            "sliding_attention": {"rope_theta": 1e4}})",
       "rope_parameters holds an object, full_attention; parameters by layer type"},
      {R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
            "scale_fmt": "ue8m0"})",
       "quantization_config has scale_fmt \"ue8m0\"; known is float"},
      {R"(, "hidden_act": "gelu")", "hidden_act is gelu; known are silu, swish"}};
  for (const auto& [more, message] : refused) {
    const auto config = Parse(more);
    EXPECT_EQ(config.status().code(), StatusCode::kUnsupported) << more;
    EXPECT_THAT(config.status().message(), HasSubstr(message));
  }
  for (const char* more :
       {R"(, "hidden_act": "silu")", R"(, "hidden_act": "swish")",
        R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
            "scale_fmt": "float"})"}) {
    EXPECT_TRUE(Parse(more).ok()) << more;
  }
}

TEST(DecoderConfig, WhatWouldBeAnotherModelIsRefused) {
  const std::pair<const char*, const char*> refused[] = {
      {R"(, "is_causal": false)", "is_causal is false; known is true"},
      {R"(, "is_causal": null)", "is_causal is null; known is true"},
      {R"(, "is_encoder_decoder": true)", "is_encoder_decoder is true"},
      {R"(, "per_layer_config": {"0": {"head_dim": 8}})", "per_layer_config is {"},
      {R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
            "dequantize": true})",
       "quantization_config has dequantize true; known is false"},
      {R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
            "modules_to_convert": ["lm_head"]})",
       "quantization_config has modules_to_convert [\"lm_head\"]; known is []"}};
  for (const auto& [more, message] : refused) {
    const auto config = Parse(more);
    EXPECT_EQ(config.status().code(), StatusCode::kUnsupported) << more;
    EXPECT_THAT(config.status().message(), HasSubstr(message));
  }
  EXPECT_TRUE(
      Parse(R"(, "is_causal": true, "per_layer_config": {}, "is_encoder_decoder": false)").ok());
}

// As transformers 5.24 has it.
TEST(DecoderConfig, HeadsThatAreNotGiven) {
  const std::pair<const char*, std::pair<int, int>> defaults[] = {
      {"LlamaForCausalLM", {8, 8}},   {"MistralForCausalLM", {8, 8}},
      {"MixtralForCausalLM", {8, 8}}, {"Qwen2ForCausalLM", {8, 8}},
      {"Qwen3ForCausalLM", {8, 128}}, {"Qwen3MoeForCausalLM", {4, 8}}};
  for (const auto& [name, sizes] : defaults) {
    std::string text = Config("", name);
    text.erase(text.find(R"("head_dim": 16,)"), 15);
    const auto config = ParseDecoderConfig(text, "config");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(std::pair(config->kv_heads, config->head_dim), sizes) << name;
  }
}

TEST(DecoderConfig, LayerTypesCountInQwen2AndQwen3Alone) {
  for (const std::string name : {"LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM",
                                 "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}) {
    const auto config = ParseDecoderConfig(
        Config(R"(, "sliding_window": 7, "use_sliding_window": true, "max_window_layers": 1,
               "layer_types": ["sliding_attention", "full_attention"])",
               name),
        "config");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    const bool counts = name == "Qwen2ForCausalLM" || name == "Qwen3ForCausalLM";
    const bool windows = name != "LlamaForCausalLM";
    EXPECT_THAT(config->windows, ElementsAre(windows ? 7 : 0, counts || !windows ? 0 : 7)) << name;
    EXPECT_THAT(config->warnings, Contains(HasSubstr("layer_types")).Times(counts ? 0 : 1)) << name;
  }
}

TEST(DecoderConfig, ArchitecturesAndModelTypeMustAgree) {
  const auto named = [](const char* architectures, const char* type) {
    std::string text = Config(type);
    text.replace(text.find(R"("architectures": ["LlamaForCausalLM"])"), 37, architectures);
    return ParseDecoderConfig(text, "config");
  };
  for (const char* architectures :
       {R"("architectures": ["MistralForCausalLM"])", R"("architectures": ["MistralModel"])",
        R"("architectures": ["Other", "MistralForCausalLM"])", R"("architectures": null)"}) {
    const auto config = named(architectures, R"(, "model_type": "mistral")");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->architecture, "MistralForCausalLM");
  }
  for (const char* type : {"llama", "other"}) {
    const auto config = named(R"("architectures": ["MistralForCausalLM"])",
                              fmt::format(R"(, "model_type": "{}")", type).c_str());
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(config.status().message(),
                HasSubstr(fmt::format("architectures is MistralForCausalLM, but model_type is {}; "
                                      "the two must name one architecture (MistralForCausalLM has "
                                      "mistral)",
                                      type)));
  }
  const auto other =
      named(R"("architectures": ["LlamaForSequenceClassification"])", R"(, "model_type": "llama")");
  EXPECT_EQ(other.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(named(R"("architectures": ["MistralModel"])", "")->architecture, "MistralForCausalLM");
}

constexpr const char* kYarn = R"({"rope_type": "yarn", "factor": 4,
  "original_max_position_embeddings": 16})";

// What transformers 5.24 makes of them.
TEST(DecoderConfig, BothSpellingsOfRope) {
  const auto both = [](const std::string& parameters, const std::string& scaling) {
    return Parse(fmt::format(R"(, "rope_theta": 1e6, "rope_parameters": {}, "rope_scaling": {})",
                             parameters, scaling));
  };
  const std::pair<const char*, const char*> yarn[] = {
      {"null", kYarn},
      {"{}", kYarn},
      {kYarn, "null"},
      {kYarn, "{}"},
      {kYarn, kYarn},
      {kYarn, R"({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                  "rope_theta": 1e6})"}};
  for (const auto& [parameters, scaling] : yarn) {
    const auto config = both(parameters, scaling);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->rope.scaling, RopeScaling::kYarn);
    EXPECT_EQ(config->rope.original_context, 16);
    EXPECT_EQ(config->rope.theta, 1e6);
  }
  const std::pair<const char*, const char*> refused[] = {
      {R"({"rope_type": "default", "rope_theta": 1e6})", kYarn},
      {kYarn, R"({"rope_type": "default"})"},
      {kYarn, R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 16})"}};
  for (const auto& [parameters, scaling] : refused) {
    const auto config = both(parameters, scaling);
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << parameters;
    EXPECT_THAT(config.status().message(), HasSubstr("rope_scaling is {"));
    EXPECT_THAT(config.status().message(), HasSubstr("but rope_parameters is {"));
  }
  // Where theta stands in one of them alone, transformers loses it.
  EXPECT_FALSE(Parse(R"(, "rope_parameters": {"rope_type": "linear", "factor": 2,
      "rope_theta": 1e6}, "rope_scaling": {"rope_type": "linear", "factor": 2})")
                   .ok());
}

TEST(DecoderConfig, TheOriginalContextOfRope) {
  const auto original = [](const std::string& more) {
    const auto config = Parse(more);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.ok() ? config->rope.original_context : -1;
  };
  const std::string yarn = fmt::format(R"(, "rope_scaling": {})", kYarn);
  EXPECT_EQ(original(yarn), 16);
  EXPECT_EQ(original(yarn + R"(, "original_max_position_embeddings": 32)"), 32);
  EXPECT_EQ(original(yarn + R"(, "original_max_position_embeddings": null)"), 16);
  EXPECT_EQ(original(R"(, "rope_parameters": {"rope_type": "yarn", "factor": 2},
                        "original_max_position_embeddings": 32)"),
            32);
  EXPECT_EQ(original(R"(, "rope_parameters": {"rope_type": "yarn", "factor": 2})"), 64);
  const std::string llama3 = R"(, "rope_scaling": {"rope_type": "llama3", "factor": 2,
                                "low_freq_factor": 1, "high_freq_factor": 4})";
  EXPECT_EQ(original(llama3), 64);
  EXPECT_EQ(original(llama3 + R"(, "original_max_position_embeddings": 32)"), 32);
  EXPECT_FALSE(Parse(yarn + R"(, "original_max_position_embeddings": -1)").ok());
}

TEST(DecoderConfig, TextOfTheFileIsShownPrintable) {
  constexpr const char* kEscape = "\\u001b[31m\\u009b\\u202e";
  for (const char* form :
       {R"(, "hidden_act": "{}")", R"(, "rope_scaling": {{"rope_type": "{}", "factor": 2}})",
        R"(, "rope_parameters": {{"{}": {{}}}})", R"(, "vocab_size": "{}")",
        R"(, "quantization_config": "{}")", R"(, "model_type": "{}")", R"(, "torch_dtype": 1,
        "{}": 2)",
        R"(, "rope_scaling": {{"{}": 1}})"}) {
    const auto config = Parse(fmt::format(fmt::runtime(form), kEscape));
    std::string text = config.status().message();
    for (const std::string& warning : config.ok() ? config->warnings : std::vector<std::string>()) {
      text += warning;
    }
    EXPECT_FALSE(text.empty()) << form;
    for (const char* raw : {"\x1b", "\xc2\x9b", "\xe2\x80\xae"}) {
      EXPECT_THAT(text, Not(HasSubstr(raw))) << form;
    }
  }
}

class ConfigFolder : public testing::Test {
 protected:
  void SetUp() override {
    // Of its own: another run of the tests may be under way.
    folder_ = testing::TempDir() + "/culet-config-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::vector<int> EndTokens() {
    const auto config = ReadDecoderConfig(folder_);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.ok() ? config->eos_ids : std::vector<int>{-1};
  }

  std::string folder_;
};

TEST_F(ConfigFolder, EndTokensOfTheGenerationConfigCountMore) {
  Write("config.json", Config(R"(, "eos_token_id": 2)"));
  EXPECT_THAT(EndTokens(), ElementsAre(2));
  Write("generation_config.json", R"({"temperature": 0.6})");
  EXPECT_THAT(EndTokens(), ElementsAre(2));
  Write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(EndTokens(), ElementsAre(2));
  Write("generation_config.json", R"({"eos_token_id": [5, 7]})");
  EXPECT_THAT(EndTokens(), ElementsAre(5, 7));
  Write("generation_config.json", R"({"eos_token_id": 3})");
  EXPECT_THAT(EndTokens(), ElementsAre(3));
  Write("config.json", Config(""));
  EXPECT_THAT(EndTokens(), ElementsAre(3));
}

TEST_F(ConfigFolder, ABadGenerationConfigIsNamed) {
  Write("config.json", Config(""));
  const std::pair<const char*, const char*> bad[] = {
      {"[]", "generation_config.json is not a JSON object"},
      {R"({"eos_token_id": "two"})", "generation_config.json: eos_token_id is \"two\""},
      {R"({"eos_token_id": [1, -2]})", "generation_config.json: eos_token_id is -2"}};
  for (const auto& [text, message] : bad) {
    Write("generation_config.json", text);
    const auto config = ReadDecoderConfig(folder_);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.status().message(), HasSubstr(message));
  }
}

TEST_F(ConfigFolder, PagesAndPointersAreNamed) {
  const std::pair<const char*, const char*> replaced[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
       "; it is a Git LFS pointer: fetch the file itself with git lfs pull"},
      {"\xef\xbb\xbf\n<!DOCTYPE html>\n<html></html>",
       "; it is an HTML page: download the file itself"},
      {"<HTML>404</HTML>", "; it is an HTML page: download the file itself"}};
  for (const auto& [text, words] : replaced) {
    Write("config.json", text);
    EXPECT_THAT(ReadDecoderConfig(folder_).status().message(), HasSubstr(words));
    EXPECT_THAT(ReadModelShapes(folder_).status().message(), HasSubstr(words));
    Write("config.json", Config(""));
    Write("generation_config.json", text);
    EXPECT_THAT(ReadDecoderConfig(folder_).status().message(), HasSubstr(words));
    Write("generation_config.json", "{}");
  }
}

TEST_F(ConfigFolder, AGgufFileThatIsNoneIsNamed) {
  const std::string by_name = Write("model.GGUF", "");
  const std::string by_bytes = Write("model", std::string("GGUF\3\0\0\0", 8));
  for (const std::string& path : {by_name, by_bytes, folder_}) {
    const Status statuses[] = {ReadDecoderConfig(path).status(), ReadModelShapes(path).status(),
                               DecoderModel::Load(path, HostMemory()).status()};
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << path;
      EXPECT_THAT(status.message(), HasSubstr(path == by_bytes ? "the number of tensors needs"
                                                               : "it does not begin with GGUF"));
    }
  }
  // Beside a config, such a file is none of our business.
  Write("config.json", Config(""));
  EXPECT_TRUE(ReadDecoderConfig(folder_).ok());
}

}  // namespace
}  // namespace culet
