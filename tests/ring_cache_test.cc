// Layers with windows or chunks whose keys lie in rings: answers are those of a cache that keeps
// every key, and its memory is what the window takes.
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

constexpr int kContext = 400, kBlock = 8, kStep = 8, kWindow = 6;
constexpr int kRing = (kWindow + kStep + 3 + 256 + kBlock - 1) / kBlock;  // blocks

struct Kind {
  const char* name;
  const char* keys;
  int rings;  // layers of three that have one
};
constexpr Kind kKinds[] = {
    {"windows_and_full",
     R"("architectures": ["Gemma3ForCausalLM"], "sliding_window": 6, "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],)",
     2},
    {"windows", R"("architectures": ["MistralForCausalLM"], "sliding_window": 6,)", 3},
    {"chunks",
     R"("architectures": ["Llama4ForCausalLM"], "attention_chunk_size": 6, "moe_layers": [],
        "intermediate_size_mlp": 48, "no_rope_layers": [1, 1, 0], "num_local_experts": 2,
        "num_experts_per_tok": 1,)",
     2}};

class Rings : public testing::TestWithParam<std::tuple<Kind, StepPadding>> {
 protected:
  void SetUp() override {
    const Kind& kind = std::get<0>(GetParam());
    const auto config =
        ParseDecoderConfig(std::string("{") + kind.keys + R"("vocab_size": 96, "hidden_size": 32,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 16, "intermediate_size": 48, "max_position_embeddings": 1024})",
                           "config");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    auto model = DecoderModel::Random(*config, DataType::kFloat32, HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
    gemm_ = std::make_unique<Gemm>(*Gemm::Create());
    dispatch_ = MakeCpuDispatch(*gemm_);
    for (int i = 0; i < kContext; ++i) ids_.push_back((i * i + 37 * i + 11) % 96);
  }

  SessionOptions Options(int step_tokens) const {
    return {.max_sequences = 2,
            .max_context = kContext,
            .block_size = kBlock,
            .max_step_tokens = step_tokens,
            .padding = std::get<1>(GetParam())};
  }
  Session Make(int step_tokens) {
    auto session = Session::Create(*model_, *dispatch_, Options(step_tokens));
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }
  // The logits behind each of the tokens, read at once: then no layer has a ring.
  std::vector<float> AtOnce(std::span<const std::int32_t> ids) {
    Session session = Make(kContext);
    const auto result = session.Prefill(*session.AddSequence(), ids, {.all_logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result->logits;
  }
  static void ExpectSame(const std::vector<float>& row, const std::vector<float>& all,
                         std::size_t position, const char* what) {
    ASSERT_EQ(row.size(), 96u);
    EXPECT_LE(RelativeL2(row.data(), all.data() + position * 96, 96), 1e-5)
        << what << ", position " << position;
  }
  void ExpectNext(Session& session, int sequence, std::vector<std::int32_t> read,
                  std::int32_t token, const char* what) {
    const SequenceTokens part{sequence, {&token, 1}};
    const auto result = session.Step({&part, 1}, {.logits = true});
    ASSERT_TRUE(result.ok()) << what << result.status().ToString();
    read.push_back(token);
    ExpectSame(result->logits, AtOnce(read), read.size() - 1, what);
  }
  std::vector<std::int32_t> First(int count) const { return {ids_.begin(), ids_.begin() + count}; }

  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<KernelDispatch> dispatch_;
  std::vector<std::int32_t> ids_;
};

TEST_P(Rings, TakeWhatWindowsSee) {
  const Session ring = Make(kStep), whole = Make(kContext);
  const double row = 2.0 * 2 * 16 * sizeof(float);  // of keys and of values
  const int rings = std::get<0>(GetParam()).rings;
  const double full = 2 * kContext * row;
  EXPECT_EQ(whole.cache_bytes(), 3 * full);
  EXPECT_EQ(ring.cache_bytes(), (3 - rings) * full + rings * 2 * kRing * kBlock * row);
  EXPECT_EQ(*CacheBytes(model_->config(), Options(kStep)), ring.cache_bytes());
}

TEST_P(Rings, AnswersAreThoseOfAllKeys) {
  const std::vector<float> expected = AtOnce(ids_);
  Session session = Make(kStep);
  const int other = *session.AddSequence(), sequence = *session.AddSequence();
  ASSERT_TRUE(session.Prefill(other, {ids_.data() + 50, 20}).ok());
  const auto read = session.Prefill(sequence, {ids_.data(), 390}, {.all_logits = true});
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_LE(RelativeL2(read->logits.data(), expected.data(), read->logits.size()), 1e-5);
  for (std::size_t at = 390; at < 395; ++at) {
    const SequenceTokens batch[] = {{other, {&ids_[at - 320], 1}}, {sequence, {&ids_[at], 1}}};
    const auto next = session.Step(batch, {.logits = true});
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    ExpectSame({next->logits.begin() + 96, next->logits.end()}, expected, at, "a token");
  }
  const std::vector<std::int32_t> of_other(ids_.begin() + 50, ids_.begin() + 75);
  ExpectNext(session, other, of_other, 9, "the other");
}

TEST_P(Rings, Decoding) {
  Session session = Make(kStep);
  const int sequence = *session.AddSequence(), other = *session.AddSequence();
  std::vector<std::int32_t> read = First(260), of_other = First(5);
  ASSERT_TRUE(session.Prefill(sequence, read).ok());
  ASSERT_TRUE(session.Prefill(other, of_other).ok());
  const std::int32_t first[] = {3, 4};
  const SequenceTokens batch[] = {{sequence, {first, 1}}, {other, {first + 1, 1}}};
  const auto decoded = session.Decode(batch, {.steps = 60});
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  read.push_back(3);
  of_other.push_back(4);
  const auto& tokens = (*decoded)[0].tokens;
  read.insert(read.end(), tokens.begin(), tokens.end() - 1);
  of_other.insert(of_other.end(), (*decoded)[1].tokens.begin(), (*decoded)[1].tokens.end() - 1);
  ExpectNext(session, sequence, read, tokens.back(), "decoded");
  ExpectNext(session, other, of_other, (*decoded)[1].tokens.back(), "decoded beside");
}

// A sequence that is cut sees earlier keys again: in the ring, or read anew.
TEST_P(Rings, Truncated) {
  for (const int length : {385, 300, 130, 20, 0}) {
    Session session = Make(kStep);
    const int sequence = *session.AddSequence();
    ASSERT_TRUE(session.Prefill(sequence, First(390)).ok());
    ASSERT_TRUE(session.Truncate(sequence, 388).ok());
    ASSERT_TRUE(session.Truncate(sequence, length).ok());
    ExpectNext(session, sequence, First(length), 77, "cut");
    EXPECT_EQ(*session.LengthOf(sequence), length + 1);
  }
}

TEST_P(Rings, FailedPrompts) {
  Session session = Make(kStep);
  const int sequence = *session.AddSequence();
  ASSERT_TRUE(session.Prefill(sequence, First(10)).ok());
  int left = 40 * 60;
  session.SetGate([&]() -> Status {
    return --left < 0 ? Status(StatusCode::kFailedPrecondition, "stopped") : Status();
  });
  session.SetHook(
      [](KernelDispatch& dispatch, const NodeLaunch& launch) { return dispatch.launch(launch); });
  EXPECT_EQ(session.Prefill(sequence, {ids_.data() + 20, 380}).status().code(),
            StatusCode::kFailedPrecondition);
  session.SetGate(nullptr);
  EXPECT_EQ(*session.LengthOf(sequence), 10);
  ExpectNext(session, sequence, First(10), 33, "failed");
}

INSTANTIATE_TEST_SUITE_P(All, Rings,
                         testing::Combine(testing::ValuesIn(kKinds),
                                          testing::Values(StepPadding::kNone,
                                                          StepPadding::kBuckets)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == StepPadding::kNone ? "" : "_padded");
                         });

// Memory for few sequences is no reason to take more for their rings.
TEST(RingCache, IsNoLargerThanTheWholeCache) {
  const auto config = ParseDecoderConfig(R"({"architectures": ["MistralForCausalLM"],
      "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
      "intermediate_size": 48, "sliding_window": 6, "max_position_embeddings": 4096,
      "num_key_value_heads": 2})",
                                         "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const SessionOptions options{.max_sequences = 4,
                               .max_context = 400,
                               .block_size = 8,
                               .cache_blocks = 100,
                               .max_step_tokens = 8};
  EXPECT_EQ(*CacheBytes(*config, options), 2u * 100 * 8 * 32 * sizeof(float));
}

}  // namespace
}  // namespace culet
