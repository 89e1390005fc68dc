// Whole models against outputs that this library had no part in: the repository's own checkpoints
// (tests/goldens), and fixtures from the models' own library where they are there.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "asan.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

struct Case {
  const char* name;
  bool own = false;  // one of the repository's
  double tolerance = 1e-5;
  /// Longrope: a sequence of fewer tokens turns otherwise than the goldens, which are of long ones.
  std::size_t least = 0;
};
constexpr Case kCases[] = {{.name = "llama-gqa"},
                           {.name = "llama3-scaled-tied"},
                           {.name = "qwen2-bias-tied"},
                           {.name = "qwen3-qknorm"},
                           {.name = "qwen3-moe"},
                           {.name = "qwen3-fp8", .tolerance = 1e-4},
                           {.name = "seed-oss"},
                           {.name = "smollm3"},
                           {.name = "phi3-longrope-short"},
                           {.name = "phi3-longrope-long", .least = 33},
                           {.name = "phi4-mini"},
                           {.name = "granite"},
                           {.name = "olmo2"},
                           {.name = "olmo3"},
                           {.name = "mistral3-nested"},
                           {.name = "ministral3-nested"},
                           {.name = "ernie4-5"},
                           {.name = "glm4"},
                           {.name = "gemma2"},
                           {.name = "gemma3"},
                           {.name = "cohere"},
                           {.name = "cohere2"},
                           {.name = "deepseek-v3"},
                           {.name = "ct-fp8-dynamic", .tolerance = 1e-4},
                           {.name = "ct-fp8-static", .tolerance = 1e-4},
                           {.name = "qwen2-moe"},
                           {.name = "qwen3-next"},
                           {.name = "glm4-moe"},
                           {.name = "ernie4-5-moe"},
                           {.name = "minimax-m2"},
                           {.name = "gptoss-bf16"},
                           {.name = "gptoss-mxfp4"},
                           {.name = "llama4"},
                           {.name = "fp8-block-skip", .tolerance = 1e-4},
                           {.name = "awq-llama-g128"},
                           {.name = "awq-qwen3-g64"},
                           {.name = "gptq-sym"},
                           {.name = "gptq-descact"},
                           {.name = "ct-w4a16-sym"},
                           {.name = "ct-w4a16-asym"},
                           {.name = "gguf-llama"},
                           {.name = "gguf-qwen3"},
                           {.name = "llama-biases-llama3-tied", .own = true},
                           {.name = "llama-linear", .own = true},
                           {.name = "mistral-window", .own = true},
                           {.name = "mixtral-shards", .own = true},
                           {.name = "qwen2-some-windows", .own = true},
                           {.name = "qwen3-yarn", .own = true},
                           {.name = "qwen3-moe-shares", .own = true},
                           {.name = "deepseek-v2-groups", .own = true},
                           {.name = "deepseek-v3-halves", .own = true},
                           {.name = "qwen3-moe-fp8", .own = true}};

constexpr double kLeastMargin = 1e-3;

enum class Backend { kCpu, kReference };

class Fixtures : public testing::TestWithParam<std::tuple<Case, Backend>> {
 protected:
  void SetUp() override {
    const auto [test_case, backend] = GetParam();
    const std::string_view test = testing::UnitTest::GetInstance()->current_test_info()->name();
    if (kSanitized && backend == Backend::kReference &&
        !(test.starts_with("LogitsAndHiddenStates") || test.starts_with("RaggedBatch"))) {
      GTEST_SKIP() << "a loop an operation, which the others have run from end to end";
    }
    folder_ = test_case.own ? OwnGoldens(test_case.name) : FixtureFolder(test_case.name);
    if (folder_.empty()) {
      GTEST_SKIP() << "no fixture " << test_case.name
                   << "; set CULET_FIXTURES to the folder that holds it";
    }
    tolerance_ = test_case.tolerance;
    auto goldens = ReadGoldens(folder_);
    ASSERT_TRUE(goldens.has_value()) << folder_;
    goldens_ = *std::move(goldens);
    auto model = DecoderModel::Load(folder_, HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
    if (backend == Backend::kCpu) {
      auto gemm = Gemm::Create();
      ASSERT_TRUE(gemm.ok()) << gemm.status().ToString();
      gemm_ = std::make_unique<Gemm>(*std::move(gemm));
      dispatch_ = MakeCpuDispatch(*gemm_);
    } else {
      dispatch_ = MakeReferenceDispatch();
    }
  }

  Session MakeSession(const SessionOptions& options) {
    auto session = Session::Create(*model_, *dispatch_, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  void Compare(const float* values, const float* goldens, std::size_t count,
               const std::string& what) {
    EXPECT_LE(RelativeL2(values, goldens, count), tolerance_) << what;
  }

  void CompareAll(const StepResult& result) {
    const auto hidden = static_cast<std::size_t>(model_->config().hidden);
    const std::size_t tokens = goldens_.input_ids.size();
    ASSERT_EQ(result.logits.size(), goldens_.logits.size());
    ASSERT_EQ(result.hidden.size(), goldens_.hidden.size());
    Compare(result.logits.data(), goldens_.logits.data(), goldens_.logits.size(), "logits");
    for (std::size_t i = 0; i <= static_cast<std::size_t>(model_->config().layers); ++i) {
      const std::size_t at = i * tokens * hidden;
      Compare(result.hidden.data() + at, goldens_.hidden.data() + at, tokens * hidden,
              "hidden state " + std::to_string(i));
    }
  }

  std::string folder_;
  double tolerance_ = 0;
  Goldens goldens_;
  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<KernelDispatch> dispatch_;
};

TEST_P(Fixtures, LogitsAndHiddenStates) {
  Session session = MakeSession({.max_context = 64});
  const int sequence = *session.AddSequence();
  auto result = session.Prefill(sequence, goldens_.input_ids, {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  CompareAll(*result);
}

// The prompt in pieces meets keys that earlier steps stored, across blocks of the cache.
TEST_P(Fixtures, PromptInPieces) {
  Session session = MakeSession({.max_context = 64, .block_size = 4, .max_step_tokens = 7});
  const int sequence = *session.AddSequence();
  auto result = session.Prefill(sequence, goldens_.input_ids, {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  CompareAll(*result);
}

TEST_P(Fixtures, GreedyTokens) {
  Session session = MakeSession({.max_context = 80});
  const int sequence = *session.AddSequence();
  auto result = session.Prefill(sequence, goldens_.input_ids);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const std::size_t steps =
      std::min<std::size_t>(goldens_.greedy_ids.size(), kSanitized ? 6 : SIZE_MAX);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    if (goldens_.greedy_margin[i] > kLeastMargin) {
      EXPECT_EQ(result->next[0], goldens_.greedy_ids[i])
          << "token " << i << " of margin " << goldens_.greedy_margin[i];
      ++compared;
    }
    // The golden token goes on, so that one near tie does not change the rest.
    const SequenceTokens next{sequence, {&goldens_.greedy_ids[i], 1}};
    result = session.Step({&next, 1});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
  }
  EXPECT_GE(compared, (steps + 1) / 2);
}

// Two sequences of different lengths in one batch, one of them joined in the middle: each gives
// what it gives alone.
TEST_P(Fixtures, RaggedBatch) {
  const std::vector<std::int32_t>& ids = goldens_.input_ids;
  const auto vocab = static_cast<std::size_t>(model_->config().vocab);
  const std::size_t half = ids.size() / 2, rest = ids.size() - half - 1;
  Session session = MakeSession({.max_sequences = 3, .max_context = 64, .block_size = 4});
  const int other = *session.AddSequence(), whole = *session.AddSequence();
  const auto expect_from = [&](std::size_t position, const float* logits, std::size_t rows) {
    if (position + rows < std::get<0>(GetParam()).least) return;
    Compare(logits, goldens_.logits.data() + position * vocab, rows * vocab,
            "position " + std::to_string(position) + " on");
  };
  // The blocks of the two alternate.
  const SequenceTokens first[] = {{other, {ids.data() + 3, half - 1}}, {whole, {ids.data(), half}}};
  auto result = session.Step(first, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  expect_from(half - 1, result->logits.data() + vocab, 1);
  const SequenceTokens second[] = {{whole, {ids.data() + half, 1}},
                                   {other, {ids.data(), half + 2}}};
  result = session.Step(second, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  expect_from(half, result->logits.data(), 1);
  ASSERT_TRUE(session.RemoveSequence(other).ok());
  const SequenceTokens third[] = {{whole, {ids.data() + half + 1, rest}}};
  result = session.Step(third, {.all_logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  expect_from(half + 1, result->logits.data(), rest);
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Case, Backend>>& info) {
  constexpr const char* kBackends[] = {"cpu", "reference"};
  const auto& [test_case, backend] = info.param;
  std::string name = test_case.name;
  std::ranges::replace(name, '-', '_');
  return name + "_" + kBackends[static_cast<int>(backend)];
}

INSTANTIATE_TEST_SUITE_P(All, Fixtures,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Backend::kCpu, Backend::kReference)),
                         NameOf);

}  // namespace
}  // namespace culet
