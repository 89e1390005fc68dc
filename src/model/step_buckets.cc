#include "model/step_buckets.h"

namespace culet {

int SequenceBucket(int sequences) noexcept {
  int power = 1;
  while (power < sequences) power *= 2;
  return power >= 16 && power / 4 * 3 >= sequences ? power / 4 * 3 : power;
}

int TokenBucket(int tokens) noexcept {
  if (tokens <= 16) return SequenceBucket(tokens);
  int power = 16;  // power < tokens <= 2 * power
  while (2 * power < tokens) power *= 2;
  const int step = power / 4;
  return (tokens + step - 1) / step * step;
}

int ContextBucket(int positions) noexcept {
  int bucket = 1024;
  while (bucket < positions) bucket *= 2;
  return bucket;
}

}  // namespace culet
