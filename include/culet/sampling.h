// The next token out of logits.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "culet/status.h"

namespace culet {

/// How a token is drawn: logits are divided by the temperature, then top_k, top_p and min_p leave
/// out tokens, in this order, as Hugging Face's generate does; what is left is drawn by its
/// probability.
struct SamplingOptions {
  float temperature = 0;  ///< 0: the largest logit, of equals the first; nothing is drawn
  int top_k = 0;          ///< keeps so many of the likeliest tokens; 0: all
  float top_p = 1;  ///< keeps the likeliest tokens until they have this probability together; > 0
  float min_p = 0;  ///< keeps tokens of at least this share of the likeliest one's probability
  std::uint64_t seed = 0;  ///< of the random numbers, of which draw n always takes the n-th
};

/// Errors: INVALID_ARGUMENT for an option outside its range, with its value.
Status CheckSampling(const SamplingOptions& options);

/// Draws a token: the same seed, number of the draw and logits give the same token, here and on
/// every device (TensorOp::kSample). Of a text the draw's number is the token's position in it.
/// Probabilities are whole parts of 2^32 of the likeliest token's, right to 1e-8: what has less
/// than one part is never drawn.
/// Errors: as CheckSampling; INVALID_ARGUMENT for no logits and for a logit that is NaN or
/// infinite; minus infinity leaves a token out, but not all of them.
Result<int> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                        std::uint64_t draw);

/// Options as a graph's Sample reads them: kInt32 words.
using SamplingRow = std::array<std::int32_t, 8>;
/// Requires: CheckSampling(options).ok(). Of the default options all words are 0, but for top_p.
SamplingRow PackSampling(const SamplingOptions& options);

}  // namespace culet
