// Tokens that a session draws: those of SampleToken on its logits, in any batch.
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

DecoderModel RandomModel() {
  const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64})",
                                         "config");
  return *DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
}

using Tokens = std::vector<std::int32_t>;
const Tokens kPrompts[] = {{5, 80, 11}, {7}, {60, 3, 4, 9, 12, 1, 2}};

class SessionSampling : public testing::TestWithParam<bool> {
 protected:
  Session MakeSession() {
    auto session = Session::Create(model_, *dispatch_, {.max_sequences = 3, .max_context = 64});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  // What follows each prompt, all decoded as one batch.
  std::vector<Tokens> Continue(const std::vector<Tokens>& prompts,
                               const std::vector<SamplingOptions>& options, int count,
                               const StepOutputs& outputs = {}) {
    Session session = MakeSession();
    std::vector<Tokens> made(prompts.size());
    std::vector<SequenceTokens> batch;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      batch.push_back({*session.AddSequence(), prompts[i]});
      EXPECT_TRUE(session.SetSampling(batch[i].sequence, options[i]).ok());
    }
    for (int step = 0; step < count; ++step) {
      const auto result =
          step == 0 ? session.Prefill(batch, outputs) : session.Step(batch, outputs);
      EXPECT_TRUE(result.ok()) << result.status().ToString();
      if (!result.ok()) return made;
      for (std::size_t i = 0; i < batch.size(); ++i) {
        made[i].push_back(result->next[i]);
        batch[i].tokens = {&made[i].back(), 1};
        if (!outputs.logits || outputs.all_logits) continue;
        const std::span<const float> row(result->logits.data() + i * 96, 96);
        EXPECT_EQ(result->next[i],
                  *SampleToken(row, options[i], prompts[i].size() + static_cast<unsigned>(step)));
      }
    }
    return made;
  }

  DecoderModel model_ = RandomModel();
  Gemm gemm_ = *Gemm::Create();
  std::unique_ptr<KernelDispatch> dispatch_ =
      GetParam() ? MakeReferenceDispatch() : MakeCpuDispatch(gemm_);
};

const std::vector<SamplingOptions> kOptions = {
    {.temperature = 1, .top_k = 20, .seed = 1},
    {},  // greedy, beside others
    {.temperature = 3, .top_p = 0.9f, .min_p = 0.01f, .seed = 2}};

TEST_P(SessionSampling, DrawsOfTheLogitsThatItGives) {
  const std::vector<Tokens> prompts(std::begin(kPrompts), std::end(kPrompts));
  const auto made = Continue(prompts, kOptions, 20, {.logits = true});
  EXPECT_EQ(made, Continue(prompts, kOptions, 20));
  EXPECT_EQ(made, Continue(prompts, kOptions, 20, {.all_logits = true}));
  // Alone as together, and each by its own options.
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(made[i], Continue({prompts[i]}, {kOptions[i]}, 20)[0]) << i;
  }
  EXPECT_EQ(made[1], Continue({prompts[1]}, {{.temperature = 5, .top_k = 1}}, 20)[0]);
  const std::set<std::int32_t> different(made[2].begin(), made[2].end());
  EXPECT_GT(different.size(), 10u);
}

TEST_P(SessionSampling, ASeedRepeatsAndAnotherDoesNot) {
  const auto of = [&](std::uint64_t seed) {
    return Continue({kPrompts[0]}, {{.temperature = 2, .seed = seed}}, 16)[0];
  };
  EXPECT_EQ(of(1), of(1));
  EXPECT_NE(of(1), of(2));
  EXPECT_NE(of(1), of(1 + (std::uint64_t{1} << 32)));
}

TEST_P(SessionSampling, OptionsMayChangeBetweenSteps) {
  Session session = MakeSession();
  const int sequence = *session.AddSequence();
  const SamplingOptions warm{.temperature = 4, .seed = 9};
  ASSERT_TRUE(session.SetSampling(sequence, warm).ok());
  Tokens drawn, again, greedy;
  const auto decode = [&](Tokens& made) {
    ASSERT_TRUE(session.Truncate(sequence, 0).ok());
    auto result = session.Prefill(sequence, kPrompts[2]);
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      made.push_back(result->next[0]);
      const SequenceTokens part{sequence, {&made.back(), 1}};
      result = session.Step({&part, 1});
    }
  };
  decode(drawn);
  ASSERT_TRUE(session.SetSampling(sequence, {}).ok());
  decode(greedy);
  ASSERT_TRUE(session.SetSampling(sequence, warm).ok());
  decode(again);
  EXPECT_EQ(drawn, again);
  EXPECT_NE(drawn, greedy);
  // A new sequence of that number is greedy.
  ASSERT_TRUE(session.RemoveSequence(sequence).ok());
  ASSERT_EQ(*session.AddSequence(), sequence);
  Tokens anew;
  decode(anew);
  EXPECT_EQ(anew, greedy);
}

TEST_P(SessionSampling, OptionsAreOfTheirSequence) {
  Session session = MakeSession();
  const int sequences[] = {*session.AddSequence(), *session.AddSequence(), *session.AddSequence()};
  for (const std::size_t i : {0, 1, 2}) {
    ASSERT_TRUE(session.SetSampling(sequences[i], kOptions[i]).ok());
  }
  // Batches of some of them, in other orders than their numbers'.
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{2, 0, 1}, {1, 2}, {2}, {0, 2}, {1, 0}}) {
    std::vector<SequenceTokens> batch;
    for (const std::size_t i : order) {
      ASSERT_TRUE(session.Truncate(sequences[i], 0).ok());
      batch.push_back({sequences[i], kPrompts[i]});
    }
    for (int step = 0; step < 6; ++step) {
      const auto result = step == 0 ? session.Prefill(batch, {.logits = true})
                                    : session.Step(batch, {.logits = true});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      for (std::size_t row = 0; row < order.size(); ++row) {
        const std::span<const float> logits(result->logits.data() + row * 96, 96);
        const int length = *session.LengthOf(batch[row].sequence);
        EXPECT_EQ(result->next[row],
                  *SampleToken(logits, kOptions[order[row]], static_cast<std::uint64_t>(length)));
        batch[row].tokens =
            kPrompts[row].size() > 1 ? std::span(kPrompts[row]).first(1) : std::span(kPrompts[row]);
      }
    }
  }
}

TEST_P(SessionSampling, RefusesWhatHasNoMeaning) {
  Session session = MakeSession();
  EXPECT_EQ(session.SetSampling(0, {}).code(), StatusCode::kNotFound);
  const int sequence = *session.AddSequence();
  const Status status = session.SetSampling(sequence, {.temperature = 1, .top_p = 0});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("top_p is 0"));
}

INSTANTIATE_TEST_SUITE_P(Dispatches, SessionSampling, testing::Bool(),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

}  // namespace
}  // namespace culet
