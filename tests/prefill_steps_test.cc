// Prompts that are read together are one batch: as many steps as their tokens fill, whatever the
// number of sequences.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

// The tokens of each step that reads prompts of these lengths.
std::vector<std::int64_t> StepsOf(const std::vector<std::size_t>& lengths, int max_step_tokens) {
  const std::string folder = OwnGoldens("llama-linear");
  const auto tokens = ReadGoldens(folder)->input_ids;
  const auto model = *DecoderModel::Load(folder, HostMemory());
  const auto dispatch = MakeReferenceDispatch();
  Session session = *Session::Create(model, *dispatch,
                                     {.max_sequences = static_cast<int>(lengths.size()),
                                      .max_context = 32,
                                      .max_step_tokens = max_step_tokens});
  std::vector<std::int64_t> steps;
  session.SetHook([&](KernelDispatch& to, const NodeLaunch& launch) {
    if (launch.node().op == TensorOp::kEmbedding) steps.push_back(launch.node().shape.rows);
    return to.launch(launch);
  });
  std::vector<SequenceTokens> batch;
  for (const std::size_t length : lengths) {
    batch.push_back({*session.AddSequence(), std::span(tokens).first(length)});
  }
  EXPECT_TRUE(session.Prefill(batch).ok());
  return steps;
}

TEST(PrefillSteps, PromptsTogetherAreOneStep) {
  EXPECT_EQ(StepsOf({5}, 512), std::vector<std::int64_t>{5});
  EXPECT_EQ(StepsOf({5, 1, 7, 3}, 512), std::vector<std::int64_t>{16});
}

// Where nobody says: as the dispatch prefers, and a step of every sequence has room.
TEST(PrefillSteps, TokensOfAStepAreTheDispatchs) {
  const auto model = *DecoderModel::Load(OwnGoldens("llama-linear"), HostMemory());
  const auto dispatch = MakeReferenceDispatch();
  for (const int sequences : {1, 600}) {
    const Session session = *Session::Create(
        model, *dispatch,
        {.max_sequences = sequences, .max_context = 8, .block_size = 8, .cache_blocks = 1});
    EXPECT_EQ(session.options().max_step_tokens, sequences == 1 ? 512 : 600);
  }
}

TEST(PrefillSteps, PiecesAreFilledAcrossPrompts) {
  EXPECT_EQ(StepsOf({5, 1, 7, 3}, 6), (std::vector<std::int64_t>{6, 6, 4}));
}

}  // namespace
}  // namespace culet
