// Tokens drawn from logits: their shares, and what the options leave out.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sampling_math.h"
#include "culet/sampling.h"

namespace culet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kDraws = 200000;

// The share of each token in many draws.
std::vector<double> Shares(const std::vector<float>& logits, const SamplingOptions& options) {
  std::vector<double> shares(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    const auto token = SampleToken(logits, options, static_cast<std::uint64_t>(i));
    EXPECT_TRUE(token.ok()) << token.status().ToString();
    shares[static_cast<std::size_t>(*token)] += 1.0 / kDraws;
  }
  return shares;
}

// `shares` are those of weights; a weight of 0 is never drawn. The draws are the same every time.
void ExpectShares(const std::vector<double>& shares, const std::vector<double>& weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) {
      EXPECT_EQ(shares[i], 0) << i;
    } else {
      EXPECT_NEAR(shares[i], weights[i] / total, 0.005) << i;
    }
  }
}

std::vector<float> Logs(const std::vector<double>& weights) {
  std::vector<float> logits;
  for (const double weight : weights) logits.push_back(static_cast<float>(std::log(weight)) + 90);
  return logits;
}

TEST(Sampling, DrawsByProbability) {
  const std::vector<double> weights = {0.4, 0, 0.1, 0.3, 0.2};
  ExpectShares(Shares(Logs(weights), {.temperature = 1}), weights);
  ExpectShares(Shares(Logs(weights), {.temperature = 0.5f}), {0.16, 0, 0.01, 0.09, 0.04});
  ExpectShares(Shares(Logs(weights), {.temperature = 1e-6f}), {1, 0, 0, 0, 0});
}

TEST(Sampling, LeavesOutTheUnlikely) {
  const std::vector<float> logits = Logs({0.4, 0.05, 0.1, 0.3, 0.15});
  ExpectShares(Shares(logits, {.temperature = 1, .top_k = 2}), {0.4, 0, 0, 0.3, 0});
  ExpectShares(Shares(logits, {.temperature = 1, .top_k = 9}), {0.4, 0.05, 0.1, 0.3, 0.15});
  // The token that passes the bound is kept.
  ExpectShares(Shares(logits, {.temperature = 1, .top_p = 0.75f}), {0.4, 0, 0, 0.3, 0.15});
  ExpectShares(Shares(logits, {.temperature = 1, .top_p = 1e-6f}), {1, 0, 0, 0, 0});
  // Of 0.4, 0.3 and 0.15 the first two have 0.82.
  ExpectShares(Shares(logits, {.temperature = 1, .top_k = 3, .top_p = 0.8f}), {0.4, 0, 0, 0.3, 0});
  ExpectShares(Shares(logits, {.temperature = 1, .min_p = 0.3f}), {0.4, 0, 0, 0.3, 0.15});
  ExpectShares(Shares(logits, {.temperature = 1, .min_p = 1}), {1, 0, 0, 0, 0});
}

TEST(Sampling, OfEqualsTheFirstAreTheLikeliest) {
  const std::vector<float> logits = {2, 5, 5, 5};
  EXPECT_EQ(*SampleToken(logits, {}, 5), 1);
  ExpectShares(Shares(logits, {.temperature = 1, .top_k = 2}), {0, 1, 1, 0});
  ExpectShares(Shares({-kInfinity, 3, -kInfinity}, {.temperature = 2}), {0, 1, 0});
}

TEST(Sampling, ASeedRepeats) {
  const std::vector<float> logits = Logs(std::vector<double>(1000, 1));
  const auto drawn = [&](std::uint64_t seed, std::uint64_t draw) {
    return *SampleToken(logits, {.temperature = 1, .seed = seed}, draw);
  };
  int same = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(drawn(3, i), drawn(3, i));
    same += drawn(3, i) == drawn(4, i);
    same += drawn(3, i) == drawn(3, i + 1);
    same += drawn(3, i) == drawn(3 + (std::uint64_t{1} << 32), i);
    same += drawn(3, i) == drawn(3, i + (std::uint64_t{1} << 32));
  }
  EXPECT_LT(same, 8);  // one in a thousand by chance
}

// Blocks that the generator's authors publish.
TEST(Sampling, RandomBitsArePhilox) { EXPECT_EQ(sampling::RandomBits(0, 0), 0xe169c58d6627e8d5u); }

TEST(Sampling, WeightsArePowers) {
  for (int i = 0; i < 40000; ++i) {
    const float below = static_cast<float>(i) * 1e-3f;
    const auto weight = static_cast<double>(sampling::WeightOf(20 - below, 20, 1));
    const double exact = std::exp2(32 - (20.0 - static_cast<double>(20 - below)));
    EXPECT_NEAR(weight, exact, 2e-8 * exact + 1.01) << below;
  }
  EXPECT_EQ(sampling::WeightOf(7, 7, 3e38f), sampling::kOne);
  EXPECT_EQ(sampling::WeightOf(-kInfinity, 7, 1), 0u);
}

TEST(Sampling, ProductsKeepTheirUpperHalf) {
  EXPECT_EQ(sampling::MulHigh64(~std::uint64_t{0}, ~std::uint64_t{0}), ~std::uint64_t{0} - 1);
  EXPECT_EQ(sampling::MulHigh64(std::uint64_t{1} << 63, 6), 3u);
  EXPECT_EQ(sampling::MulHigh64(0x123456789abcdef0u, 0xfedcba9876543210u), 0x121fa00ad77d7422u);
  EXPECT_EQ(sampling::ShareOf((std::uint64_t{1} << 63) - 1, sampling::kOne),
            (std::uint64_t{1} << 63) - 1);
  EXPECT_EQ(sampling::ShareOf(1000, sampling::kOne / 4), 250u);
}

TEST(Sampling, RefusesWhatHasNoMeaning) {
  const std::vector<float> logits = {1, 2, 3};
  const auto refused = [&](const std::vector<float>& of, const SamplingOptions& options,
                           const char* words) {
    const auto token = SampleToken(of, options, 1);
    EXPECT_EQ(token.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(token.status().message(), testing::HasSubstr(words));
  };
  refused(logits, {.temperature = -1}, "temperature is -1");
  refused(logits, {.temperature = NAN}, "temperature is nan");
  refused(logits, {.temperature = kInfinity}, "temperature is inf");
  refused(logits, {.temperature = 1, .top_k = -1}, "top_k is -1");
  refused(logits, {.temperature = 1, .top_p = 0}, "top_p is 0");
  refused(logits, {.temperature = 1, .top_p = 1.5f}, "top_p is 1.5");
  refused(logits, {.temperature = 1, .min_p = 2}, "min_p is 2");
  refused(logits, {.temperature = 1, .min_p = NAN}, "min_p is nan");
  refused({}, {}, "no logits");
  refused({1, NAN}, {}, "logit 1 is nan");
  refused({NAN, 1}, {.temperature = 1}, "logit 0 is nan");
  refused({1, kInfinity}, {.temperature = 1}, "logit 1 is inf");
  refused({-kInfinity, -kInfinity}, {}, "every logit is minus infinity");
}

}  // namespace
}  // namespace culet
