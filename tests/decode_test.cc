// Session::Decode on the CPU's kernels, and padding on the reference, where it may change no bit.
#include "cpu_test_dispatch.h"
#include "cuda/replay_cases.h"
#include "culet/dispatch.h"
#include "idle_dispatch.h"

namespace culet {
namespace {

class Padded : public Decoding {
 protected:
  void SetUp() override {
    Decoding::SetUp();
    test_.dispatch = MakeReferenceDispatch();
  }
};

TEST_F(Padded, PaddingChangesNoBits) {
  std::vector<float> logits[2];
  std::vector<std::int32_t> tokens[2];
  for (const bool padded : {false, true}) {
    SessionOptions options = Options(7);
    options.padding = padded ? StepPadding::kBuckets : StepPadding::kNone;
    Session session = MakeSession(options);
    std::vector<SequenceTokens> batch = Begin(session, 5);  // 35 tokens, 5 sequences
    const auto result = session.Step(batch, {.logits = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    logits[padded] = result->logits;
    EXPECT_EQ(session.last_executor()->graph().node(0).shape.rows, padded ? 7 : 5);
    for (std::size_t i = 0; i < batch.size(); ++i) batch[i].tokens = {&result->next[i], 1};
    const auto made = session.Decode(batch, {.steps = 10});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    for (const DecodedTokens& one : *made) {
      tokens[padded].insert(tokens[padded].end(), one.tokens.begin(), one.tokens.end());
    }
    const std::vector<std::int32_t> prompt = {7, 8, 9, 10, 11, 12, 13};
    const auto read = session.Prefill(*session.AddSequence(), prompt, {.logits = true});
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    logits[padded].insert(logits[padded].end(), read->logits.begin(), read->logits.end());
    EXPECT_EQ(session.last_executor()->graph().node(0).shape.rows, padded ? 8 : 7);
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(tokens[0], tokens[1]);
}

// Graphs for few keys and for many, where the longest sequence is not the last.
TEST_F(Decoding, PaddedContextsGrow) {
  std::vector<float> logits[2];
  std::vector<std::int32_t> tokens[2], prompt(1020), other = {4, 5, 6};
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<std::int32_t>(i * i % 311);
  }
  for (const bool padded : {false, true}) {
    Session session = MakeSession({.max_sequences = 2,
                                   .max_context = 2100,
                                   .block_size = 16,
                                   .padding = padded ? StepPadding::kBuckets : StepPadding::kNone});
    const SequenceTokens prompts[] = {{*session.AddSequence(), prompt},
                                      {*session.AddSequence(), other}};
    const auto read = session.Prefill(prompts);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    std::vector<std::int32_t> next = read->next;
    const auto batch = [&] {
      return std::vector<SequenceTokens>{{prompts[0].sequence, {&next[0], 1}},
                                         {prompts[1].sequence, {&next[1], 1}}};
    };
    // To both sides of 1024, and of the block behind it, by steps, then the same way in one.
    constexpr int kSteps = 24;
    for (int step = 0; step < kSteps; ++step) {
      const auto result = session.Step(batch(), {.logits = true});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      next = result->next;
      logits[padded].insert(logits[padded].end(), result->logits.begin(), result->logits.end());
    }
    ASSERT_TRUE(session.Truncate(prompts[0].sequence, 1020).ok());
    const auto made = session.Decode(batch(), {.steps = kSteps});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    for (const DecodedTokens& one : *made) {
      EXPECT_EQ(one.tokens.size(), 24u);
      tokens[padded].insert(tokens[padded].end(), one.tokens.begin(), one.tokens.end());
    }
    const ComputeGraph& graph = session.last_executor()->graph();
    std::int64_t blocks = 0;
    for (const TensorNode& node : graph.nodes()) {
      if (node.op == TensorOp::kAttention) blocks = graph.node(node.inputs[6]).shape.cols;
    }
    EXPECT_EQ(blocks, padded ? 129 : 132);  // of 16 positions
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(tokens[0], tokens[1]);
}

// The rows of padding see a key that is a number, whatever the cache's memory held.
TEST_F(Padded, RowsOfPaddingAreNumbers) {
  SessionOptions options = Options(7);
  options.padding = StepPadding::kBuckets;
  Session session = MakeSession(options);
  std::vector<SequenceTokens> batch = Begin(session, 5);
  session.SetHook([](KernelDispatch& dispatch, const NodeLaunch& launch) -> Status {
    CULET_RETURN_IF_ERROR(dispatch.launch(launch));
    const TensorNode& node = launch.node();
    if (node.op == TensorOp::kKvWrite || node.type != DataType::kFloat32) return {};
    for (std::int64_t i = 0; i < node.shape.rows * node.shape.cols; ++i) {
      EXPECT_FALSE(std::isnan(FromDevicePtr<const float>(launch.output)[i])) << launch.Describe();
    }
    return {};
  });
  EXPECT_TRUE(session.Step(batch).ok());
}

// The device's Advance is refused: the host makes each step's inputs.
TEST_F(Padded, WithoutAdvanceTheHostDoesIt) {
  class Without final : public IdleDispatch {
   public:
    explicit Without(KernelDispatch& to) : to_(to) {}
    Feasibility supports(const ComputeGraph& graph, int id) const override {
      return graph.node(id).op == TensorOp::kAdvance ? Feasibility::Refuse("no advance")
                                                     : to_.supports(graph, id);
    }
    Status launch(const NodeLaunch& launch) override { return to_.launch(launch); }

   private:
    KernelDispatch& to_;
  };
  const auto expected = BySteps(Options(3), 3, 9);
  Without without(*test_.dispatch);
  for (const StepPadding padding : {StepPadding::kNone, StepPadding::kBuckets}) {
    SessionOptions options = Options(3);
    options.padding = padding;
    auto session = Session::Create(*model_, without, options);
    ASSERT_TRUE(session.ok());
    const auto batch = Begin(*session, 3);
    const auto made = session->Decode(batch, {.steps = 9});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ((*made)[i].tokens, expected[i]);
  }
}

}  // namespace
}  // namespace culet
