// Sessions as a server uses them, on the CUDA dispatch: sums that the model never saw, in batches;
// sequences that come and go, cancelled steps, and memory that stays.
#pragma once

#include <chrono>
#include <cstdlib>

#include "cases.h"
#include "tests/asan.h"
#include "tests/session_soak.h"
#include "tests/sums.h"

namespace culet {

class CudaSessions : public testing::Test {
 protected:
  void SetUp() override {
    test_ = MakeTestDispatch({});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
    auto model = DecoderModel::Load(std::string(CULET_SOURCE_DIR) + "/examples/adder",
                                    test_.dispatch->memory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
  }

  Session MakeSession(const SessionOptions& options) {
    auto session = Session::Create(*model_, *test_.dispatch, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  // The CPU that stands in for a GPU takes a hundred times as long.
  static constexpr int kEmulatedSums = kSanitized ? 4 : 12, kEmulatedRounds = kSanitized ? 30 : 60;
  bool emulated() const { return test_.dispatch->memory().reads_host_memory(); }

  TestDispatch test_;
  std::unique_ptr<DecoderModel> model_;
};

TEST_F(CudaSessions, SumsThatTheModelNeverSaw) {
  const std::vector<Sum> sums = FreshSums(emulated() ? kEmulatedSums : 500);
  constexpr int kBatch = 50;
  Session session =
      MakeSession({.max_sequences = kBatch, .max_context = 32, .max_step_tokens = kBatch * 14});
  const auto [right, wrong] = AnswerSums(session, sums, kBatch);
  EXPECT_GE(right, kLeastRight * static_cast<double>(sums.size())) << wrong;
}

// The same sums over an E4M3 cache.
TEST_F(CudaSessions, SumsOverACacheOfE4m3) {
  const std::vector<Sum> sums = FreshSums(emulated() ? kEmulatedSums : 500);
  constexpr int kBatch = 50;
  Session session = MakeSession({.max_sequences = kBatch,
                                 .max_context = 32,
                                 .max_step_tokens = kBatch * 14,
                                 .cache_type = DataType::kFloat8_e4m3});
  const auto [right, wrong] = AnswerSums(session, sums, kBatch);
  EXPECT_GE(right, kLeastRight * static_cast<double>(sums.size())) << wrong;
}

// For as long as CULET_SOAK_SECONDS says, or some rounds.
TEST_F(CudaSessions, ComeAndGo) {
  Session session = MakeSession(
      {.max_sequences = 9, .max_context = 32, .block_size = 4, .max_step_tokens = 9 * 14});
  SessionSoak soak(session, 2);
  using Clock = std::chrono::steady_clock;
  const char* const text = std::getenv("CULET_SOAK_SECONDS");
  const double seconds = text != nullptr ? std::atof(text) : 0;
  const int rounds = emulated() ? kEmulatedRounds : 2000;
  const auto start = Clock::now();
  const auto done = [&](int round) {
    if (seconds == 0) return static_cast<double>(round) / rounds;
    return std::chrono::duration<double>(Clock::now() - start).count() / seconds;
  };
  std::optional<std::size_t> free_then;
  for (int round = 0; done(round) < 1; ++round) {
    const Status status = soak.Round();
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.ToString();
    // Every shape of a step has come by then, and its recording is kept.
    if (!free_then && done(round) > 0.5) free_then = test_.dispatch->memory().free_bytes();
  }
  ASSERT_TRUE(soak.End().ok());
  const auto free_now = test_.dispatch->memory().free_bytes();
  const SoakCounts& counts = soak.counts();
  std::printf("sessions: %ld steps, %ld decodes, %ld cancelled, %ld of %ld answers right\n",
              long{counts.steps}, long{counts.decodes}, long{counts.cancelled}, long{counts.right},
              long{counts.answered});
  EXPECT_GT(counts.steps, 0);
  EXPECT_GT(counts.cancelled, 0);
  EXPECT_GE(static_cast<double>(counts.right), kLeastRight * static_cast<double>(counts.answered));
  // Of the host's memory other programs take what they like.
  if (!free_then || !free_now || emulated()) return;
  std::printf("sessions: %zu bytes of the device free at half time, %zu at the end\n", *free_then,
              *free_now);
  EXPECT_GE(*free_now, *free_then);
}

}  // namespace culet
