// Keys of layers with windows in rings on the CUDA dispatch: decoding makes the slots of both kinds
// of layers on the device.
#pragma once

#include "cases.h"
#include "culet/decoder.h"
#include "tests/decoder_fixture.h"

namespace culet {

TEST_F(CudaGraphs, RingsOfWindows) {
  const auto config = ParseDecoderConfig(R"({"architectures": ["Gemma3ForCausalLM"],
      "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "sliding_window": 6,
      "query_pre_attn_scalar": 16, "max_position_embeddings": 1024,
      "layer_types": ["sliding_attention", "full_attention"]})",
                                         "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto model = DecoderModel::Random(*config, DataType::kBfloat16, test_.dispatch->memory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  constexpr int kContext = 400;
  const auto make = [&](int step_tokens, DataType cache) {
    auto session = Session::Create(*model, *test_.dispatch,
                                   {.max_sequences = 2,
                                    .max_context = kContext,
                                    .block_size = 16,
                                    .max_step_tokens = step_tokens,
                                    .cache_type = cache});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  };
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 310; ++i) ids.push_back((i * i + 37 * i + 11) % 96);
  for (const DataType cache : {DataType::kFloat32, DataType::kBfloat16}) {
    Session rings = make(32, cache), whole = make(kContext, cache);
    EXPECT_LT(rings.cache_bytes(), whole.cache_bytes());
    std::vector<std::vector<std::int32_t>> made;
    for (Session* session : {&rings, &whole}) {
      const int sequence = *session->AddSequence(), other = *session->AddSequence();
      ASSERT_TRUE(session->Prefill(sequence, ids).ok());
      ASSERT_TRUE(session->Prefill(other, {ids.data(), 7}).ok());
      const std::int32_t first[] = {3, 4};
      const SequenceTokens batch[] = {{sequence, {first, 1}}, {other, {first + 1, 1}}};
      const auto decoded = session->Decode(batch, {.steps = 24});
      ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
      for (const DecodedTokens& each : *decoded) made.push_back(each.tokens);
    }
    EXPECT_EQ(made[0], made[2]);
    EXPECT_EQ(made[1], made[3]);
    // The last token's logits, with keys that decoding stored.
    const std::int32_t token = made[0].back();
    std::vector<std::vector<float>> logits;
    for (Session* session : {&rings, &whole}) {
      const SequenceTokens part{0, {&token, 1}};
      const auto next = session->Step({&part, 1}, {.logits = true});
      ASSERT_TRUE(next.ok()) << next.status().ToString();
      logits.push_back(next->logits);
    }
    EXPECT_LE(RelativeL2(logits[0].data(), logits[1].data(), logits[0].size()), 1e-4);
  }
}

}  // namespace culet
