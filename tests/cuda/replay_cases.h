// Decoding on a dispatch: recorded steps against others, Session::Decode against steps, ends and
// errors in its midst. The file that includes this says where it runs: it defines MakeTestDispatch.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "cases.h"
#include "culet/decoder.h"

namespace culet {

class Decoding : public testing::Test {
 protected:
  void SetUp() override {
    test_ = MakeTestDispatch({});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
    const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
      "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96})",
                                           "config");
    auto model = DecoderModel::Random(*config, DataType::kBfloat16, test_.dispatch->memory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
  }

  Session MakeSession(SessionOptions options) {
    auto session = Session::Create(*model_, *test_.dispatch, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  /// Sequences with prompts of different lengths, and the token that each reads next.
  std::vector<SequenceTokens> Begin(Session& session, int count) {
    prompts_.clear();
    std::vector<SequenceTokens> batch;
    for (int i = 0; i < count; ++i) {
      prompts_.emplace_back();
      for (int j = 0; j < 3 + 2 * i; ++j) prompts_.back().push_back((j * 37 + i * 11) % 319);
    }
    for (const auto& prompt : prompts_) {
      batch.push_back({*session.AddSequence(), prompt});
      if (!draws_ || batch.size() == 2) continue;  // the second one is greedy
      const auto drawn = session.SetSampling(batch.back().sequence,
                                             {.temperature = 1.5f, .seed = 7 + batch.size()});
      EXPECT_TRUE(drawn.ok()) << drawn.ToString();
    }
    const auto result = session.Prefill(batch);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    first_ = result->next;
    for (std::size_t i = 0; i < batch.size(); ++i) batch[i].tokens = {&first_[i], 1};
    return batch;
  }

  /// What Steps make of it, one by one.
  std::vector<std::vector<std::int32_t>> BySteps(const SessionOptions& options, int count,
                                                 int steps) {
    Session session = MakeSession(options);
    std::vector<SequenceTokens> batch = Begin(session, count);
    std::vector<std::int32_t> next = first_;
    std::vector<std::vector<std::int32_t>> made(batch.size());
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < batch.size(); ++i) batch[i].tokens = {&next[i], 1};
      const auto result = session.Step(batch);
      EXPECT_TRUE(result.ok()) << result.status().ToString();
      if (!result.ok()) return made;
      next = result->next;
      for (std::size_t i = 0; i < batch.size(); ++i) made[i].push_back(next[i]);
    }
    return made;
  }

  static SessionOptions Options(int sequences) {
    return {.max_sequences = sequences, .max_context = 64, .block_size = 4};
  }

  TestDispatch test_;
  bool draws_ = false;  // whether tokens are drawn
  std::unique_ptr<DecoderModel> model_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<std::int32_t> first_;
};

// A sequence in the midst of its blocks, one at the end of a block, one at the end of all, one of
// padding, one with a NaN.
TEST_F(Decoding, AdvanceMakesTheNextStepsInputs) {
  DeviceMemory& memory = test_.dispatch->memory();
  std::vector<float> logits(5 * 6, 0.5f);
  logits[4 * 6 + 3] = kNaN;
  std::vector<std::int32_t> ints[] = {
      std::vector<std::int32_t>(10, 77),                   // log (2, 5)
      {1, 2, 5, 0, 3},                                     // tokens
      {9, 9, 9, 9, 9},                                     // ids
      {4, 7, 11, 0, 2},                                    // positions
      {5 * 4, 1 * 4 + 3, 2 * 4 + 3, -1, 3 * 4 + 2},        // slots
      {5, 8, 12, 1, 3},                                    // lengths
      {0, 5, 6, 8, 1, 9, 7, 2, 2, 4, -1, -1, 3, -1, -1}};  // table (5, 3)
  const Shape shapes[] = {{2, 5}, {5, 1}, {5, 1}, {5, 1}, {5, 1}, {5, 1}, {5, 3}};
  std::vector<DeviceBuffer> buffers;
  ComputeGraph graph;
  std::vector<int> leaves;
  for (std::size_t i = 0; i < 7; ++i) {
    buffers.push_back(*DeviceBuffer::Create(memory, ints[i].size() * 4));
    ASSERT_TRUE(memory.Upload(buffers[i].get(), ints[i].data(), ints[i].size() * 4, nullptr).ok());
    leaves.push_back(graph.add_leaf(buffers[i].get(), shapes[i], DataType::kInt32));
  }
  const auto of_logits = DeviceBuffer::Create(memory, logits.size() * 4);
  ASSERT_TRUE(memory.Upload(of_logits->get(), logits.data(), logits.size() * 4, nullptr).ok());
  leaves.insert(leaves.begin() + 2, graph.add_leaf(of_logits->get(), {5, 6}));
  OpParams params;
  params.attention.block_size = 4;
  graph.add_op(TensorOp::kAdvance, 0, {2, 5}, leaves, params, "", DataType::kInt32);
  const auto ran = execute_graph(graph, *test_.dispatch);
  ASSERT_TRUE(ran.ok()) << ran.status().ToString();
  const std::vector<std::int32_t> expected[] = {
      {1, 77, 77, 77, -1, 77, 2, 5, 77, 77}, {1, 2, 5, 0, 3},  {1, 2, 5, 9, 3}, {5, 8, 12, 0, 3},
      {5 * 4 + 1, 9 * 4, -1, -1, 3 * 4 + 3}, {6, 9, 13, 1, 4}, ints[6]};
  for (std::size_t i = 0; i < 7; ++i) {
    std::vector<std::int32_t> value(expected[i].size());
    ASSERT_TRUE(memory.Download(value.data(), buffers[i].get(), value.size() * 4, nullptr).ok());
    EXPECT_EQ(value, expected[i]) << "input " << i;
  }
}

TEST_F(Decoding, GivesTheTokensOfSteps) {
  for (const int count : {1, 3, 5}) {
    for (const int run : {0, 1, 2}) {
      const bool record = run != 1;
      draws_ = run == 2;
      SessionOptions options = Options(count);
      options.record = record;
      const auto expected = BySteps(options, count, 24);
      Session session = MakeSession(options);
      const auto batch = Begin(session, count);
      std::vector<std::vector<std::int32_t>> heard(batch.size());
      const auto made = session.Decode(
          batch, {.steps = 24, .on_token = [&](std::size_t part, std::int32_t token) {
                    heard[part].push_back(token);
                    return true;
                  }});
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      for (std::size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ((*made)[i].tokens, expected[i]) << count << " sequences";
        EXPECT_EQ((*made)[i].end, DecodeEnd::kSteps);
        EXPECT_EQ(heard[i], expected[i]);
        EXPECT_EQ(*session.LengthOf(batch[i].sequence), 3 + 2 * static_cast<int>(i) + 24);
      }
    }
  }
}

TEST_F(Decoding, ReplaysGiveTheBitsOfLaunchesOneByOne) {
  std::vector<float> logits[2];
  for (const bool record : {false, true}) {
    SessionOptions options = Options(3);
    options.record = record;
    Session session = MakeSession(options);
    std::vector<SequenceTokens> batch = Begin(session, 3);
    std::vector<std::int32_t> next = first_;
    for (int step = 0; step < 8; ++step) {
      for (std::size_t i = 0; i < batch.size(); ++i) batch[i].tokens = {&next[i], 1};
      const auto result = session.Step(batch, {.logits = true});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      next = result->next;
      logits[record].insert(logits[record].end(), result->logits.begin(), result->logits.end());
    }
    EXPECT_EQ(session.last_executor()->replays(), record && test_.dispatch->records(nullptr))
        << session.last_executor()->why_not_recorded();
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// What ran ahead of an end is taken back, and the sequences can go on.
TEST_F(Decoding, EndsInTheMiddle) {
  constexpr int kCount = 5, kSteps = 20;
  const auto expected = BySteps(Options(kCount), kCount, kSteps);
  Session session = MakeSession(Options(kCount));
  const auto batch = Begin(session, kCount);
  const std::int32_t end_token = expected[1][6];
  const auto made =
      session.Decode(batch, {.steps = kSteps,
                             .end_tokens = {end_token},
                             .on_token = [&, n = 0](std::size_t part, std::int32_t) mutable {
                               return part != 3 || ++n < 4;
                             }});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto at = std::ranges::find(expected[i], end_token);
    auto count = static_cast<std::size_t>(at - expected[i].begin()) + 1;
    DecodeEnd end = DecodeEnd::kEndToken;
    if (at == expected[i].end()) count = kSteps, end = DecodeEnd::kSteps;
    if (i == 3 && count > 4) count = 4, end = DecodeEnd::kStopped;
    EXPECT_EQ((*made)[i].end, end) << "sequence " << i;
    EXPECT_EQ(
        (*made)[i].tokens,
        std::vector(expected[i].begin(), expected[i].begin() + static_cast<std::ptrdiff_t>(count)));
    EXPECT_EQ(*session.LengthOf(batch[i].sequence),
              3 + 2 * static_cast<int>(i) + static_cast<int>(count));
  }
  // The stopped one goes on where it was.
  const std::vector<std::int32_t>& stopped = (*made)[3].tokens;
  const SequenceTokens rest{batch[3].sequence, {&stopped.back(), 1}};
  const int more = kSteps - static_cast<int>(stopped.size());
  const auto went_on = session.Decode({&rest, 1}, {.steps = more});
  ASSERT_TRUE(went_on.ok()) << went_on.status().ToString();
  std::vector<std::int32_t> all = stopped;
  all.insert(all.end(), (*went_on)[0].tokens.begin(), (*went_on)[0].tokens.end());
  EXPECT_EQ(all, expected[3]);
}

TEST_F(Decoding, AGateInTheMiddleLeavesWhatWasDelivered) {
  const auto expected = BySteps(Options(2), 2, 12);
  Session session = MakeSession(Options(2));
  const auto batch = Begin(session, 2);
  std::vector<std::vector<std::int32_t>> heard(2);
  session.SetGate([&]() -> Status {
    return heard[1].size() < 5 ? Status() : Status(StatusCode::kFailedPrecondition, "enough");
  });
  const auto stopped =
      session.Decode(batch, {.steps = 12, .on_token = [&](std::size_t part, std::int32_t token) {
                               heard[part].push_back(token);
                               return true;
                             }});
  EXPECT_EQ(stopped.status().code(), StatusCode::kFailedPrecondition);
  session.SetGate(nullptr);
  std::vector<SequenceTokens> rest;
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(heard[i].size(), 5u);
    EXPECT_EQ(*session.LengthOf(batch[i].sequence), 3 + 2 * static_cast<int>(i) + 5);
    rest.push_back({batch[i].sequence, {&heard[i].back(), 1}});
  }
  const auto made = session.Decode(rest, {.steps = 7});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  for (std::size_t i = 0; i < 2; ++i) {
    heard[i].insert(heard[i].end(), (*made)[i].tokens.begin(), (*made)[i].tokens.end());
    EXPECT_EQ(heard[i], expected[i]);
  }
}

// Six blocks of four: 3 and 5 positions at first, and then as many as both can have.
TEST_F(Decoding, OutOfTheCacheInTheMiddle) {
  const auto expected = BySteps(Options(2), 2, 20);
  SessionOptions options = Options(2);
  options.cache_blocks = 6;
  Session session = MakeSession(options);
  const auto batch = Begin(session, 2);
  const auto made = session.Decode(batch, {.steps = 20});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  // Both take 3 of the blocks' rows together; then who comes first has the last block.
  int blocks = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<std::int32_t>& tokens = (*made)[i].tokens;
    EXPECT_EQ((*made)[i].end, DecodeEnd::kNoRoom);
    EXPECT_EQ(tokens,
              std::vector(expected[i].begin(),
                          expected[i].begin() + static_cast<std::ptrdiff_t>(tokens.size())));
    const int length = *session.LengthOf(batch[i].sequence);
    EXPECT_EQ(length, 3 + 2 * static_cast<int>(i) + static_cast<int>(tokens.size()));
    EXPECT_EQ(length % 4, 0);
    blocks += length / 4;
  }
  EXPECT_EQ(blocks, 6);
  ASSERT_TRUE(session.RemoveSequence(batch[0].sequence).ok());
  const SequenceTokens rest{batch[1].sequence, {&(*made)[1].tokens.back(), 1}};
  EXPECT_TRUE(session.Decode({&rest, 1}, {.steps = 2}).ok());
}

TEST_F(Decoding, MaxContextEndsASequenceAndTheOthersGoOn) {
  SessionOptions options = Options(2);
  options.max_context = 12;
  Session session = MakeSession(options);
  const auto batch = Begin(session, 2);
  const auto made = session.Decode(batch, {.steps = 8});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ((*made)[0].tokens.size(), 8u);
  EXPECT_EQ((*made)[0].end, DecodeEnd::kSteps);
  EXPECT_EQ((*made)[1].tokens.size(), 7u);
  EXPECT_EQ((*made)[1].end, DecodeEnd::kNoRoom);
}

TEST_F(Decoding, GivesReservedBlocksBack) {
  SessionOptions options = Options(2);
  options.cache_blocks = 16;
  Session session = MakeSession(options);
  const auto batch = Begin(session, 1);
  const int other = *session.AddSequence(), room = *session.RoomOf(other);
  const auto made = session.Decode(
      batch, {.steps = 30, .on_token = [](std::size_t, std::int32_t) { return false; }});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(*session.LengthOf(batch[0].sequence), 4);  // in the block that it had
  EXPECT_EQ(*session.RoomOf(other), room);
}

TEST_F(Decoding, RefusesWhatItCannotDecode) {
  Session session = MakeSession(Options(2));
  const auto batch = Begin(session, 1);
  EXPECT_EQ(session.Decode(batch, {.steps = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Decode({}, {}).status().code(), StatusCode::kInvalidArgument);
  const std::int32_t two[] = {1, 2};
  const SequenceTokens long_part{batch[0].sequence, two};
  EXPECT_EQ(session.Decode({&long_part, 1}, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Decode({&long_part, 1}, {}).status().code(), StatusCode::kInvalidArgument);
  const auto thrown = session.Decode(batch, {.steps = 3, .on_token = [](std::size_t, std::int32_t) {
                                               if (true) throw std::runtime_error("no");
                                               return true;
                                             }});
  EXPECT_EQ(thrown.status().code(), StatusCode::kInternal);
  EXPECT_TRUE(session.Decode(batch, {}).ok());
}

// A weight that is NaN: the step's error names the node.
TEST_F(Decoding, ANaNIsFoundWithItsNode) {
  Session session = MakeSession(Options(3));
  const auto batch = Begin(session, 3);
  DeviceMemory& memory = test_.dispatch->memory();
  const Weight& down = model_->weights().layers.back().down;
  std::vector<std::byte> good(static_cast<std::size_t>(BytesOf(down)));
  ASSERT_TRUE(memory.Download(good.data(), down.data_ptr, good.size(), nullptr).ok());
  int calls = 0;
  const auto spoiled = session.Decode(
      batch, {.steps = 9, .on_token = [&](std::size_t, std::int32_t) {
                if (++calls == 6) {
                  std::vector<std::byte> bad = good;
                  StoreFromDouble(bad.data(), down.type, 3, std::nan(""));
                  EXPECT_TRUE(memory.Upload(down.data_ptr, bad.data(), bad.size(), nullptr).ok());
                }
                return true;
              }});
  EXPECT_EQ(spoiled.status().code(), StatusCode::kDataLoss) << spoiled.status().ToString();
  EXPECT_THAT(spoiled.status().message(), testing::HasSubstr("layers.1."));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GE(*session.LengthOf(batch[i].sequence), 3 + 2 * static_cast<int>(i) + 2);
  }
  ASSERT_TRUE(memory.Upload(down.data_ptr, good.data(), good.size(), nullptr).ok());
  ASSERT_TRUE(memory.Synchronize(nullptr).ok());
  EXPECT_TRUE(session.Decode(batch, {.steps = 3}).ok());
}

TEST_F(Decoding, TwoSessionsTakeTurns) {
  const auto expected = BySteps(Options(1), 1, 12);
  Session one = MakeSession(Options(1)), other = MakeSession(Options(1));
  auto first = Begin(one, 1);
  const std::int32_t begin = first_[0];
  auto second = Begin(other, 1);
  std::vector<std::int32_t> a, b;
  for (int turn = 0; turn < 4; ++turn) {
    for (auto [session, batch, tokens] :
         {std::tuple(&one, &first, &a), std::tuple(&other, &second, &b)}) {
      const std::int32_t last = tokens->empty() ? begin : tokens->back();
      (*batch)[0].tokens = {&last, 1};
      const auto made = session->Decode(*batch, {.steps = 3});
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      tokens->insert(tokens->end(), (*made)[0].tokens.begin(), (*made)[0].tokens.end());
    }
  }
  EXPECT_EQ(a, expected[0]);
  EXPECT_EQ(b, expected[0]);
}

}  // namespace culet
