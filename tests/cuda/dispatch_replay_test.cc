// Recorded decoding on a GPU. Skipped where there is none.
#include "replay_cases.h"
#include "test_dispatch.h"

namespace culet {
namespace {

// A dispatch whose launches cannot be captured: the session decodes without a recording and says
// why.
TEST_F(Decoding, ACaptureThatFailsIsReported) {
  const auto expected = BySteps(Options(1), 1, 6);
  Session session = MakeSession(Options(1));
  const auto batch = Begin(session, 1);
  ASSERT_TRUE(session.Decode(batch, {}).ok());
  // Its own launches, in a capture that waits for the device.
  const auto failed = test_.dispatch->record(
      [&](cudaStream_t stream) -> Status { return test_.dispatch->memory().Synchronize(stream); });
  EXPECT_FALSE(failed.ok());
  const auto empty = test_.dispatch->record([](cudaStream_t) { return Status(); });
  EXPECT_EQ(empty.status().code(), StatusCode::kFailedPrecondition);
  const auto made = session.Decode(batch, {.steps = 2});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
}

TEST_F(Decoding, AThousandReplays) {
  Session session = MakeSession(Options(4));
  auto batch = Begin(session, 4);
  const auto first = session.Decode(batch, {.steps = 20});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_TRUE(session.last_executor()->replays()) << session.last_executor()->why_not_recorded();
  for (int i = 0; i < 60; ++i) {
    for (std::size_t s = 0; s < batch.size(); ++s) {
      ASSERT_TRUE(session.Truncate(batch[s].sequence, 3 + 2 * static_cast<int>(s)).ok());
    }
    const auto again = session.Decode(batch, {.steps = 20});
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    for (std::size_t s = 0; s < batch.size(); ++s) {
      ASSERT_EQ((*again)[s].tokens, (*first)[s].tokens) << "round " << i;
    }
  }
}

// The host's work for a step without waiting for the device: launches of a recording.
TEST_F(Decoding, HostTimeOfAStep) {
  SessionOptions options = Options(1);
  options.max_context = 1024;
  Session session = MakeSession(options);
  const auto batch = Begin(session, 1);
  ASSERT_TRUE(session.Decode(batch, {.steps = 8}).ok());
  GraphExecutor& executor = *const_cast<GraphExecutor*>(session.last_executor());
  ASSERT_TRUE(executor.replays()) << executor.why_not_recorded();
  DeviceMemory& memory = test_.dispatch->memory();
  const auto event = memory.MakeEvent();
  ASSERT_TRUE(event.ok());
  constexpr int kSteps = 200;
  double launch_us = 0;
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_TRUE(memory.Synchronize(nullptr).ok());
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(executor.Launch().ok());
    ASSERT_TRUE((*event)->Record(nullptr).ok());
    launch_us +=
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
  ASSERT_TRUE(memory.Synchronize(nullptr).ok());
  const auto start = std::chrono::steady_clock::now();
  const auto made = session.Decode(batch, {.steps = 500});
  const std::chrono::duration<double, std::micro> decode = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  RecordProperty("launch_us", std::to_string(launch_us / kSteps));
  std::printf("host: %.1f us to launch a step of %d nodes; Decode: %.1f us a step\n",
              launch_us / kSteps, executor.n_launches(), decode.count() / 500);
}

}  // namespace
}  // namespace culet
