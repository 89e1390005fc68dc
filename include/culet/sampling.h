// The next token out of logits.
#pragma once

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
};

/// Draws a token. `state` is any seed at first and changes with each draw: the same seed and logits
/// give the same tokens.
/// Errors: INVALID_ARGUMENT for no logits, an option outside its range, and a logit that is NaN or
/// infinite; minus infinity leaves a token out, but not all of them.
Result<int> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                        std::uint64_t& state);

}  // namespace culet
