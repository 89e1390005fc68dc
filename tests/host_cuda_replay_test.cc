// Recorded steps on the CUDA dispatch on the CPU (tests/host_cuda): what a session does with
// recordings, and with those that fail. tests/cuda/dispatch_replay_test.cc does it on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "asan.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "graph/cuda/dispatch.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

// Counts what is there; the host's otherwise.
class CountingMemory final : public DeviceMemory {
 public:
  Result<DevicePtr> Allocate(std::size_t bytes) override {
    ++buffers;
    ++allocations;
    return HostMemory().Allocate(bytes);
  }
  void Free(DevicePtr pointer) noexcept override {
    --buffers;
    HostMemory().Free(pointer);
  }
  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t stream) override {
    ++uploads;
    return HostMemory().Upload(to, from, bytes, stream);
  }
  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    ++downloads;
    return HostMemory().Download(to, from, bytes, stream);
  }
  Status Synchronize(cudaStream_t) override { return {}; }
  bool reads_host_memory() const noexcept override { return true; }

  int buffers = 0, allocations = 0, uploads = 0, downloads = 0;
};

class RecordedSteps : public testing::Test {
 protected:
  static DecoderModel RandomModel() {
    const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
      "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64})",
                                           "config");
    return *DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
  }

  // A recording that makes its launches anew: products run on the CPU, which no capture sees.
  class Kept final : public RecordedLaunches {
   public:
    Kept(RecordedSteps& test, LaunchFunction launches)
        : test_(test), launches_(std::move(launches)) {
      ++test_.recordings_;
    }
    ~Kept() override { --test_.recordings_; }
    Status Replay(cudaStream_t stream) override {
      ++test_.replays_;
      CULET_RETURN_IF_ERROR(test_.replay_status_);
      return launches_(stream);
    }

   private:
    RecordedSteps& test_;
    LaunchFunction launches_;
  };

  Session MakeSession(const SessionOptions& options) {
    auto session = Session::Create(model_, *dispatch_, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  // The logits of a prompt and of some steps.
  std::vector<float> Logits(Session& session, int sequence, int steps) {
    const std::vector<std::int32_t> prompt = {5, 17, 60, 2};
    std::vector<float> logits;
    auto result = session.Prefill(sequence, prompt, {.logits = true});
    for (int i = 0; i < steps && result.ok(); ++i) {
      logits.insert(logits.end(), result->logits.begin(), result->logits.end());
      const SequenceTokens next{sequence, result->next};
      result = session.Step({&next, 1}, {.logits = true});
    }
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return logits;
  }
  std::vector<float> Eager() {
    Session session = MakeSession({.max_context = 64, .record = false});
    return Logits(session, *session.AddSequence(), 6);
  }

  cuda_ops::Recorder recorder_ = [this](const LaunchFunction& launches) {
    ++tries_;
    return Result<std::unique_ptr<RecordedLaunches>>(std::make_unique<Kept>(*this, launches));
  };
  int tries_ = 0, recordings_ = 0, replays_ = 0;
  Status replay_status_;
  CountingMemory memory_;
  Gemm gemm_ = *Gemm::Create();
  DecoderModel model_ = RandomModel();
  std::unique_ptr<KernelDispatch> dispatch_ = cuda_ops::MakeDispatch(
      gemm_, memory_, {}, [this](const LaunchFunction& launches) { return recorder_(launches); });
};

TEST_F(RecordedSteps, TheSecondLaunchRecordsAndGivesTheSameBits) {
  {
    Session session = MakeSession({.max_context = 64});
    const int sequence = *session.AddSequence();
    const std::vector<float> logits = Logits(session, sequence, 6);
    EXPECT_EQ(tries_, 1) << "the prompt ran once";
    EXPECT_GE(replays_, 4);
    EXPECT_TRUE(session.last_executor()->replays());
    EXPECT_EQ(session.last_executor()->why_not_recorded(), "");
    const int before = replays_;
    EXPECT_EQ(logits, Eager());
    EXPECT_EQ(replays_, before);
    EXPECT_EQ(recordings_, 1);
  }
  EXPECT_EQ(recordings_, 0);
}

TEST_F(RecordedSteps, HooksGoNodeByNodeAndAGateIsAskedOnceAReplay) {
  Session session = MakeSession({.max_context = 64});
  const int sequence = *session.AddSequence();
  Logits(session, sequence, 4);
  const int before = replays_;
  const std::int32_t token = 3;
  const SequenceTokens next{sequence, {&token, 1}};
  int asked = 0, launched = 0;
  session.SetGate([&]() -> Status { return ++asked, Status(); });
  ASSERT_TRUE(session.Step({&next, 1}).ok());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(replays_, before + 1);
  session.SetHook([&](KernelDispatch& to, const NodeLaunch& launch) {
    ++launched;
    return to.launch(launch);
  });
  ASSERT_TRUE(session.Step({&next, 1}).ok());
  EXPECT_EQ(replays_, before + 1);
  EXPECT_GT(launched, 10);
  EXPECT_EQ(asked, launched + 1);
  session.SetHook(nullptr);
  session.SetGate([]() -> Status { return Status(StatusCode::kFailedPrecondition, "enough"); });
  EXPECT_EQ(session.Step({&next, 1}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(replays_, before + 1);
  session.SetGate(nullptr);
  EXPECT_TRUE(session.Step({&next, 1}).ok());
}

TEST_F(RecordedSteps, ARecordingThatFailsIsReportedAndTheSessionGoesOn) {
  const std::vector<float> eager = Eager();
  const cuda_ops::Recorder recorders[] = {
      [](const LaunchFunction&) -> Result<std::unique_ptr<RecordedLaunches>> {
        return Status(StatusCode::kInternal, "no graphs today");
      },
      [](const LaunchFunction&) -> Result<std::unique_ptr<RecordedLaunches>> {
        throw std::runtime_error("no graphs today");
      },
      [](const LaunchFunction&) -> Result<std::unique_ptr<RecordedLaunches>> {
        return std::unique_ptr<RecordedLaunches>();
      }};
  for (const cuda_ops::Recorder& failing : recorders) {
    int asked = 0;
    recorder_ = [&](const LaunchFunction& launches) { return ++asked, failing(launches); };
    Session session = MakeSession({.max_context = 64});
    EXPECT_EQ(Logits(session, *session.AddSequence(), 6), eager);
    EXPECT_EQ(asked, 1) << "what fails once is not tried again";
    EXPECT_FALSE(session.last_executor()->replays());
    EXPECT_THAT(session.last_executor()->why_not_recorded(),
                testing::AnyOf(HasSubstr("no graphs today"), HasSubstr("made no recording")));
  }
}

TEST_F(RecordedSteps, AReplayThatFailsIsTheStepsErrorAndLeavesTheSequence) {
  Session session = MakeSession({.max_context = 64});
  const int sequence = *session.AddSequence();
  Logits(session, sequence, 4);
  const int length = *session.LengthOf(sequence);
  const std::int32_t token = 3;
  const SequenceTokens next{sequence, {&token, 1}};
  replay_status_ = Status(StatusCode::kInternal, "the device fell off");
  const auto failed = session.Step({&next, 1});
  EXPECT_THAT(failed.status().ToString(), HasSubstr("the device fell off"));
  EXPECT_EQ(*session.LengthOf(sequence), length);
  replay_status_ = {};
  EXPECT_TRUE(session.Step({&next, 1}).ok());
}

TEST_F(RecordedSteps, AStepUploadsItsInputsOnce) {
  Session session = MakeSession({.max_context = 64});
  const int sequence = *session.AddSequence();
  Logits(session, sequence, 4);
  const int before = memory_.uploads;
  const std::int32_t token = 3;
  const SequenceTokens next{sequence, {&token, 1}};
  ASSERT_TRUE(session.Step({&next, 1}).ok());
  EXPECT_EQ(memory_.uploads, before + 1);
}

TEST_F(RecordedSteps, TwoSessionsOnOneDispatch) {
  const std::vector<float> eager = Eager();
  Session one = MakeSession({.max_context = 64}), other = MakeSession({.max_context = 64});
  const int first = *one.AddSequence(), second = *other.AddSequence();
  EXPECT_EQ(Logits(one, first, 6), eager);
  EXPECT_EQ(Logits(other, second, 6), eager);
  EXPECT_EQ(recordings_, 2);
  ASSERT_TRUE(one.Truncate(first, 0).ok());
  EXPECT_EQ(Logits(one, first, 6), eager);
}

TEST_F(RecordedSteps, ManyReplaysLeaveMemoryConstant) {
  Session session = MakeSession({.max_context = 16});
  const int sequence = *session.AddSequence();
  Logits(session, sequence, 4);
  const int buffers = memory_.buffers, allocations = memory_.allocations;
  const std::int32_t token = 3;
  const SequenceTokens next{sequence, {&token, 1}};
  for (int i = 0; i < (kSanitized ? 100 : 1000); ++i) {
    ASSERT_TRUE(session.Truncate(sequence, 3).ok());
    ASSERT_TRUE(session.Step({&next, 1}).ok());
  }
  EXPECT_EQ(memory_.buffers, buffers);
  EXPECT_EQ(memory_.allocations, allocations);
}

}  // namespace
}  // namespace culet
