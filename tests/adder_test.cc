// examples/adder, a trained model, answers sums that it never saw in training.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "asan.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "sums.h"

namespace culet {
namespace {

constexpr int kSums = kSanitized ? 100 : 500;
constexpr int kBatch = 50;

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
  const auto [right, wrong] = AnswerSums(*session, sums, kBatch);
  RecordProperty("right", right);
  EXPECT_GE(right, kLeastRight * kSums) << wrong;
}

}  // namespace
}  // namespace culet
