// Sums that examples/adder never saw in training.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"

namespace culet {

inline constexpr int kMostAnswer = 8;  // tokens: seven digits and the line end
inline constexpr double kLeastRight = 0.98;

struct Sum {
  std::int64_t a, b;
  std::string Prompt() const { return std::to_string(a) + "+" + std::to_string(b) + "="; }
  std::string Answer() const { return std::to_string(a + b) + "\n"; }
};

// As held_out in examples/adder/train.py.
inline bool IsHeldOut(const Sum& sum) { return (sum.a * 7919 + sum.b) % 64 == 0; }

// Numbers of one to six digits; half of the pairs have a run of digits that hand a carry on.
inline std::vector<Sum> FreshSums(int count) {
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
inline std::vector<std::string> Continue(Session& session,
                                         const std::vector<std::string>& prompts) {
  std::vector<std::vector<std::int32_t>> next;
  std::vector<int> sequences;
  for (const std::string& prompt : prompts) {
    sequences.push_back(*session.AddSequence());
    next.emplace_back(prompt.begin(), prompt.end());
  }
  std::vector<std::string> answers(prompts.size());
  for (int i = 0; i < kMostAnswer; ++i) {
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

/// How many of the sums a session answers right, `batch` at a time; then the others, with what it
/// answered.
inline std::pair<int, std::string> AnswerSums(Session& session, const std::vector<Sum>& sums,
                                              std::size_t batch) {
  std::pair<int, std::string> found;
  for (std::size_t i = 0; i < sums.size(); i += batch) {
    std::vector<std::string> prompts;
    for (std::size_t j = i; j < std::min(i + batch, sums.size()); ++j)
      prompts.push_back(sums[j].Prompt());
    const std::vector<std::string> answers = Continue(session, prompts);
    for (std::size_t j = 0; j < answers.size(); ++j) {
      if (answers[j] == sums[i + j].Answer()) {
        ++found.first;
      } else {
        found.second += prompts[j] + answers[j];
      }
    }
  }
  return found;
}

}  // namespace culet
