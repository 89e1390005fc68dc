// What `culet compare` and `culet run --profile` are made of, on the CUDA dispatch on the CPU
// (tests/host_cuda), with weights in a memory of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/decode_run.h"
#include "apps/node_compare.h"
#include "apps/node_profile.h"
#include "culet/decoder.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"
#include "graph/cuda/dispatch.h"
#include "other_memory.h"

namespace culet::cli {
namespace {

struct Replays;

class Compared : public testing::TestWithParam<const char*> {
 protected:
  void MakeRecording(Replays& replays);
  void Make(bool round) {
    dispatch_ = cuda_ops::MakeDispatch(gemm_, memory_, {.round_product_inputs = round});
    model_ = Load(memory_);
    on_host_ = Load(HostMemory());
  }
  static std::unique_ptr<DecoderModel> Load(DeviceMemory& memory) {
    auto model = DecoderModel::Load(OwnGoldens(GetParam()), memory);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return std::make_unique<DecoderModel>(*std::move(model));
  }
  std::vector<NodeError> Errors(NodeComparison& comparison, DataType values = DataType::kFloat32,
                                DataType cache = DataType::kFloat32) {
    auto session = culet::Session::Create(
        *model_, *dispatch_, {.max_context = 32, .cache_type = cache, .value_type = values});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    const int sequence = *session->AddSequence();
    const std::vector<std::int32_t> prompt = {1, 2, 3, 4, 5, 6, 7};
    session->SetHook(comparison.Hook("prompt"));
    auto result = session->Prefill(sequence, prompt);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    session->SetHook(comparison.Hook("step 1"));
    const SequenceTokens next{sequence, {&result->next[0], 1}};
    EXPECT_TRUE(session->Step({&next, 1}).ok());
    return comparison.errors();
  }

  OtherMemory memory_;
  Gemm gemm_ = *Gemm::Create();
  std::unique_ptr<KernelDispatch> dispatch_;
  std::unique_ptr<DecoderModel> model_, on_host_;
};

TEST_P(Compared, EveryNodeIsWithinItsBound) {
  for (const auto& [round, values] :
       {std::pair{false, DataType::kFloat32}, std::pair{true, DataType::kFloat32},
        std::pair{true, DataType::kBfloat16}}) {
    Make(round);
    NodeComparison comparison(1e-5, MakeReferenceDispatch());
    comparison.ReadWeightsOf(*on_host_);
    comparison.AllowRoundedInputs(round);
    const std::vector<NodeError> errors = Errors(comparison, values);
    EXPECT_GT(errors.size(), 20u);
    for (const NodeError& error : errors) {
      EXPECT_TRUE(error.within()) << error.step << ", " << error.node << ": " << error.error;
    }
  }
}

// Queries and weights of the softmax are rounded, too, and codes go either way at ties.
TEST_P(Compared, CachesOfFewBits) {
  for (const DataType cache : {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat8_e4m3}) {
    Make(true);
    NodeComparison comparison(1e-5, MakeReferenceDispatch());
    comparison.ReadWeightsOf(*on_host_);
    comparison.AllowRoundedInputs(true);
    for (const NodeError& error : Errors(comparison, DataType::kFloat32, cache)) {
      EXPECT_TRUE(error.within()) << ToString(cache) << ", " << error.step << ", " << error.node
                                  << ": " << error.error;
    }
  }
}

// The reference reads the weights of the model that it is given: another one's are seen.
TEST_P(Compared, OtherWeightsOnTheHostShow) {
  Make(false);
  auto random = DecoderModel::Random(model_->config(), DataType::kBfloat16, HostMemory());
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  NodeComparison comparison(1e-5, MakeReferenceDispatch());
  comparison.ReadWeightsOf(*random);
  const std::vector<NodeError> errors = Errors(comparison);
  EXPECT_GT(std::ranges::count_if(errors, [](const NodeError& e) { return !e.within(); }), 10);
}

// A launch on any stream may follow.
TEST_P(Compared, ALoadedModelIsThere) {
  Make(false);
  EXPECT_EQ(memory_.uploads, 0);
  const auto random = DecoderModel::Random(model_->config(), DataType::kBfloat16, memory_);
  ASSERT_TRUE(random.ok()) << random.status().ToString();
  EXPECT_EQ(memory_.uploads, 0);
}

TEST(CudaDispatch, IsForEnginesOfAGpu) {
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCudaDispatch(gemm);
  ASSERT_FALSE(dispatch.ok());
  EXPECT_NE(dispatch.status().message().find("cuda"), std::string::npos)
      << dispatch.status().message();
}

TEST_P(Compared, NodesAreTimed) {
  Make(false);
  NodeProfile profile;
  auto session = culet::Session::Create(*model_, *dispatch_, {.max_context = 32});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  session->SetHook(profile.Hook());
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  ASSERT_TRUE(session->Prefill(*session->AddSequence(), prompt).ok());
  std::vector<std::string> kernels;
  for (const NodeTime& node : profile.Nodes(*session->last_executor())) {
    kernels.push_back(node.kernel);
  }
  EXPECT_NE(std::ranges::find(kernels, "cuda/rms_norm"), kernels.end());
  EXPECT_NE(std::ranges::find(kernels, "cuda/attention"), kernels.end());
}

// Like CUDA graphs: recorded launches are repeated, and counted.
struct Replays {
  int launches = 0, recordings = 0;
};
class Again final : public RecordedLaunches {
 public:
  Again(LaunchFunction launches, Replays& replays) : launches_(std::move(launches)), to_(replays) {}
  Status Replay(cudaStream_t stream) override {
    ++to_.launches;
    return launches_(stream);
  }

 private:
  LaunchFunction launches_;
  Replays& to_;
};

void Compared::MakeRecording(Replays& replays) {
  Make(true);
  dispatch_ = cuda_ops::MakeDispatch(gemm_, memory_, {.round_product_inputs = true},
                                     [&](const LaunchFunction& launches) {
                                       ++replays.recordings;
                                       return Result<std::unique_ptr<RecordedLaunches>>(
                                           std::make_unique<Again>(launches, replays));
                                     });
}

// A step's launches among each other: one time each, in their order, whose sum is the step's, and
// the step's values are as before.
TEST_P(Compared, RecordedStepsAreTimedByLaunch) {
  Make(true);
  Replays replays;
  dispatch_ = cuda_ops::MakeDispatch(gemm_, memory_, {.round_product_inputs = true},
                                     [&](const LaunchFunction& launches) {
                                       ++replays.recordings;
                                       return Result<std::unique_ptr<RecordedLaunches>>(
                                           std::make_unique<Again>(launches, replays));
                                     });
  auto session = culet::Session::Create(*model_, *dispatch_, {.max_context = 32});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  const int sequence = *session->AddSequence();
  const auto read = session->Prefill(sequence, prompt);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const SequenceTokens next{sequence, {&read->next[0], 1}};
  const auto first = session->Step({&next, 1});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const GraphExecutor& executor = *session->last_executor();
  const auto timed = TimeRecorded(executor, nullptr);
  ASSERT_TRUE(timed.ok()) << timed.status().ToString();
  const std::vector<int> nodes = executor.launched();
  ASSERT_EQ(timed->size(), nodes.size());
  const int recordings = static_cast<int>(nodes.size()) + 1;
  EXPECT_EQ(replays.recordings, recordings);
  EXPECT_GE(replays.launches, 4 * recordings) << "three samples, and one that finds caches empty";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ((*timed)[i].id, nodes[i]);
    EXPECT_TRUE((*timed)[i].among);
    EXPECT_GE((*timed)[i].time_us, 0.0);
  }
  // Repeated launches left the right results: a later step is the same as without them.
  auto plain = culet::Session::Create(*model_, *dispatch_, {.max_context = 32, .record = false});
  ASSERT_TRUE(plain.ok());
  const int other = *plain->AddSequence();
  ASSERT_TRUE(plain->Prefill(other, prompt).ok());
  const SequenceTokens same{other, {&read->next[0], 1}};
  ASSERT_EQ(plain->Step({&same, 1})->next, first->next);
  const SequenceTokens more{sequence, {&first->next[0], 1}}, others{other, {&first->next[0], 1}};
  const StepOutputs outputs{.all_logits = true};
  EXPECT_EQ(session->Step({&more, 1}, outputs)->logits, plain->Step({&others, 1}, outputs)->logits);
  EXPECT_FALSE(executor.RecordFirst(0, 1).ok());
  EXPECT_FALSE(executor.RecordFirst(static_cast<int>(nodes.size()) + 1, 1).ok());
}

// The same tokens with and without a profile, recorded or node by node.
TEST_P(Compared, AProfileOfARunIsOfItsReplays) {
  // One model: each of its launches is launched some hundred times.
  if (std::string(GetParam()) != "llama-biases-llama3-tied")
    GTEST_SKIP() << "a dense model will do";
  Replays replays;
  MakeRecording(replays);
  std::vector<std::int32_t> tokens;
  for (const bool record : {true, false}) {
    for (const bool profiled : {false, true}) {
      auto session =
          culet::Session::Create(*model_, *dispatch_, {.max_context = 32, .record = record});
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      DecodeRun run;
      run.continuations.resize(1);
      run.continuations[0].prompt = {1, 2, 3};
      const Status status =
          RunDecode({.max_new = 3, .profile = profiled}, *session, run, /*stream=*/nullptr);
      ASSERT_TRUE(status.ok()) << status.ToString();
      if (tokens.empty()) tokens = run.continuations[0].tokens;
      EXPECT_EQ(run.continuations[0].tokens, tokens) << record << profiled;
      EXPECT_EQ(run.prefill_nodes.empty(), !profiled);
      EXPECT_EQ(run.decode_nodes.empty(), !profiled);
      for (const auto* nodes : {&run.prefill_nodes, &run.decode_nodes}) {
        for (const NodeTime& node : *nodes) EXPECT_EQ(node.among, record);
      }
      EXPECT_EQ(run.recorded, record);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Compared,
                         testing::Values("llama-biases-llama3-tied", "qwen3-moe-shares",
                                         "qwen3-moe-fp8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace culet::cli
