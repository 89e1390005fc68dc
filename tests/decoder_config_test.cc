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

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Config(const std::string& more, const std::string& architecture = "LlamaForCausalLM") {
  return fmt::format(R"({{"architectures": ["{}"], "vocab_size": 96, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80, "head_dim": 16,
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "max_position_embeddings": 64{}}})",
                     architecture, more);
}

Result<DecoderConfig> Parse(const std::string& more) {
  return ParseDecoderConfig(Config(more), "config");
}

TEST(DecoderConfig, PartialRotaryFactorTurnsNoLessOfAHead) {
  for (const std::string& architecture : KnownDecoders()) {
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

TEST_F(ConfigFolder, AGgufFileIsNamedWithTheWayOut) {
  const std::string by_name = Write("model.GGUF", "");
  const std::string by_bytes = Write("model", std::string("GGUF\3\0\0\0", 8));
  for (const std::string& path : {by_name, by_bytes, folder_}) {
    const Status statuses[] = {ReadDecoderConfig(path).status(), ReadModelShapes(path).status(),
                               DecoderModel::Load(path, HostMemory()).status()};
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported) << path;
      EXPECT_THAT(status.message(), HasSubstr("is a GGUF file, which culet does not read yet; give "
                                              "the folder of the Hugging Face checkpoint"));
    }
  }
  // Beside a config, such a file is none of our business.
  Write("config.json", Config(""));
  EXPECT_TRUE(ReadDecoderConfig(folder_).ok());
}

}  // namespace
}  // namespace culet
