// The configs of examples/models that `culet bench --decode --model` times on a GPU, with smaller
// sizes, random weights and the CUDA dispatch on the CPU (tests/host_cuda): a prompt beside another
// and decoded steps, recorded and ahead, against the reference; memory against what is predicted.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cuda/cases.h"
#include "culet/decoder.h"
#include "decoder_fixture.h"
#include "host_cuda/test_dispatch.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr int kVocab = 96;

// The config with its architecture's parts, but few and small ones.
json Small(const std::string& name) {
  std::ifstream file(std::string(CULET_SOURCE_DIR) + "/examples/models/" + name + "/config.json");
  json config = json::parse(file);
  const bool nested = config.contains("text_config");
  json& text = nested ? config["text_config"] : config;
  const bool latent = text.contains("kv_lora_rank");
  const json sizes = {{"hidden_size", 64},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", latent ? 4 : 2},
                      {"head_dim", 16},
                      {"intermediate_size", 48},
                      {"moe_intermediate_size", 40},
                      {"num_experts", 6},
                      {"num_local_experts", 6},
                      {"n_routed_experts", 6},
                      {"num_experts_per_tok", 2},
                      {"experts_per_token", 2},
                      {"shared_expert_intermediate_size", 56},
                      {"linear_num_key_heads", 2},
                      {"linear_num_value_heads", 4},
                      {"linear_key_head_dim", 16},
                      {"linear_value_head_dim", 24},
                      {"kv_lora_rank", 32},
                      {"qk_nope_head_dim", 16},
                      {"qk_rope_head_dim", 8},
                      {"v_head_dim", 16},
                      {"sliding_window", 20},
                      {"query_pre_attn_scalar", 16},
                      {"eos_token_id", 1}};
  for (const auto& [key, value] : sizes.items()) {
    if (text.contains(key) && !text[key].is_null()) text[key] = value;
  }
  text["vocab_size"] = kVocab;
  text["num_hidden_layers"] = nested ? 6 : 4;
  return config;
}

class CudaExamples : public testing::TestWithParam<const char*> {};

TEST_P(CudaExamples, DecodeAsTheReference) {
  const auto config = ParseDecoderConfig(Small(GetParam()).dump(), "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto model = DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  constexpr int kPrompt = 37, kSteps = 5;
  std::vector<std::int32_t> ids(kPrompt);
  for (int i = 0; i < kPrompt; ++i) ids[static_cast<std::size_t>(i)] = (i * 37 + 5) % kVocab;
  // Of both sequences behind the prompts and behind decoded steps, which begin with the same token.
  const auto logits = [&](KernelDispatch& dispatch, DataType values, DataType cache,
                          const std::vector<std::int32_t>& forced) {
    SessionOptions options{.max_sequences = 2, .max_context = 512, .max_step_tokens = 64};
    options.value_type = values;
    options.cache_type = cache;
    auto session = Session::Create(*model, dispatch, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    EXPECT_EQ(session->cache_bytes(), static_cast<double>(*CacheBytes(*config, options)));
    const std::span<const std::int32_t> all(ids);
    const SequenceTokens prompts[] = {{*session->AddSequence(), all},
                                      {*session->AddSequence(), all.first(20)}};
    const auto read = session->Prefill(prompts, {.logits = true});
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    std::vector<float> found = read->logits;
    const SequenceTokens first[] = {{0, {&forced[0], 1}}, {1, {&forced[1], 1}}};
    const auto decoded = session->Decode(first, {.steps = kSteps});
    EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
    const SequenceTokens last[] = {{0, {&forced[2], 1}}, {1, {&forced[3], 1}}};
    for (int sequence : {0, 1}) EXPECT_TRUE(session->Truncate(sequence, 30 - 10 * sequence).ok());
    const auto step = session->Step(last, {.logits = true});
    EXPECT_TRUE(step.ok()) << step.status().ToString();
    found.insert(found.end(), step->logits.begin(), step->logits.end());
    return found;
  };
  const std::vector<std::int32_t> forced = {3, 14, 15, 92};
  const auto reference = MakeReferenceDispatch();
  const std::vector<float> right =
      logits(*reference, DataType::kFloat32, DataType::kFloat32, forced);
  const TestDispatch exact = MakeTestDispatch({.round_product_inputs = false});
  const std::vector<float> found =
      logits(*exact.dispatch, DataType::kFloat32, DataType::kFloat32, forced);
  EXPECT_LE(RelativeL2(found.data(), right.data(), right.size()), 1e-5);
  // As the command takes it by default; routers decide near ties by what this rounds off.
  const TestDispatch usual = MakeTestDispatch({});
  const std::vector<float> rounded =
      logits(*usual.dispatch, DataType::kNull, DataType::kBfloat16, forced);
  EXPECT_LE(RelativeL2(rounded.data(), right.data(), right.size()),
            config->experts > 0 ? 0.25 : 2e-2);
}

INSTANTIATE_TEST_SUITE_P(All, CudaExamples,
                         testing::Values("qwen3-next-80b-a3b", "gemma-3-27b", "phi-4",
                                         "deepseek-v2-lite", "gpt-oss-20b"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace culet
