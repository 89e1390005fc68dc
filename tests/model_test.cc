// config.json -> products, formats -> keys, shapes files.
#include "culet/model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace culet {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kModels = CULET_SOURCE_DIR "/examples/models/";

// "name n x k x layers [active/experts]", one line a product: a table that a reader can check
// against the model's paper.
std::string Table(const ModelShapes& shapes) {
  std::string text;
  for (const ModelProduct& p : shapes.products) {
    text += fmt::format("{} {} {} {}", p.name, p.n, p.k, p.layers);
    if (p.experts > 0) text += fmt::format(" {}/{}", p.active_experts, p.experts);
    text += '\n';
  }
  return text;
}

// The weights that all products hold together.
double Weights(const ModelShapes& shapes) {
  double weights = 0;
  for (const ModelProduct& p : shapes.products) {
    weights += static_cast<double>(p.n) * p.k * p.layers * std::max(p.experts, 1);
  }
  return weights;
}

ModelShapes Shipped(const std::string& name) {
  const Result<ModelShapes> shapes = ReadModelShapes(kModels + name);
  EXPECT_TRUE(shapes.ok()) << shapes.status().ToString();
  return shapes.ok() ? *shapes : ModelShapes{};
}

std::string TableOf(const json& config) {
  const Result<ModelShapes> shapes = ParseModelShapes(config.dump(), "config.json");
  return shapes.ok() ? Table(*shapes) : shapes.status().ToString();
}

json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 256},
          {"intermediate_size", 704},
          {"num_attention_heads", 8},
          {"num_hidden_layers", 3},
          {"num_key_value_heads", 2},
          {"vocab_size", 640}};
}

json Qwen3Moe() {
  json config = Llama();
  config["architectures"] = {"Qwen3MoeForCausalLM"};
  config["head_dim"] = 64;
  config["moe_intermediate_size"] = 128;
  config["num_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  return config;
}

TEST(ModelShapes, Llama) {
  const ModelShapes shapes = Shipped("llama-3.1-8b");
  EXPECT_EQ(shapes.architecture, "LlamaForCausalLM");
  EXPECT_EQ(shapes.model_type, "llama");
  EXPECT_EQ(shapes.format, Format::kBf16);
  EXPECT_EQ(Table(shapes),
            "qkv 6144 4096 32\n"
            "o 4096 4096 32\n"
            "gate_up 28672 4096 32\n"
            "down 4096 14336 32\n"
            "lm_head 128256 4096 1\n");
}

TEST(ModelShapes, MixtralHasExpertsOnly) {
  EXPECT_EQ(Table(Shipped("mixtral-8x7b-v0.1")),
            "qkv 6144 4096 32\n"
            "o 4096 4096 32\n"
            "router 8 4096 32\n"
            "experts.gate_up 28672 4096 32 2/8\n"
            "experts.down 4096 14336 32 2/8\n"
            "lm_head 32000 4096 1\n");
}

TEST(ModelShapes, SharedExpertsAreProductsOfTheirOwn) {
  EXPECT_EQ(Table(Shipped("glm-4.5-air")),
            "qkv 14336 4096 46\n"
            "o 4096 12288 46\n"
            "gate_up 21888 4096 1\n"
            "down 4096 10944 1\n"
            "shared.gate_up 2816 4096 45\n"
            "shared.down 4096 1408 45\n"
            "router 128 4096 45\n"
            "experts.gate_up 2816 4096 45 8/128\n"
            "experts.down 4096 1408 45 8/128\n"
            "lm_head 151552 4096 1\n");
}

TEST(ModelShapes, LinearAttentionHasProductsOfItsOwn) {
  EXPECT_EQ(Table(Shipped("qwen3-next-80b-a3b")),
            "qkv 9216 2048 12\n"
            "linear_in 12288 2048 36\n"
            "linear_gates 64 2048 36\n"
            "o 2048 4096 48\n"
            "shared.gate_up 1024 2048 48\n"
            "shared.down 2048 512 48\n"
            "shared.router 1 2048 48\n"
            "router 512 2048 48\n"
            "experts.gate_up 1024 2048 48 10/512\n"
            "experts.down 2048 512 48 10/512\n"
            "lm_head 151936 2048 1\n");
}

TEST(ModelShapes, Qwen3HeadSizeIsItsOwn) {
  // 16 heads of 128 on a hidden size of 1024: head_dim is not hidden_size / heads.
  EXPECT_EQ(Table(Shipped("qwen3-0.6b")),
            "qkv 4096 1024 28\n"
            "o 1024 2048 28\n"
            "gate_up 6144 1024 28\n"
            "down 1024 3072 28\n"
            "lm_head 151936 1024 1\n");
}

TEST(ModelShapes, DeepseekV3) {
  const ModelShapes shapes = Shipped("deepseek-v3");
  EXPECT_EQ(shapes.format, Format::kFp8Block);
  EXPECT_EQ(Table(shapes),
            "q_a 1536 7168 61\n"
            "q_b 24576 1536 61\n"
            "kv_a 576 7168 61\n"
            "o 7168 16384 61\n"
            "gate_up 36864 7168 3\n"
            "down 7168 18432 3\n"
            "shared.gate_up 4096 7168 58\n"
            "shared.down 7168 2048 58\n"
            "router 256 7168 58\n"
            "experts.gate_up 4096 7168 58 8/256\n"
            "experts.down 7168 2048 58 8/256\n"
            "lm_head 129280 7168 1\n");
}

// Against the published parameter counts, in billions: matrix weights, and beside them the
// embedding and kv_b_proj, which is in no product of its own. A tied embedding is counted once, as
// lm_head.
TEST(ModelShapes, WeightsAddUpToThePublishedSizes) {
  const struct {
    const char* name;
    double published, beside;
  } models[] = {{"deepseek-v2-lite", 15.71, 102400.0 * 2048 + 27 * 4096.0 * 512},
                {"moonlight-16b-a3b", 15.96, 163840.0 * 2048 + 27 * 4096.0 * 512},
                {"deepseek-v3", 671.0, 129280.0 * 7168 + 61 * 32768.0 * 512},
                {"gemma-3-27b", 27.01, 0},
                {"gpt-oss-20b", 20.91, 201088.0 * 2880},
                {"gpt-oss-120b", 116.83, 201088.0 * 2880},
                {"llama-4-scout", 107.77, 202048.0 * 5120},
                {"olmo-2-32b", 32.23, 100352.0 * 5120},
                {"phi-4", 14.66, 100352.0 * 5120},
                {"qwen3-next-80b-a3b", 79.67, 151936.0 * 2048},
                {"llama-3.1-8b", 8.03, 128256.0 * 4096},
                {"mistral-7b-v0.3", 7.25, 32768.0 * 4096},
                {"mixtral-8x7b-v0.1", 46.7, 32000.0 * 4096},
                {"qwen2.5-7b", 7.62, 152064.0 * 3584},
                {"qwen3-0.6b", 0.596, 0},
                {"qwen3-30b-a3b", 30.5, 151936.0 * 2048}};
  for (const auto& model : models) {
    const double billions = (Weights(Shipped(model.name)) + model.beside) / 1e9;
    EXPECT_NEAR(billions, model.published, 0.003 * model.published) << model.name;
  }
}

TEST(ModelShapes, EveryShippedFolderIsAKnownModel) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    if (!entry.is_directory()) continue;
    ++models;
    const Result<ModelShapes> shapes = ReadModelShapes(entry.path().string());
    EXPECT_TRUE(shapes.ok()) << shapes.status().ToString();
    EXPECT_TRUE(shapes.ok() && shapes->format.has_value()) << entry.path();
  }
  EXPECT_GE(models, 6);
}

TEST(ModelShapes, TheFileAndItsFolderAreTheSame) {
  const Result<ModelShapes> file = ReadModelShapes(kModels + "qwen2.5-7b/config.json");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(Table(*file), Table(Shipped("qwen2.5-7b")));
}

TEST(ModelShapes, HeadSizeComesFromTheHiddenSizeWhereItIsNotGiven) {
  const std::string want =
      "qkv 384 256 3\no 256 256 3\ngate_up 1408 256 3\ndown 256 704 3\n"
      "lm_head 640 256 1\n";
  json config = Llama();
  EXPECT_EQ(TableOf(config), want);
  config["head_dim"] = nullptr;
  EXPECT_EQ(TableOf(config), want);
  config["head_dim"] = 48;
  EXPECT_THAT(TableOf(config), HasSubstr("qkv 576 256 3\no 256 384 3\n"));
}

TEST(ModelShapes, Qwen3HeadSizeIs128WhereItIsNotGiven) {
  json config = Qwen3Moe();
  config.erase("head_dim");
  EXPECT_THAT(TableOf(config), HasSubstr("qkv 384 256 3\no 256 256 3\n"));  // hidden / heads
  config["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_THAT(TableOf(config), HasSubstr("qkv 1536 256 3\no 256 1024 3\n"));
}

// 16 heads of 16. What transformers 5.24 takes where the key is missing, but for Qwen2 and Qwen3,
// whose 32 is no number of heads here.
TEST(ModelShapes, KeyValueHeadsThatAreNotGiven) {
  const std::pair<const char*, int> defaults[] = {
      {"LlamaForCausalLM", 16}, {"MistralForCausalLM", 8}, {"MixtralForCausalLM", 8},
      {"Qwen2ForCausalLM", 16}, {"Qwen3ForCausalLM", 16},  {"Qwen3MoeForCausalLM", 4}};
  for (const auto& [name, kv_heads] : defaults) {
    json config = Qwen3Moe();
    config["architectures"] = {name};
    config["num_attention_heads"] = 16;
    config["head_dim"] = 16;
    config.erase("num_key_value_heads");
    const auto wanted = [](int kv) { return fmt::format("qkv {} 256 3\n", (16 + 2 * kv) * 16); };
    EXPECT_THAT(TableOf(config), HasSubstr(wanted(kv_heads))) << name;
    config["num_key_value_heads"] = nullptr;
    EXPECT_THAT(TableOf(config), HasSubstr(wanted(16))) << name;
    config["num_key_value_heads"] = 2;
    EXPECT_THAT(TableOf(config), HasSubstr(wanted(2))) << name;
    config.erase("num_key_value_heads");
    config["num_attention_heads"] = 2;
    const bool fits = kv_heads == 16;
    EXPECT_THAT(TableOf(config),
                HasSubstr(fits ? "qkv 96 256 3\n" : "the default of an architecture"))
        << name;
  }
}

TEST(ModelShapes, WithoutKeyValueHeadsEveryHeadHasItsOwn) {
  json config = Llama();
  config.erase("num_key_value_heads");
  EXPECT_THAT(TableOf(config), HasSubstr("qkv 768 256 3\n"));
}

TEST(ModelShapes, OldAndNewSpellings) {
  json config = Qwen3Moe();
  const std::string want = TableOf(config);
  EXPECT_THAT(want, HasSubstr("experts.gate_up 256 256 3 2/8\n"));
  config.erase("num_experts");
  config["num_local_experts"] = 8;
  EXPECT_EQ(TableOf(config), want);
  config["num_experts"] = 8;
  EXPECT_EQ(TableOf(config), want);
  config["num_experts"] = 16;
  EXPECT_THAT(TableOf(config), HasSubstr("num_local_experts is 8 but num_experts is 16"));
}

TEST(ModelShapes, FormatComesFromEitherSpellingOfTheType) {
  const auto format = [](json config) {
    const Result<ModelShapes> shapes = ParseModelShapes(config.dump(), "config.json");
    return shapes.ok() ? shapes->format : std::nullopt;
  };
  json config = Llama();
  EXPECT_EQ(format(config), std::nullopt);
  config["torch_dtype"] = "float16";
  EXPECT_EQ(format(config), Format::kF16);
  config["dtype"] = "bfloat16";
  EXPECT_EQ(format(config), Format::kBf16);
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_EQ(format(config), Format::kFp8Block);
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "float-quantized"},
      {"config_groups",
       {{"group_0",
         {{"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}},
          {"input_activations",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}}}}}}}};
  EXPECT_EQ(format(config), Format::kFp8Row);
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}};
  EXPECT_EQ(format(config), std::nullopt);
  config["quantization_config"] = {{"quant_method", "awq"}};
  EXPECT_EQ(format(config), std::nullopt);
  config["quantization_config"] = nullptr;
  EXPECT_EQ(format(config), Format::kBf16);
}

TEST(ModelShapes, DenseLayersAmongSparseOnes) {
  json config = Qwen3Moe();
  config["num_hidden_layers"] = 7;
  config["decoder_sparse_step"] = 2;   // sparse: 1, 3, 5
  config["mlp_only_layers"] = {0, 3};  // 0 is dense already
  const std::string table = TableOf(config);
  EXPECT_THAT(table, HasSubstr("\ngate_up 1408 256 5\n"));
  EXPECT_THAT(table, HasSubstr("\nrouter 8 256 2\n"));
  config["mlp_only_layers"] = {0, 1, 2, 3, 4, 5, 6};
  EXPECT_THAT(TableOf(config), ::testing::Not(HasSubstr("expert")));
}

TEST(ModelShapes, DeepseekWithoutAQueryRank) {
  json config = json::parse(std::ifstream(kModels + "deepseek-v3/config.json"));
  config["q_lora_rank"] = nullptr;
  config["first_k_dense_replace"] = 32;
  config["n_shared_experts"] = 2;
  const std::string table = TableOf(config);
  EXPECT_THAT(table, HasSubstr("q_proj 24576 7168 61\nkv_a 576 7168 61\no "));
  EXPECT_THAT(table, HasSubstr("\nshared.gate_up 8192 7168 29\n"));
  EXPECT_THAT(table, HasSubstr("\nrouter 256 7168 29\n"));
  config["moe_layer_freq"] = 2;
  EXPECT_THAT(TableOf(config), HasSubstr("moe_layer_freq is 2; known is 1"));
}

TEST(ModelShapes, ModelTypeServesWhereArchitecturesAreMissing) {
  json config = Llama();
  config.erase("architectures");
  config["model_type"] = "llama";
  EXPECT_THAT(TableOf(config), HasSubstr("qkv 384 256 3\n"));
  // A classifier on a known decoder has other products: the architecture decides.
  config["architectures"] = {"LlamaForSequenceClassification"};
  EXPECT_THAT(TableOf(config), HasSubstr("LlamaForSequenceClassification is unknown"));
}

TEST(ModelShapes, UnknownArchitectureListsTheKnownOnes) {
  json config = Llama();
  config["architectures"] = {"GPT2LMHeadModel"};
  const Status status = ParseModelShapes(config.dump(), "config.json").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("GPT2LMHeadModel"));
  const std::vector<std::string> known = KnownArchitectures();
  EXPECT_GE(known.size(), 22u);
  for (const std::string& name : known) EXPECT_THAT(status.message(), HasSubstr(name));
}

TEST(ModelShapes, MissingAndImpossibleKeysAreNamedWithTheirValue) {
  const struct {
    const char* key;
    json value;
    const char* says;
  } cases[] = {
      {"hidden_size", nullptr, "hidden_size is missing"},
      {"hidden_size", 0, "hidden_size is 0"},
      {"hidden_size", -4, "hidden_size is -4"},
      {"hidden_size", 4096.5, "hidden_size is 4096.5"},
      {"hidden_size", "4096", "hidden_size is \"4096\""},
      {"hidden_size", 3000000000LL, "hidden_size is 3000000000"},
      {"hidden_size", 18446744073709551615ULL, "hidden_size is 18446744073709551615"},
      {"hidden_size", 250, "hidden_size is 250, not a multiple of num_attention_heads 8"},
      {"num_key_value_heads", 3, "not a multiple of num_key_value_heads 3"},
      {"num_hidden_layers", 2000000000, "num_hidden_layers is 2000000000, more than"},
      {"intermediate_size", 2000000000, "gate_up is 4000000000, more than"},
      {"head_dim", 2000000000, "num_attention_heads * head_dim is 16000000000, more than"},
      {"vocab_size", false, "vocab_size is false"},
      {"vocab_size", std::string(100000, 'x'), "vocab_size is \"xxx"},
  };
  for (const auto& c : cases) {
    json config = Llama();
    config[c.key] = c.value;
    const Result<ModelShapes> shapes = ParseModelShapes(config.dump(), "some/config.json");
    ASSERT_FALSE(shapes.ok()) << c.says;
    EXPECT_EQ(shapes.status().code(), StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(shapes.status().message(), HasSubstr("some/config.json: "));
    EXPECT_THAT(shapes.status().message(), HasSubstr(c.says));
    EXPECT_LT(shapes.status().message().size(), 300u);
  }
  json config = Qwen3Moe();
  config["num_experts_per_tok"] = 9;
  EXPECT_THAT(TableOf(config), HasSubstr("num_experts_per_tok is 9, more than the 8 experts"));
  config = Qwen3Moe();
  config["mlp_only_layers"] = "all";
  EXPECT_THAT(TableOf(config), HasSubstr("mlp_only_layers is \"all\""));
  config["mlp_only_layers"] = {0, -1};
  EXPECT_THAT(TableOf(config), HasSubstr("mlp_only_layers is -1"));
}

TEST(ModelShapes, WhatIsNotAConfig) {
  for (const char* text : {"", "[]", "null", "{", "{\"hidden_size\": 1",
                           "\x7f"
                           "ELF\x02\x01"}) {
    EXPECT_EQ(ParseModelShapes(text, "x").status().code(), StatusCode::kDataLoss) << text;
  }
  EXPECT_EQ(ParseModelShapes("{}", "x").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadModelShapes(kModels + "no-such").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadModelShapes(CULET_SOURCE_DIR "/include").status().code(), StatusCode::kNotFound);
  const Status device = ReadModelShapes("/dev/zero").status();
  EXPECT_EQ(device.code(), StatusCode::kIo);
  EXPECT_THAT(device.message(), HasSubstr("not a regular file"));
}

TEST(RowsOf, ARoutedExpertGetsItsEvenShare) {
  EXPECT_EQ(RowsOf({"down", 8, 8, 1, 0, 0}, 16), 16);
  const ModelProduct expert = {"experts.down", 8, 8, 1, 256, 8};
  EXPECT_EQ(RowsOf(expert, 1), 1);
  EXPECT_EQ(RowsOf(expert, 32), 1);
  EXPECT_EQ(RowsOf(expert, 33), 2);
  EXPECT_EQ(RowsOf(expert, 2147483647), 67108864);
}

TEST(Format, NamesAndTypes) {
  const struct {
    const char* name;
    DataType a, b, d;
  } formats[] = {
      {"f32", DataType::kFloat32, DataType::kFloat32, DataType::kFloat32},
      {"f16", DataType::kFloat16, DataType::kFloat16, DataType::kFloat16},
      {"bf16", DataType::kBfloat16, DataType::kBfloat16, DataType::kBfloat16},
      {"f32-bf16", DataType::kFloat32, DataType::kBfloat16, DataType::kFloat32},
      {"f32-f16", DataType::kFloat32, DataType::kFloat16, DataType::kFloat32},
      {"fp8-block", DataType::kFloat8_e4m3, DataType::kFloat8_e4m3, DataType::kBfloat16},
      {"fp8-row", DataType::kFloat8_e4m3, DataType::kFloat8_e4m3, DataType::kBfloat16},
      {"fp8-tensor", DataType::kFloat8_e4m3, DataType::kFloat8_e4m3, DataType::kBfloat16},
      {"u4", DataType::kBfloat16, DataType::kUint4, DataType::kBfloat16},
      {"mxfp4", DataType::kBfloat16, DataType::kFloat4_e2m1, DataType::kBfloat16},
      {"int8", DataType::kBfloat16, DataType::kInt8, DataType::kBfloat16},
      {"w8", DataType::kBfloat16, DataType::kFloat8_e4m3, DataType::kBfloat16},
  };
  const Status unknown = ParseFormat("int3").status();
  EXPECT_THAT(unknown.message(), HasSubstr("'int3'"));
  for (const auto& f : formats) {
    const Result<Format> format = ParseFormat(f.name);
    ASSERT_TRUE(format.ok()) << f.name;
    EXPECT_STREQ(ToString(*format), f.name);
    EXPECT_THAT(unknown.message(), HasSubstr(f.name));
    const Result<GemmDesc> desc = MakeDesc(*format, 3, 256, 512, 0);
    ASSERT_TRUE(desc.ok()) << desc.status().ToString();
    EXPECT_EQ(desc->a.type, f.a);
    EXPECT_EQ(desc->b.type, f.b);
    EXPECT_EQ(desc->d.type, f.d);
    EXPECT_EQ(desc->c.type, DataType::kNull);
    EXPECT_EQ(desc->b.order, Order::kColMajor);
    EXPECT_EQ(desc->b.align, 16);
  }
  EXPECT_EQ(MakeDesc(Format::kBf16, 1, 2, 3, 0, DataType::kFloat32)->d.type, DataType::kFloat32);
}

TEST(Format, Fp8BlockHasPartialScaleBlocks) {
  const Result<GemmDesc> desc = MakeDesc(Format::kFp8Block, 5, 129, 300, 900);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_EQ(desc->arch, 900);
  EXPECT_EQ(desc->a.quant, (QuantDesc{QuantType::kK, 128}));
  EXPECT_EQ(desc->b.quant, (QuantDesc{QuantType::kB, 128}));
  EXPECT_EQ(desc->a.scale_type, DataType::kFloat32);
  EXPECT_EQ(desc->b.scale_type, DataType::kFloat32);
}

TEST(Format, Fp8RowAndTensorHaveTheirScales) {
  const Result<GemmDesc> row = MakeDesc(Format::kFp8Row, 5, 129, 300, 900);
  ASSERT_TRUE(row.ok()) << row.status().ToString();
  EXPECT_EQ(row->a.quant, QuantDesc{QuantType::kRow});
  EXPECT_EQ(row->b.quant, QuantDesc{QuantType::kRow});
  const Result<GemmDesc> tensor = MakeDesc(Format::kFp8Tensor, 5, 129, 300, 900);
  ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
  EXPECT_EQ(tensor->a.quant, QuantDesc{QuantType::kTensor});
  EXPECT_EQ(tensor->b.quant, QuantDesc{QuantType::kTensor});
  EXPECT_EQ(tensor->a.scale_type, DataType::kFloat32);
}

TEST(Format, ImpossibleSizesAreNamed) {
  EXPECT_THAT(MakeDesc(Format::kF32, 0, 1, 1, 0).status().message(), HasSubstr("m is 0"));
  EXPECT_THAT(MakeDesc(Format::kF32, 1, -1, 1, 0).status().message(), HasSubstr("n is -1"));
  EXPECT_THAT(MakeDesc(Format::kF32, 1, 1, 0, 0).status().message(), HasSubstr("k is 0"));
  EXPECT_EQ(MakeDesc(static_cast<Format>(99), 1, 1, 1, 0).status().code(),
            StatusCode::kInvalidArgument);
}

class ShapesFile : public ::testing::Test {
 protected:
  Result<std::vector<NamedShape>> Read(std::string_view text) {
    std::ofstream(path_, std::ios::binary) << text;
    return ReadShapes(path_);
  }
  ~ShapesFile() override { std::remove(path_.c_str()); }
  const std::string path_ =
      fmt::format("{}/culet_shapes_{}.txt", ::testing::TempDir(),
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ShapesFile, CommentsBlanksAndLineEnds) {
  const auto shapes =
      Read("# all\n\nqkv 1 6144 4096  # decode\r\n\t o  16\t4096 4096 \n\nlast 1 2 3");
  ASSERT_TRUE(shapes.ok()) << shapes.status().ToString();
  ASSERT_EQ(shapes->size(), 3u);
  EXPECT_EQ((*shapes)[0].name, "qkv");
  EXPECT_EQ((*shapes)[1].name, "o");
  EXPECT_EQ((*shapes)[1].m, 16);
  EXPECT_EQ((*shapes)[1].n, 4096);
  EXPECT_EQ((*shapes)[2].k, 3);
}

TEST_F(ShapesFile, ABadLineIsNamed) {
  for (const char* line : {"qkv 1 2", "qkv 1 2 3 4", "qkv 0 2 3", "qkv -1 2 3", "qkv 1 2 3x",
                           "qkv 1 2.5 3", "qkv 1 2 2147483648", "1 2 3"}) {
    const Status status = Read(fmt::format("good 1 2 3\n{}\n", line)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(status.message(), HasSubstr(path_ + ":2: '" + line + "'"));
  }
  EXPECT_THAT(Read("# nothing\n").status().message(), HasSubstr("holds no shape"));
  EXPECT_EQ(ReadShapes(path_ + ".missing").status().code(), StatusCode::kNotFound);
}

TEST_F(ShapesFile, TheShippedOneHoldsTwelveLayersOfTwelveBatches) {
  const auto shapes = ReadShapes(CULET_SOURCE_DIR "/bench/llm_shapes.txt");
  ASSERT_TRUE(shapes.ok()) << shapes.status().ToString();
  EXPECT_EQ(shapes->size(), 144u);
  EXPECT_EQ(shapes->front().name, "dsv3.qkv_a");
}

}  // namespace
}  // namespace culet
