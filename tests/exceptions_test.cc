// What users give the library may throw: hooks, gates, questions, dispatches. An error with its
// words or an answer, never an exception of the library, and everything is as after any error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "cache_fixture.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/scratch.h"
#include "culet/verify.h"
#include "idle_dispatch.h"

namespace culet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The library's own kernels, behind methods that throw when they are told to.
class Throwing final : public IdleDispatch {
 public:
  explicit Throwing(KernelDispatch& inner) : inner_(inner) {}

  std::string in;  // which one
  bool no_memory = false;

  Feasibility supports(const ComputeGraph& graph, int id) const override {
    Throw("supports");
    return inner_.supports(graph, id);
  }
  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    Throw("prepare");
    return inner_.prepare(graph, id);
  }
  std::size_t workspace(const ComputeGraph& graph, int id,
                        const PreparedNode* prepared) const override {
    Throw("workspace");
    return inner_.workspace(graph, id, prepared);
  }
  Status launch(const NodeLaunch& launch) override {
    Throw("launch");
    return inner_.launch(launch);
  }
  Status dispatch_silu(DevicePtr, DevicePtr, std::size_t) override {
    throw std::runtime_error("no silu today");
  }

 private:
  void Throw(const char* where) const {
    if (in == where && no_memory) throw std::bad_alloc();
    if (in == where) throw std::runtime_error("out of ink");
  }
  KernelDispatch& inner_;
};

class ThrowingSessionTest : public testing::Test {
 protected:
  ThrowingSessionTest() {
    auto session = Session::Create(model_, dispatch_, {.max_sequences = 1, .max_context = 16});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    session_.emplace(*std::move(session));
    sequence_ = *session_->AddSequence();
  }

  static DecoderModel RandomModel() {
    const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
      "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64})",
                                           "config");
    return *DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
  }

  Result<StepResult> Step(const std::vector<std::int32_t>& tokens) {
    const SequenceTokens part{sequence_, tokens};
    return session_->Step({&part, 1});
  }

  // A step fails with these words, and the next one goes on as if it had not been.
  void ExpectError(const std::vector<std::int32_t>& tokens, const std::string& what,
                   const std::string& words) {
    const int before = *session_->LengthOf(sequence_);
    const Status status = Step(tokens).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(what), HasSubstr("threw: " + words)));
    EXPECT_EQ(*session_->LengthOf(sequence_), before);
  }

  DecoderModel model_ = RandomModel();
  Gemm gemm_ = *Gemm::Create();
  std::unique_ptr<KernelDispatch> kernels_ = MakeCpuDispatch(gemm_);
  Throwing dispatch_{*kernels_};
  std::optional<Session> session_;
  int sequence_ = -1;
};

TEST_F(ThrowingSessionTest, ADispatch) {
  const std::vector<std::int32_t> first = {1, 2, 3}, second = {4};
  for (const char* const method : {"supports", "prepare", "workspace", "launch"}) {
    dispatch_.in = method;
    ExpectError(first, method == std::string("launch") ? "the dispatch" : method, "out of ink");
  }
  dispatch_.in.clear();
  EXPECT_TRUE(Step(first).ok());
  dispatch_.in = "launch";
  ExpectError(first, "node", "out of ink");
  dispatch_.in.clear();
  const auto next = Step(second);
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_EQ(*session_->LengthOf(sequence_), 4);
}

TEST_F(ThrowingSessionTest, AWantOfMemoryIsNamedAsSuch) {
  const std::vector<std::int32_t> tokens = {1, 2, 3};
  const auto expect_no_memory = [&](const std::string& where) {
    const Status status = Step(tokens).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << where << ": " << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("the host has no memory left")) << where;
    EXPECT_EQ(*session_->LengthOf(sequence_), 0);
  };
  dispatch_.no_memory = true;
  for (const char* const method : {"supports", "prepare", "workspace", "launch"}) {
    dispatch_.in = method;
    expect_no_memory(method);
  }
  dispatch_.in.clear();
  session_->SetGate([]() -> Status { throw std::bad_alloc(); });
  expect_no_memory("the gate");
  session_->SetGate(nullptr);
  EXPECT_TRUE(Step(tokens).ok());
}

TEST_F(ThrowingSessionTest, AHookAndAGate) {
  const std::vector<std::int32_t> tokens = {1, 2, 3};
  session_->SetGate([]() -> Status { throw std::runtime_error("no entrance"); });
  ExpectError(tokens, "the gate", "no entrance");  // before anything is prepared
  session_->SetGate(nullptr);
  const auto expected = Step(tokens);
  ASSERT_TRUE(expected.ok());
  ASSERT_TRUE(session_->RemoveSequence(sequence_).ok());
  sequence_ = *session_->AddSequence();
  session_->SetGate([]() -> Status { throw std::runtime_error("no entrance"); });
  ExpectError(tokens, "the gate", "no entrance");  // before a launch
  session_->SetGate(nullptr);
  session_->SetHook([](KernelDispatch&, const NodeLaunch&) -> Status { throw 7; });
  ExpectError(tokens, "the hook", "something that is no std::exception");
  session_->SetHook(nullptr);
  const auto found = Step(tokens);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->next, expected->next);
}

TEST_F(ThrowingSessionTest, AMethodThatADispatchRoutesTo) {
  TensorNode node;
  node.op = TensorOp::kSilu;
  node.shape = {2, 2};
  ComputeGraph graph;
  std::vector<float> values(256);
  const int leaf = graph.add_leaf(ToDevicePtr(values.data()), {2, 2});
  NodeLaunch launch;
  launch.graph = &graph;
  launch.id = graph.add_op(TensorOp::kSilu, 0, {2, 2}, {leaf});
  const DevicePtr input = ToDevicePtr(values.data());
  launch.inputs = {&input, 1};
  launch.output = input;
  const Status status = dispatch_.KernelDispatch::launch(launch);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("no silu today"));
}

class ThrowingQuestionTest : public testing::Test {
 protected:
  Gemm gemm_ = *Gemm::Create();
  const GemmDesc desc_ = *MakeDesc(Format::kF32, 4, 24, 40, /*arch=*/0);
  int asked_ = 0;
};

TEST_F(ThrowingQuestionTest, OnProgressEndsTheTuning) {
  TuneOptions options;
  options.on_progress = [&](double, const LaunchSpec&) -> bool {
    if (++asked_ < 3) return true;
    throw std::runtime_error("no more");
  };
  const auto report = gemm_.Tune(desc_, options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->measurements, 2);
  EXPECT_EQ(asked_, 3);
  EXPECT_EQ(gemm_.cache().size(), 0u);
  EXPECT_TRUE(gemm_.Tune(desc_).ok());
}

TEST_F(ThrowingQuestionTest, StopEndsTheTuning) {
  TuneOptions options;
  options.stop = [&]() -> bool {
    ++asked_;
    throw std::runtime_error("stop");
  };
  EXPECT_EQ(gemm_.Tune(desc_, options).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(asked_, 1);
  EXPECT_TRUE(gemm_.Tune(desc_).ok());
}

TEST_F(ThrowingQuestionTest, OnCaseEndsTheVerification) {
  VerifyOptions options;
  options.quick = true;
  options.on_case = [&](const std::string&, const GemmDesc&) -> bool {
    if (++asked_ < 3) return true;
    throw std::runtime_error("enough");
  };
  const VerifyReport report = Verify(gemm_.registry(), gemm_.device(), options);
  EXPECT_EQ(report.passed, 2);
  EXPECT_EQ(asked_, 3);
}

TEST_F(ThrowingQuestionTest, OnWaitGivesUp) {
  const TemporaryFolder folder;
  const std::string path = folder / "cache.jsonl";
  IdleKernel kernel{"kernel"};
  DispatchCache cache({&kernel}, kTestDevice);
  ASSERT_TRUE(cache.Insert(Problem(1), Measured(kernel, 10)));
  const auto lock = FileLock::Acquire(path + ".lock", std::chrono::milliseconds(0));
  ASSERT_TRUE(lock.ok());
  CacheFile::SaveOptions options;
  options.on_wait = [&](const std::string&, double) -> bool {
    ++asked_;
    throw std::runtime_error("no patience");
  };
  EXPECT_EQ(CacheFile(path).Save(cache, options).status().code(), StatusCode::kIo);
  EXPECT_EQ(asked_, 1);
}

TEST_F(ThrowingQuestionTest, ATimedLaunchIsAnError) {
  const Status status =
      TimeLaunchUs(HostDevice(), []() -> Status { throw std::runtime_error("no start"); }).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("threw: no start"));
  EXPECT_TRUE(TimeLaunchUs(HostDevice(), [] { return Status(); }).ok());
}

}  // namespace
}  // namespace culet
