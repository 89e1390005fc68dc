// Models with latent attention beside their goldens: the weight that is taken apart, the cache of
// one matrix a layer, configs that cannot be meant.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
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
#include "model/checkpoint.h"

namespace culet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class LatentCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "culet_latent_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    config_.architecture = "DeepseekV3ForCausalLM";
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  // The parts of kv_b_proj in a file of these tensors.
  std::pair<Weight, Weight> Parts(std::vector<SafetensorsEntry> tensors) {
    // Wider types go first.
    std::ranges::stable_sort(tensors, std::ranges::greater(),
                             [](const SafetensorsEntry& each) { return SizeOf(each.type); });
    const Status written = WriteSafetensors((folder_ / "model.safetensors").string(), tensors);
    EXPECT_TRUE(written.ok()) << written.ToString();
    auto checkpoint = Checkpoint::Open(folder_.string(), config_, memory_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    auto parts = checkpoint->GetHeadParts("kv_b_proj.weight", kHeads, kKeys, kValues, kRank, {});
    status_ = checkpoint->status();
    if (status_.ok()) status_ = checkpoint->AllRead();
    return parts;
  }

  // Both parts are those of a weight whose element (row, col) is `at(row, col)`.
  template <class At>
  static void Expect(const std::pair<Weight, Weight>& parts, DataType type, At at) {
    const auto& [keys, values] = parts;
    ASSERT_EQ(keys.type, type);
    ASSERT_EQ(values.type, type);
    ASSERT_EQ(keys.rows, kHeads * kRank);
    ASSERT_EQ(keys.cols, kKeys);
    ASSERT_EQ(values.rows, kHeads * kValues);
    ASSERT_EQ(values.cols, kRank);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const std::int64_t first = head * (kKeys + kValues);
      for (std::int64_t r = 0; r < kRank; ++r) {
        for (std::int64_t i = 0; i < kKeys; ++i) {
          EXPECT_EQ(LoadAsDouble(FromDevicePtr<const void>(keys.data_ptr), type,
                                 (head * kRank + r) * kKeys + i),
                    at(first + i, r));
        }
        for (std::int64_t i = 0; i < kValues; ++i) {
          EXPECT_EQ(LoadAsDouble(FromDevicePtr<const void>(values.data_ptr), type,
                                 (head * kValues + i) * kRank + r),
                    at(first + kKeys + i, r));
        }
      }
    }
  }

  static constexpr std::int64_t kHeads = 3, kKeys = 50, kValues = 30, kRank = 131;
  static constexpr std::int64_t kRows = kHeads * (kKeys + kValues);
  fs::path folder_;
  DecoderConfig config_;
  WeightMemory memory_{HostMemory()};
  Status status_;
};

TEST_F(LatentCheckpoint, TheWeightOfAllHeadsIsTakenApart) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
    const auto at = [&](std::int64_t row, std::int64_t col) {
      return RoundTo(type, static_cast<double>(row) + static_cast<double>(col) / 256);
    };
    std::vector<std::byte> data(static_cast<std::size_t>(kRows * kRank) * SizeOf(type));
    for (std::int64_t i = 0; i < kRows * kRank; ++i) {
      StoreFromDouble(data.data(), type, i, at(i / kRank, i % kRank));
    }
    const auto parts = Parts({{"kv_b_proj.weight", type, {kRows, kRank}, data.data()}});
    ASSERT_TRUE(status_.ok()) << status_.ToString();
    Expect(parts, type, at);
  }
}

// Codes times the scales of their blocks, or rows, or of all, once rounded to bfloat16.
TEST_F(LatentCheckpoint, CodesAreWidened) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(kRows * kRank));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 7 % 126);
  const auto code = [&](std::int64_t row, std::int64_t col) {
    return Float8E4m3ToFloat(codes[static_cast<std::size_t>(row * kRank + col)]);
  };
  const std::vector<float> blocks{0.3f, 1.7f, 0.011f, 5};
  config_.coding.form = WeightCoding::Form::kFp8;
  config_.coding.weights = {QuantType::kB, 128};
  auto parts = Parts({{"kv_b_proj.weight", DataType::kFloat8_e4m3, {kRows, kRank}, codes.data()},
                      {"kv_b_proj.weight_scale_inv", DataType::kFloat32, {2, 2}, blocks.data()}});
  ASSERT_TRUE(status_.ok()) << status_.ToString();
  Expect(parts, DataType::kBfloat16, [&](std::int64_t row, std::int64_t col) {
    return RoundTo(DataType::kBfloat16,
                   code(row, col) * blocks[static_cast<std::size_t>(row / 128 * 2 + col / 128)]);
  });
  std::vector<float> rows(kRows);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = 0.01f * static_cast<float>(i + 1);
  config_.coding.form = WeightCoding::Form::kFloatQuantized;
  config_.coding.weights = {QuantType::kRow};
  parts = Parts({{"kv_b_proj.weight", DataType::kFloat8_e4m3, {kRows, kRank}, codes.data()},
                 {"kv_b_proj.weight_scale", DataType::kFloat32, {kRows, 1}, rows.data()}});
  ASSERT_TRUE(status_.ok()) << status_.ToString();
  Expect(parts, DataType::kBfloat16, [&](std::int64_t row, std::int64_t col) {
    return RoundTo(DataType::kBfloat16, code(row, col) * rows[static_cast<std::size_t>(row)]);
  });
  config_.coding.weights = {QuantType::kTensor};
  config_.coding.given_inputs = true;
  parts = Parts({{"kv_b_proj.weight", DataType::kFloat8_e4m3, {kRows, kRank}, codes.data()},
                 {"kv_b_proj.input_scale", DataType::kFloat32, {1}, rows.data()},
                 {"kv_b_proj.weight_scale", DataType::kFloat32, {1}, rows.data() + 4}});
  ASSERT_TRUE(status_.ok()) << status_.ToString();
  Expect(parts, DataType::kBfloat16, [&](std::int64_t row, std::int64_t col) {
    return RoundTo(DataType::kBfloat16, code(row, col) * rows[4]);
  });
}

TEST_F(LatentCheckpoint, WhatCannotBeTakenApartIsNamed) {
  std::vector<float> data(static_cast<std::size_t>(kRows * kRank));
  Parts({{"kv_b_proj.weight", DataType::kFloat32, {kRows / 2, kRank}, data.data()}});
  EXPECT_THAT(status_.message(), HasSubstr("kv_b_proj.weight is [120, 131]; the config makes it "
                                           "[240, 131]"));
  Parts({{"kv_b_proj.weight", DataType::kFloat8_e4m3, {kRows, kRank}, data.data()}});
  EXPECT_THAT(status_.message(), HasSubstr("kv_b_proj.weight is F8_E4M3; it must be"));
  config_.coding.form = WeightCoding::Form::kFp8;
  config_.coding.weights = {QuantType::kB, 128};
  Parts({{"kv_b_proj.weight", DataType::kFloat8_e4m3, {kRows, kRank}, data.data()}});
  EXPECT_THAT(status_.message(), HasSubstr("kv_b_proj.weight_scale_inv is missing"));
  config_.coding.form = WeightCoding::Form::kAwq;
  Parts({{"kv_b_proj.qweight", DataType::kInt32, {4, 4}, data.data()}});
  EXPECT_EQ(status_.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status_.message(), HasSubstr("kv_b_proj.weight is missing, whose weights are of 4"));
}

class LatentModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto model = DecoderModel::Load(OwnGoldens(GetParam()), HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
    auto gemm = Gemm::Create();
    ASSERT_TRUE(gemm.ok());
    gemm_ = std::make_unique<Gemm>(*std::move(gemm));
    dispatch_ = MakeCpuDispatch(*gemm_);
  }

  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<KernelDispatch> dispatch_;
};

TEST_P(LatentModel, CachesOf16BitsAndOneMatrixALayer) {
  const auto goldens = ReadGoldens(OwnGoldens(GetParam()));
  ASSERT_TRUE(goldens.has_value());
  const DecoderConfig& config = model_->config();
  const auto row = static_cast<std::size_t>(config.latent.kv_rank + config.latent.rope_dim);
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    const SessionOptions options{.max_context = 64, .block_size = 16, .cache_type = type};
    auto session = Session::Create(*model_, *dispatch_, options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const std::size_t matrix = (64 * row * SizeOf(type) + 255) / 256 * 256;
    EXPECT_EQ(session->cache_bytes(),
              static_cast<double>(matrix * static_cast<std::size_t>(config.layers)));
    EXPECT_EQ(*CacheBytes(config, options), matrix * static_cast<std::size_t>(config.layers));
    const int sequence = *session->AddSequence();
    const auto result = session->Prefill(sequence, goldens->input_ids, {.all_logits = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    const double error =
        RelativeL2(result->logits.data(), goldens->logits.data(), goldens->logits.size());
    EXPECT_LE(error, type == DataType::kFloat32 ? 1e-5 : 2e-2) << ToString(type);
    EXPECT_EQ(error > 1e-5, type != DataType::kFloat32);
    // The last token once more, now as a decode step behind the cached ones.
    ASSERT_TRUE(session->Truncate(sequence, static_cast<int>(goldens->input_ids.size()) - 1).ok());
    const SequenceTokens last{sequence, {&goldens->input_ids.back(), 1}};
    const auto step = session->Step({&last, 1}, {.logits = true});
    ASSERT_TRUE(step.ok()) << step.status().ToString();
    const auto vocab = static_cast<std::size_t>(config.vocab);
    EXPECT_LE(RelativeL2(step->logits.data(), result->logits.data() + result->logits.size() - vocab,
                         vocab),
              1e-5);
  }
  const Status codes =
      Session::Create(*model_, *dispatch_, {.cache_type = DataType::kFloat8_e4m3}).status();
  EXPECT_EQ(codes.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(codes.message(), HasSubstr("cache_type is float8_e4m3, which holds no latents"));
}

INSTANTIATE_TEST_SUITE_P(All, LatentModel,
                         testing::Values("deepseek-v2-groups", "deepseek-v3-halves"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A model of random weights in each type, with a rank for queries.
TEST(LatentRandom, StepsInEveryType) {
  const auto config = ReadDecoderConfig(OwnGoldens("deepseek-v3-halves"));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  const auto dispatch = MakeCpuDispatch(*gemm);
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat8_e4m3}) {
    const auto model = DecoderModel::Random(*config, type, HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    auto session = Session::Create(*model, *dispatch, {.max_context = 32});
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const int sequence = *session->AddSequence();
    const std::vector<std::int32_t> tokens{3, 4, 5};
    const auto result = session->Prefill(sequence, tokens, {.logits = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    for (const float logit : result->logits) ASSERT_TRUE(std::isfinite(logit));
  }
}

class LatentConfig : public testing::Test {
 protected:
  static json Of(const char* name) {
    std::ifstream file(OwnGoldens(name) + "/config.json");
    return json::parse(file);
  }
  static std::string Said(const json& config) {
    return ParseDecoderConfig(config.dump(), "config").status().message();
  }
};

TEST_F(LatentConfig, SizesAndScalesAreRead) {
  const auto config = ParseDecoderConfig(Of("deepseek-v3-halves").dump(), "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->latent.q_rank, 18);
  EXPECT_EQ(config->latent.kv_rank, 32);
  EXPECT_EQ(config->kv_heads, 1);
  EXPECT_EQ(config->head_dim, 40);
  EXPECT_EQ(config->rope.dims, 8);
  EXPECT_EQ(config->rope.layout, RopeLayout::kNeox);
  EXPECT_EQ(config->ahead_layers, 1);
  const double magnitude = 1 + 0.1 * 1.3 * std::log(5.0);
  EXPECT_FLOAT_EQ(config->attention_scale,
                  static_cast<float>(magnitude * magnitude / std::sqrt(20.0)));
  EXPECT_NEAR(config->rope.attention_factor, (1 + 0.07 * std::log(5.0)) / magnitude, 1e-12);
  json plain = Of("deepseek-v3-halves");
  plain["rope_scaling"].erase("mscale_all_dim");
  const auto without = ParseDecoderConfig(plain.dump(), "config");
  ASSERT_TRUE(without.ok());
  EXPECT_FLOAT_EQ(without->attention_scale, 1 / std::sqrt(20.0f));
  EXPECT_NEAR(without->rope.attention_factor, 1 + 0.1 * std::log(5.0), 1e-12);
}

// What the models' own library makes of missing keys and of null.
TEST_F(LatentConfig, MissingKeysAndNull) {
  json config = Of("deepseek-v3-halves");
  const auto read = [&] { return ParseDecoderConfig(config.dump(), "config"); };
  config["rope_interleave"] = nullptr;
  EXPECT_EQ(read()->rope.layout, RopeLayout::kNeox);
  config.erase("rope_interleave");
  EXPECT_EQ(read()->rope.layout, RopeLayout::kNorm);
  config.erase("q_lora_rank");
  EXPECT_EQ(read()->latent.q_rank, 1536);
  config["q_lora_rank"] = nullptr;
  EXPECT_EQ(read()->latent.q_rank, 0);
  config.erase("num_nextn_predict_layers");
  EXPECT_EQ(read()->ahead_layers, 1);
  config["num_mtp_layers"] = 3;
  EXPECT_EQ(read()->ahead_layers, 3);
  config.erase("head_dim");
  config["head_dim"] = 99;  // the part that turns, whatever this says
  EXPECT_EQ(read()->rope.dims, 8);
  for (const char* key : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                          "first_k_dense_replace"}) {
    json null = config;
    null[key] = nullptr;
    EXPECT_THAT(Said(null), HasSubstr(std::string(key) + " is null"));
  }
}

TEST_F(LatentConfig, ImpossibleSizesAreNamed) {
  const auto said = [&](const char* name, const char* key, const json& value) {
    json config = Of(name);
    config[key] = value;
    return Said(config);
  };
  for (const char* name : {"deepseek-v2-groups", "deepseek-v3-halves"}) {
    for (const char* key : {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                            "v_head_dim", "n_routed_experts", "num_experts_per_tok"}) {
      for (const json& value : {json(0), json(-1), json(1e300), json("64"), json(2.5)}) {
        EXPECT_THAT(said(name, key, value), HasSubstr(key)) << name << " " << value;
      }
    }
    EXPECT_THAT(said(name, "kv_lora_rank", 1'000'000'000), HasSubstr("kv_lora_rank"));
    EXPECT_THAT(said(name, "qk_rope_head_dim", 1'000'000'000), HasSubstr("qk_rope_head_dim"));
    EXPECT_THAT(said(name, "qk_rope_head_dim", 7),
                HasSubstr("qk_rope_head_dim is 7; a head turns"));
    EXPECT_THAT(said(name, "num_key_value_heads", 1), HasSubstr("the two must be equal"));
    EXPECT_THAT(said(name, "scoring_func", "tanh"), HasSubstr("scoring_func is tanh"));
    EXPECT_THAT(said(name, "topk_method", "best"), HasSubstr("topk_method is best"));
    EXPECT_THAT(said(name, "topk_method", nullptr), HasSubstr("topk_method is null"));
    EXPECT_THAT(said(name, "n_group", 5), HasSubstr("n_group is 5"));
    EXPECT_THAT(said(name, "topk_group", 9), HasSubstr("topk_group is 9"));
  }
  EXPECT_THAT(said("deepseek-v2-groups", "n_group", nullptr), HasSubstr("n_group or topk_group"));
  EXPECT_THAT(said("deepseek-v2-groups", "norm_topk_prob", true), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(said("deepseek-v2-groups", "mlp_bias", true), HasSubstr("mlp_bias is true"));
  json linear = Of("deepseek-v3-halves");
  linear["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"mscale_all_dim", 1.0}};
  EXPECT_THAT(Said(linear), HasSubstr("mscale_all_dim with rope type linear; known is yarn"));
}

}  // namespace
}  // namespace culet
