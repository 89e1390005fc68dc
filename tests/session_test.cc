// What a session does with several prompts at once, with NaN, and when it is stopped.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kVocab = 96, kHidden = 48;

DecoderModel RandomModel() {
  const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64})",
                                         "config");
  return *DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
}

std::vector<std::int32_t> Prompt(int length, int seed) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back((i * 37 + seed * 11) % 95);
  return tokens;
}

class SessionTest : public testing::TestWithParam<bool> {
 protected:
  Session MakeSession(const SessionOptions& options) {
    auto session = Session::Create(model_, *dispatch_, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  DecoderModel model_ = RandomModel();
  Gemm gemm_ = *Gemm::Create();
  std::unique_ptr<KernelDispatch> dispatch_ =
      GetParam() ? MakeReferenceDispatch() : MakeCpuDispatch(gemm_);
};

void ExpectNear(const float* got, const float* expected, std::size_t count,
                const std::string& what) {
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_NEAR(got[i], expected[i], 2e-5) << what << ", element " << i;
  }
}

// Pieces end within a prompt, with one, and beyond several.
TEST_P(SessionTest, PromptsTogetherGiveWhatEachGivesAlone) {
  const std::vector<int> lengths = {1, 9, 5, 17, 2, 3};
  std::vector<std::vector<std::int32_t>> prompts;
  std::size_t tokens = 0;
  for (const int length : lengths) {
    prompts.push_back(Prompt(length, length));
    tokens += prompts.back().size();
  }
  for (const int most : {1, 4, 7, 10, 512}) {
    Session alone = MakeSession({.max_sequences = 6, .max_context = 32, .block_size = 4});
    Session session = MakeSession(
        {.max_sequences = 6, .max_context = 32, .block_size = 4, .max_step_tokens = most});
    Session last = MakeSession(
        {.max_sequences = 6, .max_context = 32, .block_size = 4, .max_step_tokens = most});
    std::vector<SequenceTokens> batch;
    for (const auto& prompt : prompts) {
      batch.push_back({*session.AddSequence(), prompt});
      ASSERT_TRUE(last.AddSequence().ok());
    }
    const auto all = session.Prefill(batch, {.all_logits = true, .hidden = true});
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    const auto lasts = last.Prefill(batch, {.logits = true});
    ASSERT_TRUE(lasts.ok()) << lasts.status().ToString();
    ASSERT_EQ(all->next, lasts->next);
    ASSERT_EQ(all->logits.size(), tokens * kVocab);
    ASSERT_EQ(lasts->logits.size(), prompts.size() * kVocab);
    ASSERT_EQ(all->hidden.size(), 3 * tokens * kHidden);
    std::size_t before = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::string what =
          "prompt " + std::to_string(i) + " in pieces of " + std::to_string(most);
      const std::size_t count = prompts[i].size();
      const auto one = alone.Step(std::vector<SequenceTokens>{{*alone.AddSequence(), prompts[i]}},
                                  {.all_logits = true, .hidden = true});
      ASSERT_TRUE(one.ok()) << one.status().ToString();
      EXPECT_EQ(all->next[i], one->next[0]) << what;
      ExpectNear(&all->logits[before * kVocab], one->logits.data(), count * kVocab, what);
      ExpectNear(&lasts->logits[i * kVocab], &one->logits[(count - 1) * kVocab], kVocab, what);
      for (std::size_t state = 0; state < 3; ++state) {
        ExpectNear(&all->hidden[(state * tokens + before) * kHidden],
                   &one->hidden[state * count * kHidden], count * kHidden, what);
      }
      EXPECT_EQ(*session.LengthOf(batch[i].sequence), lengths[i]);
      before += count;
    }
  }
}

TEST_P(SessionTest, AFailedPrefillLeavesAllSequencesAsTheyWere) {
  Session session =
      MakeSession({.max_sequences = 2, .max_context = 10, .block_size = 4, .max_step_tokens = 3});
  const auto prompt = Prompt(7, 1), too_long = Prompt(11, 2);
  const int one = *session.AddSequence(), other = *session.AddSequence();
  ASSERT_TRUE(session.Prefill(one, std::span(prompt).first(2)).ok());
  const SequenceTokens batch[] = {{one, prompt}, {other, too_long}};
  EXPECT_EQ(session.Prefill(batch).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*session.LengthOf(one), 2);
  EXPECT_EQ(*session.LengthOf(other), 0);
  const SequenceTokens twice[] = {{one, prompt}, {one, prompt}};
  EXPECT_EQ(session.Prefill(twice).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Prefill({}).status().code(), StatusCode::kInvalidArgument);
  const SequenceTokens fitting[] = {{one, prompt}, {other, std::span(too_long).first(10)}};
  EXPECT_TRUE(session.Prefill(fitting).ok());
}

// Of a batch's pieces some were computed, one prompt is done, another in its midst.
TEST_P(SessionTest, APrefillStoppedInALaterPieceLeavesAllSequencesAsTheyWere) {
  Session session =
      MakeSession({.max_sequences = 2, .max_context = 32, .block_size = 4, .max_step_tokens = 3});
  const int a = *session.AddSequence(), b = *session.AddSequence();
  const auto first = Prompt(2, 1), long_one = Prompt(7, 2), other = Prompt(11, 3);
  ASSERT_TRUE(session.Prefill(a, first).ok());
  const std::vector<SequenceTokens> batch = {{a, long_one}, {b, other}};
  int most_a = 0, most_b = 0;
  session.SetGate([&]() -> Status {
    most_a = std::max(most_a, *session.LengthOf(a));
    most_b = std::max(most_b, *session.LengthOf(b));
    return *session.LengthOf(b) < 8 ? Status() : Status(StatusCode::kFailedPrecondition, "enough");
  });
  EXPECT_EQ(session.Prefill(batch).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(most_a, 9);
  EXPECT_EQ(most_b, 8);
  EXPECT_EQ(*session.LengthOf(a), 2);
  EXPECT_EQ(*session.LengthOf(b), 0);
  session.SetGate(nullptr);
  EXPECT_TRUE(session.Prefill(batch).ok());
}

// The gate is asked before each node is prepared and before each is launched.
TEST_P(SessionTest, PromptsWithoutRoomAreRefusedBeforeAnyWork) {
  Session session = MakeSession({.max_sequences = 2,
                                 .max_context = 32,
                                 .block_size = 4,
                                 .cache_blocks = 10,
                                 .max_step_tokens = 4});
  int nodes = 0;
  session.SetGate([&]() -> Status {
    ++nodes;
    return {};
  });
  const int a = *session.AddSequence(), b = *session.AddSequence();
  const auto too_long = Prompt(33, 1), fits = Prompt(20, 2), one_more = Prompt(21, 3);
  const std::vector<SequenceTokens> together = {{a, fits}, {b, one_more}};
  EXPECT_EQ(session.Prefill(a, too_long).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(session.Prefill(together).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(nodes, 0);
  EXPECT_EQ(*session.LengthOf(a), 0);
  EXPECT_EQ(*session.LengthOf(b), 0);
  EXPECT_TRUE(session.Prefill(a, fits).ok());
  EXPECT_GT(nodes, 0);
}

TEST_P(SessionTest, AGateEndsAStep) {
  Session session = MakeSession({.max_context = 32});
  const int sequence = *session.AddSequence();
  const auto prompt = Prompt(9, 3);
  int allowed = 0, asked = 0;
  session.SetGate([&]() -> Status {
    return asked++ < allowed ? Status() : Status(StatusCode::kFailedPrecondition, "enough");
  });
  while (true) {
    asked = 0;
    const auto result = session.Prefill(sequence, prompt);
    if (result.ok()) break;
    EXPECT_EQ(asked, allowed + 1);
    EXPECT_EQ(result.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(result.status().message(), HasSubstr("enough"));
    EXPECT_EQ(*session.LengthOf(sequence), 0);
    if (session.last_executor() != nullptr) break;  // prepared, and ended at the first launch
    ASSERT_LT(++allowed, 1000);
  }
  ASSERT_NE(session.last_executor(), nullptr);
  const int operations = session.last_executor()->n_launches();
  EXPECT_GT(operations, 20);
  EXPECT_EQ(allowed, operations);
  // What is prepared stays so.
  asked = 0;
  EXPECT_TRUE(session.Prefill(sequence, prompt).ok());
  EXPECT_EQ(*session.LengthOf(sequence), 9);
  session.SetGate(nullptr);
  asked = 0;
  const auto next = Prompt(1, 4);
  EXPECT_TRUE(session.Prefill(sequence, next).ok());
  EXPECT_EQ(asked, 0);
}

// A NaN in a weight, and the node that has to be named.
TEST_P(SessionTest, TheFirstNodeThatMakesANaNIsNamed) {
  const LayerWeights& layer = model_.weights().layers[1];
  const std::pair<const Weight*, const char*> cases[] = {
      {&model_.weights().head, "(logits) mul_mat"},
      {&model_.weights().final_norm, "(final_norm) rms_norm"},
      {&layer.down, "(layers.1.down) mul_mat"},
      {&layer.mlp_norm, "(layers.1.mlp_norm) rms_norm"},
      {&layer.v, "(layers.1.v) mul_mat"},
      {&layer.k_norm, "(layers.1.k_norm) rms_norm"},
      {&model_.weights().layers[0].q, "(layers.0.q) mul_mat"}};
  constexpr std::uint16_t kNaN = 0x7fc0;  // BF16
  const auto prompt = Prompt(5, 1);
  for (const auto& [weight, name] : cases) {
    auto* const element = FromDevicePtr<std::uint16_t>(weight->data_ptr) + 3;
    const std::uint16_t before = *element;
    for (const bool all_logits : {false, true}) {
      Session session = MakeSession({.max_context = 32});
      const int sequence = *session.AddSequence();
      *element = kNaN;
      const Status status = session.Prefill(sequence, prompt, {.all_logits = all_logits}).status();
      *element = before;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << name;
      EXPECT_THAT(status.message(), HasSubstr(name));
      EXPECT_THAT(status.message(), HasSubstr("the first value with a NaN, in row "));
      EXPECT_THAT(status.message(), HasSubstr("logits of sequence 0 are NaN"));
      EXPECT_EQ(*session.LengthOf(sequence), 0);
      // Nothing of it stays, but in norms' weights, of which there may be copies.
      if (weight->rows > 1) {
        EXPECT_TRUE(session.Prefill(sequence, prompt).ok());
      }
    }
  }
}

// Only the sequence whose token has the NaN is named; a row before the last counts when its logits
// are wanted.
TEST_P(SessionTest, TheSequenceWithANaNIsNamed) {
  Session session = MakeSession({.max_sequences = 2, .max_context = 32});
  const std::vector<std::int32_t> good = {1, 2, 3}, bad = {4, 95};
  const int one = *session.AddSequence(), other = *session.AddSequence();
  auto* const row =
      FromDevicePtr<std::uint16_t>(model_.weights().embedding.data_ptr) + 95 * kHidden;
  row[7] = 0x7fc0;
  const SequenceTokens batch[] = {{one, good}, {other, bad}};
  const Status status = session.Step(batch).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("(embedding)"));
  EXPECT_THAT(status.message(), HasSubstr("in row 4, column 7, so that logits of sequence 1"));
  const SequenceTokens without[] = {{one, good}};
  EXPECT_TRUE(session.Step(without).ok());
}

INSTANTIATE_TEST_SUITE_P(All, SessionTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "reference" : "cpu"; });

}  // namespace
}  // namespace culet
