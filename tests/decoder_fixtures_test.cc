// Whole models against outputs that this library had no part in: the repository's own checkpoints
// (tests/goldens), and fixtures from the models' own library where they are there.
//
// Two facts about the fixtures, both measured by this library's references:
// - Their rotary frequencies were rounded to BF16 along with the weights: with that, the errors are
//   some 1e-7, without, 2e-4 and growing with the position. So the models are loaded that way here.
// - In qwen3-fp8 three inputs of products, of positions 29 to 31, lie within 6e-7 of the middle
//   between two E4M3 numbers (one exactly there), and the goldens' FP32 rounding put them on the
//   other side than exact arithmetic does. Each moves its row and, through the keys, all later ones
//   by some per cent, the noise of E4M3 itself. The reference in FP32 has them on the goldens' side
//   and is held to the tolerance at all positions. The other dispatches are held to it before, and
//   to that noise from there on; decoder_ties_test.cc sets the three codes and holds them to it.
//   tests/goldens/qwen3-fp8-tie is such a checkpoint of the repository's own.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

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
  // Where inputs of E4M3 products lie on ties: the first such position; none when negative.
  int first_tie = -1;
};
constexpr Case kCases[] = {{.name = "llama-gqa"},
                           {.name = "llama3-scaled-tied"},
                           {.name = "qwen2-bias-tied"},
                           {.name = "qwen3-qknorm"},
                           {.name = "qwen3-moe"},
                           {.name = "qwen3-fp8", .tolerance = 5e-3, .first_tie = 29},
                           {.name = "llama-biases-llama3-tied", .own = true},
                           {.name = "llama-partial-linear", .own = true},
                           {.name = "mistral-window", .own = true},
                           {.name = "mixtral-shards", .own = true},
                           {.name = "qwen2-some-windows", .own = true},
                           {.name = "qwen3-yarn", .own = true},
                           {.name = "qwen3-moe-shares", .own = true},
                           {.name = "qwen3-moe-fp8", .own = true},
                           {.name = "qwen3-fp8-tie", .own = true, .first_tie = 8}};

constexpr double kQuantisationNoise = 0.1;
constexpr double kLeastMargin = 1e-3;
constexpr double kLeastMarginAfterTies = 0.5;

enum class Backend { kCpu, kReference, kReferenceFloat32 };

class Fixtures : public testing::TestWithParam<std::tuple<Case, Backend>> {
 protected:
  void SetUp() override {
    const auto [test_case, backend] = GetParam();
    folder_ = test_case.own ? OwnGoldens(test_case.name) : FixtureFolder(test_case.name);
    if (folder_.empty()) {
      GTEST_SKIP() << "no fixture " << test_case.name
                   << "; set CULET_FIXTURES to the folder that holds it";
    }
    tolerance_ = test_case.tolerance;
    if (test_case.first_tie >= 0 && backend != Backend::kReferenceFloat32) {
      rows_before_ties_ = static_cast<std::size_t>(test_case.first_tie);
    }
    auto goldens = ReadGoldens(folder_);
    ASSERT_TRUE(goldens.has_value()) << folder_;
    goldens_ = *std::move(goldens);
    auto model = DecoderModel::Load(folder_, HostMemory(),
                                    {test_case.own ? DataType::kNull : DataType::kBfloat16});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
    if (backend == Backend::kCpu) {
      auto gemm = Gemm::Create();
      ASSERT_TRUE(gemm.ok()) << gemm.status().ToString();
      gemm_ = std::make_unique<Gemm>(*std::move(gemm));
      dispatch_ = MakeCpuDispatch(*gemm_);
    } else {
      dispatch_ = MakeReferenceDispatch(backend == Backend::kReference ? Arithmetic::kFloat64
                                                                       : Arithmetic::kFloat32);
    }
  }

  Session MakeSession(const SessionOptions& options) {
    auto session = Session::Create(*model_, *dispatch_, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  // `rows` of `width` from prompt position `first` on.
  void CompareRows(const float* values, const float* goldens, std::size_t first, std::size_t rows,
                   std::size_t width, const std::string& what) {
    const std::size_t end = first + rows;
    const std::size_t split = std::clamp(rows_before_ties_, first, end);
    const std::size_t strict = (split - first) * width;
    if (strict > 0) {
      EXPECT_LE(RelativeL2(values, goldens, strict), tolerance_) << what;
    }
    if (split < end) {
      EXPECT_LE(RelativeL2(values + strict, goldens + strict, (end - split) * width),
                kQuantisationNoise)
          << what << " from position " << split;
    }
  }

  void CompareAll(const StepResult& result) {
    const auto hidden = static_cast<std::size_t>(model_->config().hidden);
    const std::size_t tokens = goldens_.input_ids.size();
    ASSERT_EQ(result.logits.size(), goldens_.logits.size());
    ASSERT_EQ(result.hidden.size(), goldens_.hidden.size());
    CompareRows(result.logits.data(), goldens_.logits.data(), 0, tokens,
                static_cast<std::size_t>(model_->config().vocab), "logits");
    for (std::size_t i = 0; i <= static_cast<std::size_t>(model_->config().layers); ++i) {
      const std::size_t at = i * tokens * hidden;
      CompareRows(result.hidden.data() + at, goldens_.hidden.data() + at, 0, tokens, hidden,
                  "hidden state " + std::to_string(i));
    }
  }

  bool ties() const { return rows_before_ties_ != kAllRows; }

  static constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();
  std::string folder_;
  double tolerance_ = 0;
  std::size_t rows_before_ties_ = kAllRows;
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
  // Kernels for other numbers of rows add in other orders, which decides ties anew.
  if (ties() && std::get<1>(GetParam()) == Backend::kCpu) tolerance_ = kQuantisationNoise;
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
  const double least_margin = ties() ? kLeastMarginAfterTies : kLeastMargin;
  std::size_t compared = 0;
  for (std::size_t i = 0; i < goldens_.greedy_ids.size(); ++i) {
    if (goldens_.greedy_margin[i] > least_margin) {
      EXPECT_EQ(result->next[0], goldens_.greedy_ids[i])
          << "token " << i << " of margin " << goldens_.greedy_margin[i];
      ++compared;
    }
    // The golden token goes on, so that one near tie does not change the rest.
    const SequenceTokens next{sequence, {&goldens_.greedy_ids[i], 1}};
    result = session.Step({&next, 1});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
  }
  EXPECT_GE(compared, ties() ? 1 : goldens_.greedy_ids.size() / 2);
}

// Two sequences of different lengths in one batch, one of them joined in the middle: each gives
// what it gives alone.
TEST_P(Fixtures, RaggedBatch) {
  const std::vector<std::int32_t>& ids = goldens_.input_ids;
  const auto vocab = static_cast<std::size_t>(model_->config().vocab);
  Session session = MakeSession({.max_sequences = 3, .max_context = 64, .block_size = 8});
  const int other = *session.AddSequence(), whole = *session.AddSequence();
  // The blocks of the two alternate.
  const SequenceTokens first[] = {{other, {ids.data() + 5, 9}}, {whole, {ids.data(), 11}}};
  auto result = session.Step(first, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  CompareRows(result->logits.data() + vocab, goldens_.logits.data() + 10 * vocab, 10, 1, vocab,
              "position 10");
  const SequenceTokens second[] = {{whole, {ids.data() + 11, 1}}, {other, {ids.data(), 13}}};
  result = session.Step(second, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  CompareRows(result->logits.data(), goldens_.logits.data() + 11 * vocab, 11, 1, vocab,
              "position 11");
  ASSERT_TRUE(session.RemoveSequence(other).ok());
  const SequenceTokens third[] = {{whole, {ids.data() + 12, ids.size() - 12}}};
  result = session.Step(third, {.all_logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  CompareRows(result->logits.data(), goldens_.logits.data() + 12 * vocab, 12, ids.size() - 12,
              vocab, "position 12 on");
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Case, Backend>>& info) {
  constexpr const char* kBackends[] = {"cpu", "reference", "reference_float32"};
  const auto& [test_case, backend] = info.param;
  std::string name = test_case.name;
  std::ranges::replace(name, '-', '_');
  return name + "_" + kBackends[static_cast<int>(backend)];
}

INSTANTIATE_TEST_SUITE_P(All, Fixtures,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Backend::kCpu, Backend::kReference,
                                                          Backend::kReferenceFloat32)),
                         NameOf);

}  // namespace
}  // namespace culet
