// examples/adder, a trained model, answers sums that it never saw in training.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"

namespace culet {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int kSums = 100;
#else
constexpr int kSums = 500;
#endif
constexpr int kBatch = 50;
constexpr int kMostTokens = 8;  // seven digits and the line end
constexpr double kLeastRight = 0.98;

struct Sum {
  std::int64_t a, b;
  std::string Prompt() const { return std::to_string(a) + "+" + std::to_string(b) + "="; }
  std::string Answer() const { return std::to_string(a + b) + "\n"; }
};

// As held_out in examples/adder/train.py.
bool IsHeldOut(const Sum& sum) { return (sum.a * 7919 + sum.b) % 64 == 0; }

// Numbers of one to six digits; half of the pairs have a run of digits that hand a carry on.
std::vector<Sum> FreshSums(int count) {
  std::mt19937_64 random(20261121);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  const auto limit = [&] {
    std::int64_t power = 1;
    for (std::int64_t digits = below(6) + 1; digits > 0; --digits) power *= 10;
    return power;
  };
  std::vector<Sum> sums;
  while (sums.size() < static_cast<std::size_t>(count)) {
    const std::int64_t most = limit();
    Sum sum{below(most), below(limit())};
    if (below(2) == 0) sum.b = most - 1 - sum.a + below(10);
    if (sum.b < 1000000 && IsHeldOut(sum)) sums.push_back(sum);
  }
  return sums;
}

// The greedy continuations of a batch, each to its line end.
std::vector<std::string> Continue(Session& session, const std::vector<std::string>& prompts) {
  std::vector<std::vector<std::int32_t>> next;
  std::vector<int> sequences;
  for (const std::string& prompt : prompts) {
    sequences.push_back(*session.AddSequence());
    next.emplace_back(prompt.begin(), prompt.end());
  }
  std::vector<std::string> answers(prompts.size());
  for (int i = 0; i < kMostTokens; ++i) {
    std::vector<SequenceTokens> batch;
    std::vector<std::size_t> active;
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      if (answers[s].ends_with('\n')) continue;
      batch.push_back({sequences[s], next[s]});
      active.push_back(s);
    }
    if (batch.empty()) break;
    const auto result = session.Step(batch);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    if (!result.ok()) break;
    for (std::size_t j = 0; j < active.size(); ++j) {
      next[active[j]] = {result->next[j]};
      answers[active[j]].push_back(static_cast<char>(result->next[j]));
    }
  }
  for (const int sequence : sequences) EXPECT_TRUE(session.RemoveSequence(sequence).ok());
  return answers;
}

TEST(Adder, AddsWhatItNeverSaw) {
  const auto model =
      DecoderModel::Load(std::string(CULET_SOURCE_DIR) + "/examples/adder", HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok()) << gemm.status().ToString();
  const auto dispatch = MakeCpuDispatch(*gemm);
  auto session =
      Session::Create(*model, *dispatch,
                      {.max_sequences = kBatch, .max_context = 32, .max_step_tokens = kBatch * 14});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<Sum> sums = FreshSums(kSums);
  int right = 0;
  std::string wrong;
  for (std::size_t i = 0; i < sums.size(); i += kBatch) {
    std::vector<std::string> prompts;
    for (std::size_t j = i; j < i + kBatch; ++j) prompts.push_back(sums[j].Prompt());
    const std::vector<std::string> answers = Continue(*session, prompts);
    for (std::size_t j = 0; j < answers.size(); ++j) {
      if (answers[j] == sums[i + j].Answer()) {
        ++right;
      } else {
        wrong += prompts[j] + answers[j];
      }
    }
  }
  RecordProperty("right", right);
  EXPECT_GE(right, kLeastRight * kSums) << wrong;
}

}  // namespace
}  // namespace culet
