// Sizes to which steps are padded, so that few graphs serve all batches.
#pragma once

namespace culet {

/// The least of 1, 2, 4, 8, 12, 16, 24, 32, 48, ... that is not below `sequences`.
int SequenceBucket(int sequences) noexcept;

/// The same for tokens of prompts: from 16 on four sizes from one power of two to the next, so that
/// less than a fifth of the rows is padding.
int TokenBucket(int tokens) noexcept;

/// The same for positions of a decode step: powers of two from 1024 on.
int ContextBucket(int positions) noexcept;

}  // namespace culet
