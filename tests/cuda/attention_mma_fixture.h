// Tests of attention on tensor cores against the reference in double.
#pragma once

#include <string>

#include "attention_batch.h"

namespace culet {

class CudaAttentionMma : public CudaAttention {
 protected:
  void SetUp() override {
    test_ = MakeTestDispatch({.round_product_inputs = true});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
  }

  // docs/numerics.md: queries and weights are rounded to the cache's type, of E4M3 to float16, each
  // with an error of that type's half unit at most and a third of it or so on average.
  static double BoundOf(const AttentionCase& c) {
    if (c.cache == DataType::kFloat8_e4m3 && c.value == DataType::kBfloat16) return 2e-3;
    return c.cache == DataType::kBfloat16 ? 6e-3 : 1e-3;
  }

  void Expect(const AttentionCase& c, const PagedBatch& batch, const std::string& what) {
    Build(c, batch);
    ExpectReference(Graph(), NameOf(c) + ", " + what, BoundOf(c));
  }
};

}  // namespace culet
