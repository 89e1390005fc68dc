// Sequences of a model with longrope that grow beyond its original context: all of their positions
// turn by other frequencies then, as if they had been read at once.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

constexpr int kOriginal = 12;
constexpr const char* kConfig = R"({"architectures": ["Phi3ForCausalLM"], "vocab_size": 96,
  "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 64, "intermediate_size": 80, "original_max_position_embeddings": 12,
  "rope_scaling": {"type": "longrope", "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                   "long_factor": [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]}})";

class LongRopes : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = ParseDecoderConfig(kConfig, "config");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    auto model = DecoderModel::Random(*config, DataType::kFloat32, HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
    gemm_ = std::make_unique<Gemm>(*Gemm::Create());
    dispatch_ = MakeCpuDispatch(*gemm_);
    for (int i = 0; i < 40; ++i) ids_.push_back((i * 37 + 11) % 96);
  }

  Session Make(int step_tokens = 0) {
    return *Session::Create(
        *model_, *dispatch_,
        {.max_sequences = 2, .max_context = 48, .block_size = 4, .max_step_tokens = step_tokens});
  }

  // Of the last of the first `count` tokens, read at once.
  std::vector<float> AtOnce(int count) {
    Session session = Make();
    const auto result = session.Prefill(
        *session.AddSequence(), {ids_.data(), static_cast<std::size_t>(count)}, {.logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result->logits;
  }

  static void ExpectSame(const std::vector<float>& a, const std::vector<float>& b, int count) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_LE(RelativeL2(a.data(), b.data(), a.size()), 1e-5) << count << " tokens";
  }

  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<KernelDispatch> dispatch_;
  std::vector<std::int32_t> ids_;
};

TEST_F(LongRopes, TokenByTokenAcrossTheOriginalContext) {
  Session session = Make();
  const int sequence = *session.AddSequence();
  for (int i = 0; i < 16; ++i) {
    const SequenceTokens next{sequence, {&ids_[static_cast<std::size_t>(i)], 1}};
    const auto result = session.Step({&next, 1}, {.logits = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    ExpectSame(result->logits, AtOnce(i + 1), i + 1);
  }
  // And back: what is truncated turns by the short ones again.
  ASSERT_TRUE(session.Truncate(sequence, 6).ok());
  const SequenceTokens next{sequence, {&ids_[6], 1}};
  ExpectSame(session.Step({&next, 1}, {.logits = true})->logits, AtOnce(7), 7);
}

TEST_F(LongRopes, APromptInPieces) {
  Session session = Make(5);
  const auto result = session.Prefill(*session.AddSequence(), {ids_.data(), 30}, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ExpectSame(result->logits, AtOnce(30), 30);
}

TEST_F(LongRopes, ShortAndLongSequencesInOneBatch) {
  Session session = Make();
  const int a = *session.AddSequence(), b = *session.AddSequence();
  const SequenceTokens first[] = {{a, {ids_.data(), 20}}, {b, {ids_.data(), kOriginal - 1}}};
  auto result = session.Step(first, {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const std::size_t vocab = 96, hidden = 64, tokens = 20 + kOriginal - 1;
  ASSERT_EQ(result->logits.size(), tokens * vocab);
  ASSERT_EQ(result->hidden.size(), 3 * tokens * hidden);
  const auto rows = [&](std::size_t last) {
    const auto at = result->logits.begin() + static_cast<std::ptrdiff_t>(last * vocab);
    return std::vector<float>(at, at + static_cast<std::ptrdiff_t>(vocab));
  };
  ExpectSame(rows(19), AtOnce(20), 20);
  ExpectSame(rows(tokens - 1), AtOnce(kOriginal - 1), kOriginal - 1);
  // The second becomes long, the first stays so.
  const SequenceTokens second[] = {{b, {ids_.data() + kOriginal - 1, 3}}, {a, {&ids_[20], 1}}};
  result = session.Step(second, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ExpectSame({result->logits.begin(), result->logits.begin() + 96}, AtOnce(kOriginal + 2), 14);
  ExpectSame({result->logits.begin() + 96, result->logits.end()}, AtOnce(21), 21);
}

TEST_F(LongRopes, DecodingAcrossTheOriginalContext) {
  Session session = Make(), steps = Make();
  const int one = *session.AddSequence(), other = *steps.AddSequence();
  auto last = session.Prefill(one, {ids_.data(), 8});
  ASSERT_TRUE(last.ok() && steps.Prefill(other, {ids_.data(), 8}).ok());
  const SequenceTokens next{one, {last->next.data(), 1}};
  const auto decoded = session.Decode({&next, 1}, {.steps = 12});
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  ASSERT_EQ(decoded->front().tokens.size(), 12u);
  std::int32_t token = last->next[0];
  for (const std::int32_t made : decoded->front().tokens) {
    const SequenceTokens read{other, {&token, 1}};
    const auto result = steps.Step({&read, 1});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->next[0], made);
    token = made;
  }
}

}  // namespace
}  // namespace culet
