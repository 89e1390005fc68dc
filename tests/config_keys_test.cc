// Every key of a config.json is used, harmless or named in a warning; docs/graph.md has the list.
#include "model/config_keys.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
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

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

json Transformers() {
  return json::parse(ReadAll(CULET_SOURCE_DIR "/tests/goldens/config_keys.json"));
}

// The defaults of transformers' classes, with keys of older files.
TEST(ConfigKeys, TransformersOwnKeysNeedNoWarning) {
  const json document = Transformers();
  for (const auto& [name, defaults] : document.at("configs").items()) {
    json config = defaults;
    for (const json& key : document.at("generation")) config[key.get<std::string>()] = 1;
    config["architectures"] = {name};
    config["torch_dtype"] = "bfloat16";
    const auto parsed = ParseDecoderConfig(config.dump(), "config");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_THAT(parsed->warnings, IsEmpty()) << name;
  }
}

TEST(ConfigKeys, RealConfigsNeedNoWarning) {
  int read = 0;
  for (const char* place : {"/tests/goldens", "/examples", "/examples/models"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(CULET_SOURCE_DIR + std::string(place))) {
      const auto config = ReadDecoderConfig(entry.path().string());
      if (!config.ok()) continue;
      ++read;
      if (entry.path().filename() == "mistral-window") {
        EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("partial_rotary_factor")));
      } else {
        EXPECT_THAT(config->warnings, IsEmpty()) << entry.path();
      }
    }
  }
  EXPECT_GE(read, 15);
}

// A key of another class says nothing here, and is named where it seems to.
TEST(ConfigKeys, KeysOfOtherArchitecturesAreNamed) {
  const json document = Transformers();
  for (const DecoderArchitecture* each : DecoderArchitectures()) {
    const json& configs = document.at("configs");
    const json own = configs.contains(each->name) ? configs.at(each->name) : json::object();
    for (const ConfigKey& key : UsedKeys()) {
      const auto named_so = [&](const char* name) { return std::string_view(name) == key.name; };
      const bool read = Reads(*each, key) || std::ranges::any_of(each->silent, named_so);
      // Another spelling, and what Gemma 3's class has and does not use.
      const bool idle = std::string_view(key.name) == "num_local_experts" ||
                        std::string_view(key.name) == "attn_logit_softcapping";
      EXPECT_TRUE(read || !own.contains(key.name) || idle) << each->name << " " << key.name;
      const auto named = UnusedKeys({{key.name, 2}}, *each, "config.json");
      EXPECT_EQ(named.size(), read ? 0U : 1U) << each->name << " " << key.name;
      for (const json& nothing : {json(), json(false), json(0), json::array(), json::object()}) {
        EXPECT_THAT(UnusedKeys({{key.name, nothing}}, *each, ""), IsEmpty());
      }
    }
    // What an architecture lists is known.
    for (const char* name : each->keys) {
      const auto known = [&](const ConfigKey& key) { return std::string_view(name) == key.name; };
      EXPECT_TRUE(std::ranges::any_of(UsedKeys(), known)) << each->name << " " << name;
    }
  }
  EXPECT_THAT(UnusedKeys({{"mlp_bias", true}, {"layer_types", {"full_attention"}}},
                         DecoderArchitectureOf("MixtralForCausalLM"), "config.json"),
              ElementsAre("config.json: without effect in MixtralForCausalLM: layer_types, "
                          "mlp_bias"));
}

TEST(ConfigKeys, UnknownKeysAreNamedWhateverTheySay) {
  const DecoderArchitecture& llama = DecoderArchitectureOf("LlamaForCausalLM");
  EXPECT_THAT(UnusedKeys({{"some_scaling", 8}, {"a\x1b", nullptr}}, llama, "config.json"),
              ElementsAre("config.json: unknown keys, which have no effect: a\\x1b, "
                          "some_scaling"));
  json many = json::object();
  for (int i = 0; i < 5000; ++i) many[fmt::format("key{}", i)] = i;
  const auto named = UnusedKeys(many, llama, "");
  ASSERT_EQ(named.size(), 1u);
  EXPECT_THAT(named[0], HasSubstr("and 4900 more"));
  EXPECT_LT(named[0].size(), 2000u);
}

TEST(ConfigKeys, KeysWithinObjects) {
  const auto warnings = [](const std::string& more) {
    const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
      "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
      "max_position_embeddings": 64, "intermediate_size": 80)" +
                                               more + "}",
                                           "config");
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.ok() ? config->warnings : std::vector<std::string>();
  };
  EXPECT_THAT(warnings(""), IsEmpty());
  EXPECT_THAT(warnings(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2, "finetuned": true,
                          "beta_fast": 32, "high_freq_factor": 4})"),
              ElementsAre("config: rope_scaling has keys without effect: finetuned, "
                          "high_freq_factor"));
  EXPECT_THAT(warnings(R"(, "rope_parameters": {"rope_type": "default", "factor": 2,
                          "partial_rotary_factor": 0.5})"),
              ElementsAre("config: rope_parameters has keys without effect: factor, "
                          "partial_rotary_factor"));
  EXPECT_THAT(warnings(R"(, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 8)"),
              ElementsAre("config: original_max_position_embeddings has no effect with rope type "
                          "default",
                          "config: partial_rotary_factor has no effect with rope type default"));
  EXPECT_THAT(warnings(R"(, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                          "weight_block_size": [128, 128], "activation_scheme": "dynamic",
                          "modules_to_not_convert": ["lm_head"], "observer": "minmax"})"),
              ElementsAre("config: quantization_config has keys without effect: observer"));
}

// Each key that an architecture lists is looked at: what it cannot mean is an error that names it.
TEST(ConfigKeys, ImpossibleValuesAreErrorsThatNameTheKey) {
  for (const DecoderArchitecture* each : DecoderArchitectures()) {
    const json usual = {{"architectures", {each->name}},
                        {"vocab_size", 96},
                        {"hidden_size", 64},
                        {"num_hidden_layers", 2},
                        {"num_attention_heads", 8},
                        {"num_key_value_heads", 8},
                        {"intermediate_size", 80},
                        {"head_dim", 16},
                        {"num_experts", 4},
                        {"num_local_experts", 4},
                        {"num_experts_per_tok", 2},
                        {"moe_intermediate_size", 40},
                        {"n_routed_experts", 4},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 1},
                        {"moe_num_experts", 4},
                        {"moe_k", 2},
                        {"shared_expert_intermediate_size", 40},
                        {"interleave_moe_layer_step", 2},
                        {"intermediate_size_mlp", 80},
                        {"max_position_embeddings", 64},
                        {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
    const auto parsed = ParseDecoderConfig(usual.dump(), "config");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    for (const char* key : each->keys) {
      for (const json& value : {json("x"), json(-1), json::object()}) {
        // Of which -1 is the last layer.
        if (std::string_view(key) == "moe_layer_end_index" && value == -1) continue;
        json config = usual;
        config[key] = value;
        const auto mutated = ParseDecoderConfig(config.dump(), "config");
        EXPECT_FALSE(mutated.ok()) << each->name << " " << key << " " << value;
        EXPECT_THAT(mutated.status().message(), HasSubstr(key)) << each->name << " " << value;
      }
      // Null, and what is too large for a float or a list, is no crash.
      for (const json& value :
           {json(), json(0), json(1e9), json(1e300), json(true), json::array({1, 2, 3})}) {
        json config = usual;
        config[key] = value;
        const auto mutated = ParseDecoderConfig(config.dump(), "config");
        EXPECT_TRUE(mutated.ok() || mutated.status().message().find(key) != std::string::npos)
            << each->name << " " << key << " " << value << " " << mutated.status().ToString();
      }
    }
  }
}

TEST(ConfigKeys, LongRopeIsCheckedAndPartsOfAFileAreNamed) {
  const auto said = [](const json& rope) {
    const json config = {{"architectures", {"Phi3ForCausalLM"}},
                         {"vocab_size", 96},
                         {"hidden_size", 64},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 8},
                         {"intermediate_size", 80},
                         {"max_position_embeddings", 64},
                         {"rope_scaling", rope}};
    return ParseDecoderConfig(config.dump(), "config").status().message();
  };
  const json right = {{"type", "longrope"},
                      {"short_factor", {1, 1, 1, 1}},
                      {"long_factor", {2, 2, 2, 2}},
                      {"original_max_position_embeddings", 16}};
  EXPECT_EQ(said(right), "");
  for (const char* key : {"short_factor", "long_factor", "original_max_position_embeddings"}) {
    for (const json& value : {json("x"), json(-1), json(0), json::array({1, 1, 1}),
                              json::array({1, 1, 1, "1"}), json::array({1, 1, 1, 0})}) {
      json wrong = right;
      wrong[key] = value;
      EXPECT_THAT(said(wrong), HasSubstr(key)) << value;
    }
  }
  const auto of = [](const json& text) {
    json config = {{"model_type", "mistral3"}, {"vision_config", json::object()}};
    if (!text.is_null()) config["text_config"] = text;
    return ParseDecoderConfig(config.dump(), "config").status();
  };
  EXPECT_THAT(of(json()).message(), HasSubstr("text_config is no object"));
  EXPECT_THAT(of("x").message(), HasSubstr("text_config is no object"));
  EXPECT_EQ(of({{"model_type", "llama"}}).code(), StatusCode::kUnsupported);
  EXPECT_THAT(of({{"model_type", "llama"}}).message(),
              HasSubstr("text_config has model_type llama; known in a "
                        "Mistral3ForConditionalGeneration are mistral, ministral3"));
  EXPECT_THAT(of({{"model_type", "mistral"}}).message(),
              HasSubstr("config: text_config: vocab_size is missing"));
}

// The table and the list between the two comments of docs/graph.md.
std::string Documented() {
  std::string text = "| key | counts in | |\n|---|---|---|\n";
  for (const ConfigKey& key : UsedKeys()) {
    std::vector<const char*> in;
    for (const DecoderArchitecture* each : DecoderArchitectures()) {
      if (Reads(*each, key)) in.push_back(each->model_type);
    }
    constexpr std::size_t kNamed = 2;  // the page stays short
    const std::string some = in.size() <= kNamed ? fmt::to_string(fmt::join(in, ", "))
                                                 : fmt::format("{} architectures", in.size());
    text +=
        fmt::format("| `{}` | {} | {} |\n", key.name, key.everywhere ? "all" : some, key.meaning);
  }
  text += "\nWithout effect on what is computed, and read without a word:";
  std::size_t column = 100;
  for (const char* key : HarmlessKeys()) {
    const std::string item = fmt::format("`{}`{}", key, key == HarmlessKeys().back() ? "." : ",");
    const bool wraps = column + item.size() > 99;
    text += (wraps ? "\n" : " ") + item;
    column = wraps ? item.size() : column + 1 + item.size();
  }
  return text + "\n";
}

TEST(ConfigKeys, TheDocsHaveThemAll) {
  const std::string docs = ReadAll(CULET_SOURCE_DIR "/docs/graph.md");
  const std::string begin = "<!-- keys of config.json: config_keys_test -->\n";
  const std::size_t from = docs.find(begin), to = docs.find("<!-- end of keys -->");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(docs.substr(from + begin.size(), to - from - begin.size()), Documented())
      << "put this text between the two comments of docs/graph.md";
}

// The table between the two comments of docs/models.md.
TEST(ConfigKeys, TheDocsHaveAllArchitectures) {
  std::string table = "| class | model_type | made of |\n|---|---|---|\n";
  for (const DecoderArchitecture* each : DecoderArchitectures()) {
    table += fmt::format("| {} | {} | {} |\n", each->name, each->model_type, each->parts);
  }
  for (const DecoderContainer& each : DecoderContainers()) {
    table += fmt::format("| {} | {} | the text part: {} |\n", each.name, each.model_type,
                         fmt::join(each.text_types, ", "));
  }
  const std::string docs = ReadAll(CULET_SOURCE_DIR "/docs/models.md");
  const std::string begin = "<!-- architectures: config_keys_test -->\n";
  const std::size_t from = docs.find(begin), to = docs.find("<!-- end of architectures -->");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(docs.substr(from + begin.size(), to - from - begin.size()), table)
      << "put this text between the two comments of docs/models.md";
}

}  // namespace
}  // namespace culet
