// quantization_config: what is read of it, and what is refused with its key.
#include "model/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "culet/decoder.h"

namespace culet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Form = WeightCoding::Form;

Result<DecoderConfig> Parse(const std::string& quantization) {
  return ParseDecoderConfig(
      fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "vocab_size": 96, "hidden_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 256,
        "quantization_config": {}}})",
                  quantization),
      "config");
}

std::string Float(const std::string& weights, const std::string& inputs) {
  return fmt::format(
      R"({{"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "config_groups": {{"group_0": {{"targets": ["Linear"],
        "weights": {{"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false, {}}},
        "input_activations": {}}}}}}})",
      weights, inputs);
}

std::string Packed(const std::string& weights) {
  return fmt::format(
      R"({{"quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {{"group_0": {{"weights": {{"num_bits": 4, "type": "int", {}}}}}}}}})",
      weights);
}

constexpr const char* kTokens =
    R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true, "symmetric": true})";
constexpr const char* kTensor =
    R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false, "symmetric": true})";

TEST(QuantizationConfig, WhatIsKnown) {
  constexpr QuantDesc kRows{QuantType::kRow}, kBlocks{QuantType::kB, 128};
  const auto coding = [](const std::string& text) {
    const auto config = Parse(text);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    if (!config.ok()) return WeightCoding{};
    EXPECT_THAT(config->warnings, IsEmpty());
    return config->coding;
  };
  WeightCoding made = coding(Float(R"("strategy": "channel")", kTokens));
  EXPECT_EQ(made.form, Form::kFloatQuantized);
  EXPECT_EQ(made.weights, kRows);
  EXPECT_EQ(made.inputs, kRows);
  EXPECT_FALSE(made.given_inputs);
  EXPECT_THAT(made.plain, ElementsAre("lm_head"));
  made = coding(Float(R"("strategy": "tensor")", kTensor));
  EXPECT_EQ(made.weights, QuantDesc{QuantType::kTensor});
  EXPECT_EQ(made.inputs, kRows);
  EXPECT_TRUE(made.given_inputs);
  made = coding(Float(R"("strategy": "block", "block_structure": [128, 128])",
                      R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
                          "dynamic": true})"));
  EXPECT_EQ(made.weights, kBlocks);
  EXPECT_EQ(made.inputs, (QuantDesc{QuantType::kK, 128}));
  made = coding(Float(R"("strategy": "block", "block_structure": [128, 128])", "null"));
  EXPECT_EQ(made.weights, kBlocks);
  EXPECT_EQ(made.inputs, QuantDesc{});  // weights alone
  made = coding(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                    "modules_to_not_convert": ["lm_head", "re:.*gate$"]})");
  EXPECT_EQ(made.form, Form::kFp8);
  EXPECT_EQ(made.weights, kBlocks);
  EXPECT_THAT(made.plain, ElementsAre("lm_head", "re:.*gate$"));
  made = coding(R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
                    "zero_point": true})");
  EXPECT_EQ(made.form, Form::kAwq);
  EXPECT_EQ(made.weights, (QuantDesc{QuantType::kK, 64}));
  made = coding(R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": true})");
  EXPECT_EQ(made.weights, kRows);
  EXPECT_TRUE(made.zeros_less_one);
  EXPECT_TRUE(made.symmetric);
  made = coding(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": false,
                    "checkpoint_format": "gptq_v2"})");
  EXPECT_FALSE(made.zeros_less_one);
  made = coding(Packed(R"("strategy": "group", "group_size": 32, "symmetric": true)"));
  EXPECT_EQ(made.form, Form::kPackQuantized);
  EXPECT_FALSE(made.zeros);
  made = coding(Packed(R"("strategy": "channel", "symmetric": false)"));
  EXPECT_EQ(made.weights, kRows);
  EXPECT_TRUE(made.zeros);
}

TEST(QuantizationConfig, WhatIsRefused) {
  const struct {
    std::string text, message;
  } kCases[] = {
      {R"({"quant_method": "bitsandbytes"})",
       "config: quantization_config has quant_method \"bitsandbytes\"; known is quant_method fp8"},
      {R"({})", "quantization_config is none that is known"},
      {R"([])", "quantization_config is none that is known"},
      {R"({"quant_method": "awq", "bits": 3, "group_size": 64})",
       "quantization_config has bits 3; known is 4"},
      {R"({"quant_method": "awq", "group_size": 64})", "quantization_config has no bits"},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemv"})",
       "quantization_config has version \"gemv\"; known is gemm, GEMM"},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 0})",
       "quantization_config has group_size 0; it must be -1, for a whole row, or an even number"},
      {R"({"quant_method": "gptq", "bits": 4})", "quantization_config has group_size null"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 1e300})",
       "quantization_config has group_size 1e+300"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"})",
       "quantization_config has checkpoint_format \"marlin\"; known is gptq, gptq_v2"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"x": {}}})",
       "quantization_config has dynamic {\"x\":{}}; known is {}"},
      {R"({"quant_method": "compressed-tensors", "format": "int-quantized"})",
       "quantization_config has format \"int-quantized\"; known is float-quantized, "
       "pack-quantized"},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})",
       "quantization_config has no config_groups"},
      {Float(R"("strategy": "channel")", "[]"), "input_activations that are no object"},
      {Float(R"("strategy": "channel")",
             R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": true})"),
       "config_groups' input_activations.strategy \"tensor\"; known is token"},
      {Float(R"("strategy": "block", "block_structure": [64, 64])", kTokens),
       "config_groups' weights.block_structure [64,64]; known is [128,128]"},
      {Packed(R"("strategy": "group", "group_size": 3, "symmetric": true)"),
       "config_groups' weights.group_size 3; it must be -1"},
      {Packed(R"("strategy": "tensor", "symmetric": true)"),
       "config_groups' weights.strategy \"tensor\"; known is group, channel"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128],
           "modules_to_not_convert": ["re:("]})",
       "quantization_config has in modules_to_not_convert re:(, no regular expression"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128],
           "modules_to_not_convert": ["re:(a*)*(a*)*b"]})",
       "no regular expression of at most 200 bytes and 3 repeats"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": 7})",
       "quantization_config has modules_to_not_convert 7; it must be a list of names"},
  };
  for (const auto& [text, message] : kCases) {
    const auto config = Parse(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.status().message(), HasSubstr(message)) << text;
  }
}

TEST(QuantizationConfig, DifferentGroupsAreRefused) {
  const auto config = Parse(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int", "strategy": "group",
      "group_size": 64, "symmetric": true}},
      "b": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true}}}})");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(),
              HasSubstr("quantization_config has a config_groups.b that differs from the first"));
}

TEST(QuantizationConfig, ModulesByNameAndPattern) {
  const auto lists = [](const char* pattern, const char* module) {
    const std::vector<std::string> patterns{"other", pattern};
    return ListsModule(patterns, module);
  };
  EXPECT_TRUE(lists("lm_head", "lm_head"));
  EXPECT_TRUE(lists("model.layers.1", "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(lists("model.layers.1", "model.layers.10.mlp.down_proj"));
  EXPECT_FALSE(lists("model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj"));
  EXPECT_TRUE(lists("down_proj", "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(lists("proj", "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(lists("", "lm_head"));
  EXPECT_TRUE(lists("re:.*lm_head", "lm_head"));
  EXPECT_TRUE(lists("re:.*lm_head", "model.lm_head.x"));
  EXPECT_TRUE(lists(R"(re:.*layers\.[02]\.mlp)", "model.layers.2.mlp.up_proj"));
  EXPECT_FALSE(lists(R"(re:.*layers\.[02]\.mlp)", "model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(lists("re:lm_head", "model.lm_head"));
}

}  // namespace
}  // namespace culet
