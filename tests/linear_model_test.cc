// Models with linear attention beside their goldens: states of sequences that are cut back, stopped
// or taken up again, and configs that cannot be meant.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Sizes() {
  return {{"architectures", {"Qwen3NextForCausalLM"}},
          {"vocab_size", 96},
          {"hidden_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"intermediate_size", 48},
          {"num_experts", 6},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 40},
          {"shared_expert_intermediate_size", 56},
          {"linear_num_key_heads", 2},
          {"linear_num_value_heads", 4},
          {"linear_key_head_dim", 12},
          {"linear_value_head_dim", 20},
          {"max_position_embeddings", 64}};
}

std::string WhyNot(const json& config) {
  const auto parsed = ParseDecoderConfig(config.dump(), "config");
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(LinearConfig, EveryFourthLayerHasAttention) {
  json config = Sizes();
  auto parsed = ParseDecoderConfig(config.dump(), "config");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_THAT(parsed->warnings, IsEmpty());
  EXPECT_THAT(parsed->linear_layers, ElementsAre(true, true, true, false));
  EXPECT_THAT(parsed->sparse, ElementsAre(true, true, true, true));
  EXPECT_EQ(parsed->linear.taps, 4);
  EXPECT_EQ(parsed->linear.delta, (GatedDeltaParams{2, 4, 12, 20}));
  EXPECT_EQ(parsed->rope.dims, 4);
  EXPECT_TRUE(parsed->attention_gate && parsed->qk_norm && parsed->shared_gate);
  EXPECT_TRUE(parsed->routing.renormalize);

  config["full_attention_interval"] = 2;
  config["mlp_only_layers"] = {1};
  parsed = ParseDecoderConfig(config.dump(), "config");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_THAT(parsed->linear_layers, ElementsAre(true, false, true, false));
  EXPECT_THAT(parsed->sparse, ElementsAre(true, false, true, true));
  config["layer_types"] = {"full_attention", "full_attention", "linear_attention",
                           "full_attention"};
  parsed = ParseDecoderConfig(config.dump(), "config");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_THAT(parsed->linear_layers, ElementsAre(false, false, true, false));
}

TEST(LinearConfig, WhatCannotBeIsNamed) {
  const auto with = [](const char* key, const json& value) {
    json config = Sizes();
    config[key] = value;
    return WhyNot(config);
  };
  for (const char* key :
       {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "full_attention_interval",
        "shared_expert_intermediate_size", "moe_intermediate_size", "num_experts"}) {
    for (const json& value : {json(0), json(-1), json("4"), json(1.5), json::array()}) {
      EXPECT_THAT(with(key, value), HasSubstr(key)) << value;
    }
  }
  for (const char* key : {"linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
                          "linear_conv_kernel_dim", "head_dim"}) {
    EXPECT_NE(with(key, 1000000000), "") << key;
  }
  EXPECT_THAT(with("linear_num_value_heads", 3), HasSubstr("no multiple of linear_num_key_heads"));
  EXPECT_THAT(with("linear_conv_kernel_dim", 1), HasSubstr("linear_conv_kernel_dim is 1"));
  EXPECT_THAT(with("layer_types", {"linear_attention"}), HasSubstr("layer_types"));
  EXPECT_THAT(with("layer_types", json::array({"sliding_attention", "full_attention",
                                               "full_attention", "full_attention"})),
              HasSubstr("known are full_attention, linear_attention"));
  EXPECT_THAT(with("partial_rotary_factor", 0), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(with("hidden_act", "gelu"), HasSubstr("hidden_act is gelu"));
}

// Answers of a session whose sequences were cut, stopped or taken up again, against those of
// sequences that were read at once.
class LinearSessions : public testing::TestWithParam<StepPadding> {
 protected:
  void SetUp() override {
    const auto config = ParseDecoderConfig(Sizes().dump(), "config");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    auto model = DecoderModel::Random(*config, DataType::kFloat32, HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
    gemm_ = std::make_unique<Gemm>(*Gemm::Create());
    dispatch_ = MakeCpuDispatch(*gemm_);
    for (int i = 0; i < 40; ++i) ids_.push_back((i * 37 + 11) % 96);
  }

  Session Make(int step_tokens = 0) {
    return *Session::Create(*model_, *dispatch_,
                            {.max_sequences = 5,
                             .max_context = 48,
                             .block_size = 4,
                             .max_step_tokens = step_tokens,
                             .padding = GetParam()});
  }
  std::span<const std::int32_t> Ids(int first, int count) const {
    return std::span(ids_).subspan(static_cast<std::size_t>(first),
                                   static_cast<std::size_t>(count));
  }
  std::vector<float> AtOnce(std::span<const std::int32_t> ids) {
    Session session = Make();
    const auto result = session.Prefill(*session.AddSequence(), ids, {.logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result->logits;
  }
  void ExpectNext(Session& session, int sequence, std::int32_t token,
                  std::vector<std::int32_t> read, const char* what) {
    const SequenceTokens part{sequence, {&token, 1}};
    const auto result = session.Step({&part, 1}, {.logits = true});
    ASSERT_TRUE(result.ok()) << what << result.status().ToString();
    read.push_back(token);
    const std::vector<float> expected = AtOnce(read);
    EXPECT_LE(RelativeL2(result->logits.data(), expected.data(), expected.size()), 1e-5) << what;
  }

  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<KernelDispatch> dispatch_;
  std::vector<std::int32_t> ids_;
};

TEST_P(LinearSessions, TokensAndPieces) {
  for (const int step_tokens : {3, 5, 0}) {
    Session session = Make(step_tokens);
    const int sequence = *session.AddSequence(), other = *session.AddSequence();
    const SequenceTokens prompts[] = {{other, Ids(20, 7)}, {sequence, Ids(0, 11)}};
    ASSERT_TRUE(session.Prefill(prompts).ok());
    for (int at = 11; at < 14; ++at) {
      const auto read = Ids(0, at);
      ExpectNext(session, sequence, ids_[static_cast<std::size_t>(at)], {read.begin(), read.end()},
                 "a token");
    }
    const auto read = Ids(20, 7);
    ExpectNext(session, other, 5, {read.begin(), read.end()}, "the other");
  }
}

// A state cannot go back, so it is made anew; a number that is given to another sequence begins at
// zero.
TEST_P(LinearSessions, TruncatedAndRemoved) {
  Session session = Make(4);
  const int sequence = *session.AddSequence();
  ASSERT_TRUE(session.Prefill(sequence, Ids(0, 13)).ok());
  ASSERT_TRUE(session.Truncate(sequence, 6).ok());
  const auto read = Ids(0, 6);
  ExpectNext(session, sequence, 70, {read.begin(), read.end()}, "cut back");
  ASSERT_TRUE(session.Truncate(sequence, 0).ok());
  ExpectNext(session, sequence, 70, {}, "emptied");
  ASSERT_TRUE(session.RemoveSequence(sequence).ok());
  ASSERT_EQ(*session.AddSequence(), sequence);
  ASSERT_TRUE(session.Prefill(sequence, Ids(3, 2)).ok());
  const auto anew = Ids(3, 2);
  ExpectNext(session, sequence, 8, {anew.begin(), anew.end()}, "another");
}

// What was launched of a step that failed has changed states.
TEST_P(LinearSessions, FailedSteps) {
  Session session = Make(6);
  const int sequence = *session.AddSequence(), other = *session.AddSequence();
  ASSERT_TRUE(session.Prefill(sequence, Ids(0, 9)).ok());
  ASSERT_TRUE(session.Prefill(other, Ids(9, 4)).ok());
  int left = 0;
  session.SetGate([&]() -> Status {
    return --left < 0 ? Status(StatusCode::kFailedPrecondition, "stopped") : Status();
  });
  session.SetHook(
      [](KernelDispatch& dispatch, const NodeLaunch& launch) { return dispatch.launch(launch); });
  const SequenceTokens prompts[] = {{sequence, Ids(20, 5)}, {other, Ids(30, 6)}};
  for (const int launches : {40, 140, 260}) {
    left = launches;
    EXPECT_EQ(session.Prefill(prompts).status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(*session.LengthOf(sequence), 9);
  }
  session.SetGate(nullptr);
  const auto read = Ids(0, 9), of_other = Ids(9, 4);
  ExpectNext(session, other, 3, {of_other.begin(), of_other.end()}, "the other");
  ExpectNext(session, sequence, 3, {read.begin(), read.end()}, "the first");
}

// Sequences that end at different steps go on as if each had been alone.
TEST_P(LinearSessions, DecodedUntilEachEnds) {
  constexpr std::size_t kSequences = 4;
  Session session = Make();
  std::vector<int> sequences;
  std::vector<std::vector<std::int32_t>> read;
  for (int i = 0; i < static_cast<int>(kSequences); ++i) {
    sequences.push_back(*session.AddSequence());
    const auto prompt = Ids(5 * i, 4 + i);
    ASSERT_TRUE(session.Prefill(sequences.back(), prompt).ok());
    read.emplace_back(prompt.begin(), prompt.end());
  }
  for (const int steps : {8, 2}) {
    std::vector<std::int32_t> first;
    std::vector<SequenceTokens> batch;
    for (const auto& each : read) first.push_back(each.front());
    for (std::size_t i = 0; i < kSequences; ++i) batch.push_back({sequences[i], {&first[i], 1}});
    std::vector<int> made(kSequences);
    DecodeOptions options{.steps = steps};
    options.on_token = [&](std::size_t part, std::int32_t) {
      return ++made[part] < 1 + static_cast<int>(part) * 2;
    };
    const auto decoded = session.Decode(batch, options);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    for (std::size_t i = 0; i < kSequences; ++i) {
      read[i].push_back(first[i]);
      const auto& tokens = (*decoded)[i].tokens;
      read[i].insert(read[i].end(), tokens.begin(), tokens.end() - 1);
      ASSERT_EQ(*session.LengthOf(sequences[i]), static_cast<int>(read[i].size()));
    }
  }
  for (std::size_t i = 0; i < kSequences; ++i) {
    ExpectNext(session, sequences[i], 50, read[i], "decoded");
  }
}

INSTANTIATE_TEST_SUITE_P(All, LinearSessions,
                         testing::Values(StepPadding::kNone, StepPadding::kBuckets),
                         [](const auto& info) {
                           return info.param == StepPadding::kNone ? "plain" : "padded";
                         });

// Three layers of states, one of keys and values.
TEST(LinearCache, BytesAreThoseOfStates) {
  const auto config = ParseDecoderConfig(Sizes().dump(), "config");
  ASSERT_TRUE(config.ok());
  const SessionOptions options{.max_sequences = 4, .max_context = 32, .block_size = 16};
  const std::size_t keys = 2 * std::size_t{4} * 32 * 2 * 16 * sizeof(float);
  const std::size_t row = 2 * 2 * 12 + 4 * 20;
  const auto padded = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const std::size_t conv = padded(4 * 3 * row * sizeof(float));
  const std::size_t delta = padded(std::size_t{4} * 4 * 12 * 20 * sizeof(float));
  EXPECT_EQ(*CacheBytes(*config, options), keys + 3 * (conv + delta));
  const auto model = DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
  ASSERT_TRUE(model.ok());
  const auto reference = MakeReferenceDispatch();
  const auto session = Session::Create(*model, *reference, options);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session->cache_bytes(), static_cast<double>(keys + 3 * (conv + delta)));
}

}  // namespace
}  // namespace culet
