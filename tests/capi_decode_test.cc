// culet_session_decode against culet_session_step.
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/culet.h"
#include "decoder_fixture.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
T Sized() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

class CDecode : public testing::Test {
 protected:
  void SetUp() override {
    auto engine = Sized<culet_engine_options>();
    engine.cache_path = "off";
    ASSERT_EQ(culet_engine_create(&engine, &engine_), CULET_OK) << culet_last_error();
    ASSERT_EQ(
        culet_model_load(engine_, culet::OwnGoldens("llama-linear").c_str(), nullptr, &model_),
        CULET_OK)
        << culet_last_error();
    auto options = Sized<culet_session_options>();
    options.max_sequences = 2;
    options.max_context = 16;
    ASSERT_EQ(culet_session_create(model_, &options, &session_), CULET_OK) << culet_last_error();
    for (std::int32_t& sequence : sequences_) {
      ASSERT_EQ(culet_session_add(session_, &sequence), CULET_OK);
    }
  }
  void TearDown() override {
    culet_session_destroy(session_);
    culet_model_destroy(model_);
    culet_engine_destroy(engine_);
  }

  culet_batch Batch(const std::int32_t* tokens) {
    auto batch = Sized<culet_batch>();
    batch.count = 2;
    batch.sequences = sequences_;
    batch.tokens = tokens;
    return batch;
  }
  int LengthOf(std::int32_t sequence) {
    std::int32_t length = -1;
    EXPECT_EQ(culet_session_sequence(session_, sequence, &length, nullptr), CULET_OK);
    return length;
  }

  culet_engine* engine_ = nullptr;
  culet_model* model_ = nullptr;
  culet_session* session_ = nullptr;
  std::int32_t sequences_[2] = {-1, -1};
  const std::int32_t begin_[2] = {3, 9};
};

TEST_F(CDecode, GivesTheTokensOfStepsAndTheirEnds) {
  std::vector<std::int32_t> expected[2];
  std::int32_t next[2] = {begin_[0], begin_[1]};
  for (int step = 0; step < 16; ++step) {
    const std::int32_t given[2] = {next[0], next[1]};
    const culet_batch batch = Batch(given);
    auto outputs = Sized<culet_outputs>();
    outputs.next = next;
    ASSERT_EQ(culet_session_step(session_, &batch, &outputs), CULET_OK) << culet_last_error();
    for (int i = 0; i < 2; ++i) expected[i].push_back(next[i]);
  }
  for (const std::int32_t sequence : sequences_) {
    ASSERT_EQ(culet_session_truncate(session_, sequence, 0), CULET_OK);
  }
  const culet_batch batch = Batch(begin_);
  auto options = Sized<culet_decode_options>();
  options.steps = 20;
  std::vector<std::int32_t> tokens(40, -7);
  std::int32_t made[2] = {}, ends[2] = {};
  ASSERT_EQ(culet_session_decode(session_, &batch, &options, tokens.data(), made, ends), CULET_OK)
      << culet_last_error();
  EXPECT_THAT(made, ElementsAre(16, 16));
  EXPECT_THAT(ends, ElementsAre(CULET_DECODE_NO_ROOM, CULET_DECODE_NO_ROOM));
  for (std::size_t i = 0; i < 2; ++i) {
    const auto row = tokens.begin() + static_cast<std::ptrdiff_t>(20 * i);
    EXPECT_EQ(std::vector(row, row + 16), expected[i]);
    EXPECT_EQ(row[16], -7);
  }

  // One ends by a token, the other by the callback.
  for (const std::int32_t sequence : sequences_) {
    ASSERT_EQ(culet_session_truncate(session_, sequence, 0), CULET_OK);
  }
  options.steps = 10;
  options.end_tokens = &expected[0][0];
  options.end_token_count = 1;
  int calls = 0;
  options.context = &calls;
  options.on_token = [](void* context, std::int32_t part, std::int32_t) -> std::int32_t {
    return part == 1 && ++*static_cast<int*>(context) == 2 ? 1 : 0;
  };
  ASSERT_EQ(culet_session_decode(session_, &batch, &options, nullptr, made, ends), CULET_OK)
      << culet_last_error();
  EXPECT_EQ(made[0], 1);
  EXPECT_EQ(ends[0], CULET_DECODE_END_TOKEN);
  EXPECT_LE(made[1], 2);
  EXPECT_EQ(LengthOf(sequences_[0]), 1);
  EXPECT_EQ(LengthOf(sequences_[1]), made[1]);
}

TEST_F(CDecode, RefusesBadInput) {
  const culet_batch batch = Batch(begin_);
  auto options = Sized<culet_decode_options>();
  const auto decode = [&] {
    return culet_session_decode(session_, &batch, &options, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(decode(), CULET_INVALID_ARGUMENT);
  EXPECT_THAT(culet_last_error(), HasSubstr("steps"));
  options.steps = 1;
  options.end_token_count = 2;
  EXPECT_EQ(decode(), CULET_INVALID_ARGUMENT);
  EXPECT_THAT(culet_last_error(), HasSubstr("end_tokens"));
  options.end_token_count = -1;
  EXPECT_EQ(decode(), CULET_INVALID_ARGUMENT);
  options.end_token_count = 0;
  EXPECT_EQ(decode(), CULET_OK) << culet_last_error();
  EXPECT_EQ(culet_session_decode(session_, &batch, nullptr, nullptr, nullptr, nullptr),
            CULET_INVALID_ARGUMENT);
  EXPECT_EQ(culet_session_decode(nullptr, &batch, &options, nullptr, nullptr, nullptr),
            CULET_INVALID_ARGUMENT);
}

}  // namespace
