// Every kind of model on the CPU dispatch against the double reference, with random weights; and
// what configs and sessions refuse.
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "asan.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

using testing::HasSubstr;

// A small config with these keys beside the usual ones.
std::string Config(const std::string& architecture, const std::string& more) {
  return R"({"architectures": [")" + architecture + R"("], "vocab_size": 96, "hidden_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
    "max_position_embeddings": 64, "intermediate_size": 80, )" +
         more + R"("rms_norm_eps": 1e-5})";
}

struct Kind {
  const char* name;
  const char* architecture;
  const char* more;
};
constexpr Kind kKinds[] = {
    {"llama_biases", "LlamaForCausalLM", R"("attention_bias": true, "mlp_bias": true,)"},
    {"llama_linear", "LlamaForCausalLM", R"("rope_scaling": {"type": "linear", "factor": 3},)"},
    {"llama_tied", "LlamaForCausalLM", R"("tie_word_embeddings": true,)"},
    {"llama3", "LlamaForCausalLM",
     R"("rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8,
        "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16},)"},
    {"mistral_window", "MistralForCausalLM", R"("sliding_window": 5,)"},
    {"mixtral", "MixtralForCausalLM", R"("num_local_experts": 6, "num_experts_per_tok": 2,)"},
    {"qwen2_some_windows", "Qwen2ForCausalLM",
     R"("use_sliding_window": true, "sliding_window": 4, "max_window_layers": 1,)"},
    {"qwen3_yarn", "Qwen3ForCausalLM",
     R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4,
        "original_max_position_embeddings": 16},)"},
    {"qwen3_moe_mixed", "Qwen3MoeForCausalLM",
     R"("num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
        "norm_topk_prob": false, "mlp_only_layers": [1],)"},
    {"seed_oss", "SeedOssForCausalLM", R"("attention_out_bias": true, "mlp_bias": true,)"},
    {"smollm3", "SmolLM3ForCausalLM",
     R"("no_rope_layers": [1, 0, 1], "use_sliding_window": true, "sliding_window": 5,)"},
    {"phi3", "Phi3ForCausalLM",
     R"("partial_rotary_factor": 0.75, "original_max_position_embeddings": 12, "rope_scaling":
        {"type": "su", "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8],
         "long_factor": [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]},)"},
    {"granite", "GraniteForCausalLM",
     R"("attention_multiplier": 0.3, "embedding_multiplier": 3, "residual_multiplier": 0.4,
        "logits_scaling": 5, "attention_bias": true,)"},
    {"olmo2", "Olmo2ForCausalLM", ""},
    {"olmo3", "Olmo3ForCausalLM",
     R"("sliding_window": 5, "layer_types": ["sliding_attention", "full_attention",
        "sliding_attention"], "rope_scaling": {"rope_type": "yarn", "factor": 4,
        "original_max_position_embeddings": 16},)"},
    {"ministral3", "Ministral3ForCausalLM",
     R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4,
        "original_max_position_embeddings": 4, "llama_4_scaling_beta": 0.3},)"},
    {"ernie4_5", "Ernie4_5ForCausalLM", R"("use_bias": true,)"},
    {"glm4", "Glm4ForCausalLM", R"("attention_bias": true,)"},
    {"gemma2", "Gemma2ForCausalLM",
     R"("attn_logit_softcapping": 0.7, "final_logit_softcapping": 0.9, "sliding_window": 5,)"},
    {"gemma3", "Gemma3ForCausalLM",
     R"("sliding_window": 5, "rope_parameters": {"full_attention": {"rope_type": "linear",
        "factor": 4, "rope_theta": 1e5}, "sliding_attention": {"rope_type": "default",
        "rope_theta": 1e3}}, "layer_types": ["sliding_attention", "full_attention",
        "sliding_attention"],)"},
    {"cohere", "CohereForCausalLM", R"("attention_bias": true, "logit_scale": 0.5,)"},
    {"cohere2", "Cohere2ForCausalLM", R"("sliding_window": 5, "sliding_window_pattern": 2,)"},
    {"qwen2_moe_windows", "Qwen2MoeForCausalLM",
     R"("num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 56, "norm_topk_prob": true, "use_sliding_window": true,
        "sliding_window": 4, "max_window_layers": 1, "decoder_sparse_step": 2,)"},
    {"glm4_moe_groups", "Glm4MoeForCausalLM",
     R"("n_routed_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
        "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7,
        "attention_bias": true, "partial_rotary_factor": 0.25, "first_k_dense_replace": 0,)"},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM",
     R"("moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 40, "moe_layer_interval": 2,
        "moe_num_shared_experts": 0, "moe_layer_start_index": 0, "moe_norm_min": 0.9,)"},
    {"gpt_oss", "GptOssForCausalLM",
     R"("num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 5,
        "swiglu_limit": 0.5, "rope_scaling": {"rope_type": "yarn", "factor": 4,
        "original_max_position_embeddings": 16, "truncate": false},)"},
    {"llama4", "Llama4ForCausalLM",
     R"("num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size_mlp": 72,
        "attention_chunk_size": 5, "no_rope_layer_interval": 2, "floor_scale": 3,
        "interleave_moe_layer_step": 2,)"},
    {"qwen3_next", "Qwen3NextForCausalLM",
     R"("num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 56, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "linear_key_head_dim": 20, "linear_value_head_dim": 12,
        "linear_conv_kernel_dim": 3, "decoder_sparse_step": 2, "full_attention_interval": 2,)"},
    {"minimax_m2", "MiniMaxM2ForCausalLM",
     R"("num_local_experts": 6, "num_experts_per_tok": 6, "rotary_dim": 6,)"},
};

class RandomModels : public testing::TestWithParam<std::tuple<Kind, DataType>> {};

std::vector<float> LogitsOf(const DecoderModel& model, KernelDispatch& dispatch, DataType cache) {
  auto session = Session::Create(
      model, dispatch,
      {.max_sequences = 2, .max_context = 32, .block_size = 4, .cache_type = cache});
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 26; ++i) ids.push_back((i * 37 + 11) % 96);
  const int a = *session->AddSequence(), b = *session->AddSequence();
  const SequenceTokens first[] = {{a, {ids.data(), 9}}, {b, {ids.data() + 9, 14}}};
  const SequenceTokens second[] = {{b, {ids.data() + 23, 1}}, {a, {ids.data() + 24, 2}}};
  std::vector<float> all;
  for (const auto& batch :
       {std::span<const SequenceTokens>(first), std::span<const SequenceTokens>(second)}) {
    const auto result = session->Step(batch, {.all_logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    if (result.ok()) all.insert(all.end(), result->logits.begin(), result->logits.end());
  }
  return all;
}

void ExpectCpuEqualsReference(const DecoderConfig& config, DataType type) {
  const auto model = DecoderModel::Random(config, type, HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  const auto cpu = MakeCpuDispatch(*gemm);
  const auto reference = MakeReferenceDispatch();
  constexpr DataType kCaches[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16};
  // Weights meet products alone, the cache attention alone: with sanitizers each has its type once.
  const std::size_t only = static_cast<std::size_t>(type) % std::size(kCaches);
  for (const DataType cache :
       kSanitized ? std::span(kCaches).subspan(only, 1) : std::span(kCaches)) {
    const std::vector<float> a = LogitsOf(*model, *cpu, cache),
                             b = LogitsOf(*model, *reference, cache);
    ASSERT_EQ(a.size(), 26u * 96);
    ASSERT_EQ(a.size(), b.size());
    // Steps of E4M3 and of narrow caches turn the last bits of FP32 into whole steps.
    const double bound = type == DataType::kFloat8_e4m3 ? 0.1
                         : cache == DataType::kFloat32  ? 1e-5
                                                        : 2e-3;
    EXPECT_LE(RelativeL2(a.data(), b.data(), a.size()), bound) << ToString(cache);
  }
}

TEST_P(RandomModels, CpuEqualsReference) {
  const auto [kind, type] = GetParam();
  const auto config = ParseDecoderConfig(Config(kind.architecture, kind.more), "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  ExpectCpuEqualsReference(*config, type);
}

// Parts that no config of these has together.
TEST(RandomExperts, CpuEqualsReference) {
  const auto parsed = ParseDecoderConfig(Config(kKinds[5].architecture, kKinds[5].more), "config");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  for (const DataType type : {DataType::kFloat32, DataType::kFloat8_e4m3}) {
    DecoderConfig config = *parsed;
    config.router_bias = true;
    config.routing.renormalize = false;
    config.routing.scoring = RouterScoring::kSoftmaxOfChosen;
    config.gate = GateKind::kClampedSilu;
    config.gate_limit = 0.5f;
    config.gate_slope = 1.702f;
    ExpectCpuEqualsReference(config, type);
    config.routing.scoring = RouterScoring::kSigmoid;
    config.share_scales_input = true;
    ExpectCpuEqualsReference(config, type);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomModels,
                         testing::Combine(testing::ValuesIn(kKinds),
                                          testing::Values(DataType::kFloat32, DataType::kFloat16,
                                                          DataType::kBfloat16,
                                                          DataType::kFloat8_e4m3)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  ToString(std::get<1>(info.param));
                         });

// With batch-invariant kernels a sequence gives the same bits alone and beside another.
TEST(Session, BatchInvariantBits) {
  const auto config = ParseDecoderConfig(Config(kKinds[8].architecture, kKinds[8].more), "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto model = DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
  ASSERT_TRUE(model.ok());
  auto gemm = Gemm::Create();
  const auto dispatch = MakeCpuDispatch(*gemm, {.determinism = Determinism::kBatchInvariant});
  auto session = Session::Create(*model, *dispatch, {.max_sequences = 3, .max_context = 32});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<std::int32_t> ids = {5, 80, 2, 41, 41, 7, 19, 3, 66};
  const int alone = *session->AddSequence(), together = *session->AddSequence(),
            other = *session->AddSequence();
  const SequenceTokens one[] = {{alone, ids}};
  const SequenceTokens two[] = {{other, {ids.data() + 2, 5}}, {together, ids}};
  const auto a = session->Step(one, {.logits = true}), b = session->Step(two, {.logits = true});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(std::equal(a->logits.begin(), a->logits.end(), b->logits.begin() + 96));
}

TEST(Session, RefusesAndStaysAsItWas) {
  const auto config = ParseDecoderConfig(Config("LlamaForCausalLM", ""), "config");
  const auto model = DecoderModel::Random(*config, DataType::kFloat32, HostMemory());
  const auto dispatch = MakeReferenceDispatch();
  auto session = Session::Create(*model, *dispatch, {.max_context = 8, .max_step_tokens = 6});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  const std::vector<std::int32_t> good = {1, 2, 3, 4, 5, 6, 7}, bad = {1, 96};
  const auto refused = [&](std::vector<SequenceTokens> batch, StatusCode code, const char* words) {
    const auto result = session->Step(batch);
    EXPECT_EQ(result.status().code(), code);
    EXPECT_THAT(result.status().message(), HasSubstr(words));
    EXPECT_EQ(*session->LengthOf(sequence), 0);
  };
  refused({}, StatusCode::kInvalidArgument, "the batch is empty");
  refused({{sequence, {}}}, StatusCode::kInvalidArgument, "gets no tokens");
  refused({{sequence, bad}}, StatusCode::kInvalidArgument, "token 96 is not in the vocabulary");
  refused({{sequence, good}}, StatusCode::kInvalidArgument, "more than max_step_tokens 6");
  refused({{7, {good.data(), 2}}}, StatusCode::kNotFound, "there is no sequence 7");
  refused({{sequence, {good.data(), 2}}, {sequence, {good.data(), 2}}},
          StatusCode::kInvalidArgument, "twice");
  EXPECT_EQ(session->AddSequence().status().code(), StatusCode::kResourceExhausted);
  std::vector<std::int32_t> longer(9, 1);
  EXPECT_EQ(session->Prefill(sequence, longer).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*session->LengthOf(sequence), 0);
}

TEST(DecoderConfig, NamesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& text, StatusCode code, const char* words) {
    const auto config = ParseDecoderConfig(text, "config.json");
    EXPECT_EQ(config.status().code(), code) << words;
    EXPECT_THAT(config.status().message(), HasSubstr(words));
  };
  refused("[]", StatusCode::kDataLoss, "not a JSON object");
  refused(Config("GPT2LMHeadModel", ""), StatusCode::kUnsupported, "GPT2LMHeadModel is unknown");
  refused(Config("LlamaForCausalLM", R"("rope_scaling": {"type": "dynamic", "factor": 2},)"),
          StatusCode::kUnsupported, "known are default, linear, llama3, yarn");
  refused(Config("LlamaForCausalLM", R"("rope_scaling": {"factor": 2},)"),
          StatusCode::kInvalidArgument, "has a factor but no rope_type");
  refused(Config("LlamaForCausalLM", R"("rope_scaling": {"type": "linear", "factor": 1e-320},)"),
          StatusCode::kInvalidArgument, "factor is 1e-320; it must be at least 1");
  refused(Config("LlamaForCausalLM", R"("hidden_act": "gelu",)"), StatusCode::kUnsupported,
          "hidden_act is gelu");
  refused(Config("LlamaForCausalLM", R"("quantization_config": {"quant_method": "bitsandbytes"},)"),
          StatusCode::kUnsupported, "known is quant_method fp8");
}

// A window that is used but not given, and one that is null.
TEST(DecoderConfig, WindowsByDefault) {
  const auto window = [](const char* architecture, const char* more) {
    return ParseDecoderConfig(Config(architecture, more), "config.json")->windows[0];
  };
  EXPECT_EQ(window("MistralForCausalLM", ""), 4096);
  EXPECT_EQ(window("MistralForCausalLM", R"("sliding_window": null,)"), 0);
  EXPECT_EQ(window("MixtralForCausalLM", kKinds[5].more), 0);
  EXPECT_EQ(window("LlamaForCausalLM", R"("sliding_window": 8,)"), 0);
  EXPECT_EQ(window("Qwen2ForCausalLM", R"("max_window_layers": 0,)"), 0);
  const char* const used = R"("use_sliding_window": true, "max_window_layers": 0,)";
  EXPECT_EQ(window("Qwen2ForCausalLM", used), 4096);
}

}  // namespace
}  // namespace culet
