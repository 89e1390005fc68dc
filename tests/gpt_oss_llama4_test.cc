// What is special in the configs of gpt-oss and Llama 4.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "culet/decoder.h"

namespace culet {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Sizes(const char* architecture) {
  return {{"architectures", {architecture}},
          {"vocab_size", 96},
          {"hidden_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"intermediate_size", 48},
          {"num_local_experts", 6},
          {"num_experts_per_tok", 2},
          {"max_position_embeddings", 64}};
}

json GptOss() {
  json config = Sizes("GptOssForCausalLM");
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 32},
                            {"original_max_position_embeddings", 16},
                            {"truncate", false}};
  return config;
}

json Llama4() {
  json config = Sizes("Llama4ForCausalLM");
  config["num_experts_per_tok"] = 1;
  config["intermediate_size_mlp"] = 80;
  return config;
}

std::string WhyNot(const json& config) {
  const auto parsed = ParseDecoderConfig(config.dump(), "config");
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(GptOssConfig, HasSinksWindowsAndExpertsEverywhere) {
  const auto config = ParseDecoderConfig(GptOss().dump(), "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_THAT(config->warnings, IsEmpty());
  EXPECT_TRUE(config->sinks && config->qkv_bias && config->o_bias && config->router_bias);
  EXPECT_THAT(config->windows, ElementsAre(128, 0, 128, 0));
  EXPECT_THAT(config->sparse, ElementsAre(true, true, true, true));
  EXPECT_EQ(config->routing.scoring, RouterScoring::kSoftmaxOfChosen);
  EXPECT_EQ(config->gate, GateKind::kClampedSilu);
  EXPECT_FLOAT_EQ(config->gate_limit, 7);
  EXPECT_FLOAT_EQ(config->gate_slope, 1.702f);
  EXPECT_FALSE(config->rope.truncate);
}

TEST(GptOssConfig, WhatCannotBeIsNamed) {
  json config = GptOss();
  config.erase("rope_scaling");
  EXPECT_THAT(WhyNot(config), HasSubstr("rope_parameters is missing"));
  for (const char* key : {"swiglu_limit", "swiglu_alpha"}) {
    for (const json& value : {json(0), json(-1), json("7")}) {
      config = GptOss();
      config[key] = value;
      EXPECT_THAT(WhyNot(config), HasSubstr(key)) << value;
    }
  }
  config = GptOss();
  config["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(WhyNot(config), HasSubstr("layer_types"));
  config = GptOss();
  config["num_experts_per_tok"] = 7;
  EXPECT_THAT(WhyNot(config), HasSubstr("num_experts_per_tok is 7"));
}

TEST(Llama4Config, LayersWithoutRopeSeeEverything) {
  json config = Llama4();
  config["attention_chunk_size"] = 8;
  config["interleave_moe_layer_step"] = 2;
  for (const json& none : {json(), json::array()}) {
    config["no_rope_layers"] = none;
    const auto parsed = ParseDecoderConfig(config.dump(), "config");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_THAT(parsed->chunks, ElementsAre(8, 8, 8, 0));
    EXPECT_THAT(parsed->ropes, ElementsAre(LayerRope::kMain, LayerRope::kMain, LayerRope::kMain,
                                           LayerRope::kNone));
    EXPECT_THAT(parsed->sparse, ElementsAre(false, true, false, true));
    EXPECT_EQ(parsed->intermediate, 80);
    EXPECT_EQ(parsed->moe_intermediate, 48);
    EXPECT_EQ(parsed->shared_intermediate, 48);
    EXPECT_TRUE(parsed->share_scales_input && parsed->qk_norm_turned);
  }
  config["no_rope_layers"] = {0, 1, 1, 0};
  config["moe_layers"] = {0};
  const auto parsed = ParseDecoderConfig(config.dump(), "config");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_THAT(parsed->chunks, ElementsAre(0, 8, 8, 0));
  EXPECT_THAT(parsed->sparse, ElementsAre(true, false, false, false));
}

// Files of before transformers 5 have a number.
TEST(Llama4Config, ANumberMaySayThatQueriesGrow) {
  json config = Llama4();
  for (const auto& [given, grows] :
       {std::pair{json(true), true}, {json(4), true}, {json(0), false}, {json(false), false}}) {
    config["attn_temperature_tuning"] = given;
    const auto parsed = ParseDecoderConfig(config.dump(), "config");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->query_growth > 0, grows) << given;
  }
  config["attn_temperature_tuning"] = "yes";
  EXPECT_THAT(WhyNot(config), HasSubstr("attn_temperature_tuning"));
}

TEST(Llama4Config, WhatCannotBeIsNamed) {
  for (const auto& [key, value] : {std::pair{"attention_chunk_size", json(0)},
                                   {"floor_scale", json(-1)},
                                   {"attn_scale", json(0)},
                                   {"no_rope_layers", json({1, 0})},
                                   {"moe_layers", json("all")},
                                   {"layer_types", json({"chunked_attention", "sliding_attention",
                                                         "full_attention", "full_attention"})},
                                   {"interleave_moe_layer_step", json(0)}}) {
    json config = Llama4();
    config[key] = value;
    EXPECT_THAT(WhyNot(config), HasSubstr(key)) << value;
  }
}

// The text's part of a model that sees pictures, with the rope of Llama 4 Scout: no frequency lies
// between its two factors.
TEST(Llama4Config, StandsInAContainer) {
  json text = Llama4();
  text.erase("architectures");
  text["model_type"] = "llama4_text";
  text["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 16},
                          {"high_freq_factor", 1},
                          {"low_freq_factor", 1},
                          {"original_max_position_embeddings", 8192}};
  const json config = {{"architectures", {"Llama4ForConditionalGeneration"}},
                       {"model_type", "llama4"},
                       {"text_config", text}};
  const auto parsed = ParseDecoderConfig(config.dump(), "config");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->container, "Llama4ForConditionalGeneration");
  EXPECT_EQ(parsed->architecture, "Llama4ForCausalLM");
}

}  // namespace
}  // namespace culet
