// Sessions as a server uses them, on the CPU dispatch.
#include <string>

#include <gtest/gtest.h>

#include "asan.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "session_soak.h"

namespace culet {
namespace {

TEST(SessionSoak, SequencesComeAndGoAndStepsAreCancelled) {
  const auto model =
      DecoderModel::Load(std::string(CULET_SOURCE_DIR) + "/examples/adder", HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok()) << gemm.status().ToString();
  const auto dispatch = MakeCpuDispatch(*gemm);
  auto session = Session::Create(
      *model, *dispatch,
      {.max_sequences = 9, .max_context = 32, .block_size = 4, .max_step_tokens = 9 * 14});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  SessionSoak soak(*session, 1);
  constexpr int kRounds = kSanitized ? 500 : 1500;
  for (int round = 0; round < kRounds; ++round) {
    const Status status = soak.Round();
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.ToString();
  }
  EXPECT_TRUE(soak.End().ok());
  const SoakCounts& counts = soak.counts();
  EXPECT_GT(counts.answered, kRounds / 15);
  EXPECT_GT(counts.cancelled, kRounds / 30);
  EXPECT_GE(static_cast<double>(counts.right), kLeastRight * static_cast<double>(counts.answered));
}

}  // namespace
}  // namespace culet
