// Whole models on the CUDA dispatch against outputs that this library had no part in
// (tests/goldens, and the fixtures where they are there): a prompt, the same in pieces, greedy
// tokens, a ragged batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "base/scales.h"
#include "cases.h"
#include "culet/decoder.h"
#include "tests/decoder_fixture.h"

namespace culet {

struct ModelCase {
  const char* name = nullptr;
  bool own = false;  // one of the repository's
  double tolerance = 1e-5;
  double rounded = 2e-2;  // where products round their inputs to 16 bits
  std::size_t least = 0;  // longrope: shorter sequences turn otherwise than the goldens
  double codes = 0.1;     // with a cache of E4M3
  bool bounded = true;    // such a cache is not refused
};

// For tests' names and messages.
inline std::ostream& operator<<(std::ostream& out, const ModelCase& c) { return out << c.name; }

constexpr ModelCase kModelCases[] = {
    {.name = "llama-gqa"},
    {.name = "llama3-scaled-tied"},
    {.name = "qwen2-bias-tied"},
    {.name = "qwen3-qknorm"},
    {.name = "qwen3-moe"},
    // A tensor core's 14 bits move codes near a tie of E4M3:
    // 5.2e-2 of the logits (H200), which sums of 24 bits show to
    // be all.
    {.name = "qwen3-fp8", .tolerance = 1e-4, .rounded = 6e-2},
    {.name = "seed-oss"},
    {.name = "smollm3", .codes = 0.2},
    {.name = "phi3-longrope-short"},
    {.name = "phi3-longrope-long", .least = 33, .codes = 0.2},
    {.name = "phi4-mini", .codes = 0.2},
    {.name = "granite"},
    {.name = "olmo2", .bounded = false},
    {.name = "olmo3", .bounded = false},
    {.name = "mistral3-nested"},
    {.name = "ministral3-nested"},
    {.name = "ernie4-5", .codes = 0.2},
    {.name = "glm4"},
    {.name = "gemma2"},
    {.name = "gemma3"},
    {.name = "cohere"},
    {.name = "cohere2"},
    {.name = "ct-fp8-dynamic", .tolerance = 1e-4, .rounded = 6e-2},
    {.name = "ct-fp8-static", .tolerance = 1e-4, .rounded = 6e-2},
    {.name = "qwen2-moe"},
    // Rounding sends tokens to other experts, of which the router
    // keeps one 5e-5 above the next: 5 of its 320 decisions, 4 with
    // values of BF16. RoundedWithTheExactExperts is 1.2e-2 off.
    {.name = "qwen3-next", .rounded = 7e-2},
    {.name = "glm4-moe"},
    // Rounding sends a token or two to other experts: the
    // kept scores are 1e-4 and 5e-4 above the dropped ones.
    {.name = "ernie4-5-moe", .rounded = 6e-2},
    {.name = "minimax-m2", .rounded = 8e-2},
    {.name = "gptoss-bf16"},
    {.name = "llama4"},
    // Inputs rounded to 16 bits send one token of 40 to another
    // expert, as a forward pass in double that rounds them shows:
    // 6.5e-2 of the logits.
    {.name = "deepseek-v3", .rounded = 7e-2, .bounded = false},
    {.name = "deepseek-v2-groups", .own = true, .bounded = false},
    {.name = "deepseek-v3-halves", .own = true, .bounded = false},
    {.name = "fp8-block-skip", .tolerance = 1e-4, .rounded = 6e-2},
    {.name = "awq-llama-g128"},
    {.name = "awq-qwen3-g64"},
    {.name = "gptq-sym"},
    {.name = "gptq-descact"},
    {.name = "ct-w4a16-sym"},
    {.name = "ct-w4a16-asym"},
    {.name = "gptoss-mxfp4"},
    {.name = "gguf-llama"},
    {.name = "gguf-qwen3"},
    {.name = "llama-biases-llama3-tied", .own = true},
    {.name = "llama-linear", .own = true},
    {.name = "mistral-window", .own = true},
    {.name = "mixtral-shards", .own = true},
    {.name = "qwen2-some-windows", .own = true},
    {.name = "qwen3-yarn", .own = true},
    {.name = "qwen3-moe-shares", .own = true},
    // Codes of inputs near a tie of E4M3 are those of the
    // matrix unit's sums.
    {.name = "qwen3-moe-fp8", .own = true, .rounded = 3e-2}};

class CudaModels : public testing::TestWithParam<ModelCase> {
 protected:
  void SetUp() override {
    const ModelCase& c = GetParam();
    const std::string folder = c.own ? OwnGoldens(c.name) : FixtureFolder(c.name);
    if (folder.empty()) GTEST_SKIP() << "no fixture " << c.name;
    test_ = MakeTestDispatch({.round_product_inputs = false});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
    auto goldens = ReadGoldens(folder);
    ASSERT_TRUE(goldens.has_value()) << folder;
    goldens_ = *std::move(goldens);
    auto model = DecoderModel::Load(folder, test_.dispatch->memory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::make_unique<DecoderModel>(*std::move(model));
  }

  Session MakeSession(KernelDispatch& dispatch, const SessionOptions& options) {
    auto session = Session::Create(*model_, dispatch, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  }

  // Emulated experts take seconds a prompt. Where its length finds nothing more, its beginning will
  // do, which is longer than windows and chunks.
  void ShortenEmulatedPrompt() {
    constexpr std::size_t kTokens = 20;
    const std::size_t tokens = goldens_.input_ids.size();
    const bool emulated = test_.dispatch->memory().reads_host_memory();
    if (!emulated || model_->config().experts == 0 || tokens <= kTokens) return;
    const auto keep = [&](std::vector<float>& values, std::size_t parts) {
      const std::size_t part = values.size() / parts, kept = part / tokens * kTokens;
      for (std::size_t i = 1; i < parts; ++i) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * part), kept,
                    values.begin() + static_cast<std::ptrdiff_t>(i * kept));
      }
      values.resize(parts * kept);
    };
    keep(goldens_.logits, 1);
    keep(goldens_.hidden, static_cast<std::size_t>(model_->config().layers) + 1);
    goldens_.input_ids.resize(kTokens);
  }

  void ExpectGoldens(const StepResult& result, double tolerance) {
    ASSERT_EQ(result.logits.size(), goldens_.logits.size());
    ASSERT_EQ(result.hidden.size(), goldens_.hidden.size());
    EXPECT_LE(RelativeL2(result.logits.data(), goldens_.logits.data(), result.logits.size()),
              tolerance);
    EXPECT_LE(RelativeL2(result.hidden.data(), goldens_.hidden.data(), result.hidden.size()),
              tolerance);
  }

  TestDispatch test_;
  Goldens goldens_;
  std::unique_ptr<DecoderModel> model_;
};

TEST_P(CudaModels, LogitsAndHiddenStates) {
  ShortenEmulatedPrompt();
  Session session = MakeSession(*test_.dispatch, {.max_context = 64});
  const auto result = session.Prefill(*session.AddSequence(), goldens_.input_ids,
                                      {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ExpectGoldens(*result, GetParam().tolerance);
}

// Products that round their inputs to the weights' type, as a GPU does by default.
TEST_P(CudaModels, RoundedInputs) {
  const TestDispatch rounding = MakeTestDispatch({});
  Session session =
      MakeSession(*rounding.dispatch, {.max_context = 64, .value_type = DataType::kFloat32});
  const auto result = session.Prefill(*session.AddSequence(), goldens_.input_ids,
                                      {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ExpectGoldens(*result, GetParam().rounded);
}

// Values of bfloat16, which a GPU takes for models of such weights. Routers decide near ties
// and E4M3 its own by the bits that this rounds off: they are held loosely.
TEST_P(CudaModels, ValuesOfBfloat16) {
  const TestDispatch rounding = MakeTestDispatch({});
  Session session =
      MakeSession(*rounding.dispatch, {.max_context = 64, .value_type = DataType::kBfloat16});
  const auto result = session.Prefill(*session.AddSequence(), goldens_.input_ids,
                                      {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const bool e4m3 = model_->config().coding.is_e4m3(), routed = model_->config().experts > 0;
  ExpectGoldens(*result, e4m3 || routed ? 0.25 : 2e-2);
  // It is the default, and not that of the others.
  const Session by_default = MakeSession(*rounding.dispatch, {.max_context = 64});
  const LayerWeights& first = model_->weights().layers[0];
  const DataType weights = (first.linear.in.present() ? first.linear.in : first.q).type;
  const bool narrow = weights == DataType::kBfloat16 || IsCode(weights);
  EXPECT_EQ(by_default.options().value_type, narrow ? DataType::kBfloat16 : DataType::kFloat32);
  EXPECT_EQ(by_default.options().max_step_tokens, 2048);
}

// What a step's routers read and chose, in the order of the layers.
struct RouterDecision {
  std::vector<float> logits;         // (tokens, experts)
  std::vector<std::int32_t> chosen;  // (tokens, active), ascending
};

inline RouterDecision DecisionOf(KernelDispatch& dispatch, const NodeLaunch& launch) {
  const TensorNode& logits = launch.input_node(0);
  const std::int64_t tokens = logits.shape.rows, experts = logits.shape.cols;
  const auto active = static_cast<std::int64_t>(launch.node().params.routing.active);
  std::vector<std::byte> values(static_cast<std::size_t>(BytesOf(logits)));
  const auto second = std::ranges::find(launch.output_ids, launch.id + 1);
  const DevicePtr at = launch.outputs[static_cast<std::size_t>(second - launch.output_ids.begin())];
  std::vector<std::int32_t> routes(static_cast<std::size_t>(experts + 1 + 2 * tokens * active));
  EXPECT_TRUE(dispatch.memory()
                  .Download(values.data(), launch.input(0), values.size(), launch.stream)
                  .ok());
  EXPECT_TRUE(dispatch.memory().Download(routes.data(), at, routes.size() * 4, launch.stream).ok());
  RouterDecision found;
  for (std::int64_t i = 0; i < tokens * experts; ++i) {
    found.logits.push_back(static_cast<float>(LoadAsDouble(values.data(), logits.type, i)));
  }
  found.chosen.resize(static_cast<std::size_t>(tokens * active));
  std::vector<std::int64_t> count(static_cast<std::size_t>(tokens));
  for (std::int32_t e = 0; e < experts; ++e) {
    for (int i = routes[static_cast<std::size_t>(e)]; i < routes[static_cast<std::size_t>(e) + 1];
         ++i) {
      const std::int64_t token = routes[static_cast<std::size_t>(experts + 1 + i)] / active;
      const std::int64_t place = count[static_cast<std::size_t>(token)]++;
      found.chosen[static_cast<std::size_t>(token * active + place)] = e;
    }
  }
  return found;
}

// Rounding moves what routers read, and so tokens that lie near a tie to other experts. Where these
// few get the logits of an exact run, all else is as near as in a model without experts: of the
// models that are held more loosely than these.
TEST_P(CudaModels, RoundedWithTheExactExperts) {
  if (model_->config().experts == 0 || model_->config().coding.is_e4m3() ||
      GetParam().rounded <= ModelCase{}.rounded) {
    GTEST_SKIP() << "held as closely as others";
  }
  std::vector<RouterDecision> exact;
  Session session = MakeSession(*test_.dispatch, {.max_context = 64});
  session.SetHook([&](KernelDispatch& dispatch, const NodeLaunch& launch) {
    Status status = dispatch.launch(launch);
    if (status.ok() && launch.node().op == TensorOp::kRoute) {
      exact.push_back(DecisionOf(dispatch, launch));
    }
    return status;
  });
  ASSERT_TRUE(session.Prefill(*session.AddSequence(), goldens_.input_ids, {.hidden = true}).ok());
  ASSERT_FALSE(exact.empty());
  const TestDispatch rounding = MakeTestDispatch({});
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    Session rounded = MakeSession(*rounding.dispatch, {.max_context = 64, .value_type = type});
    std::size_t layer = 0, moved = 0, all = 0;
    rounded.SetHook([&](KernelDispatch& dispatch, const NodeLaunch& launch) {
      Status status = dispatch.launch(launch);
      if (!status.ok() || launch.node().op != TensorOp::kRoute) return status;
      const RouterDecision& of = exact[layer++];
      const RouterDecision found = DecisionOf(dispatch, launch);
      const TensorNode& logits = launch.input_node(0);
      const auto active = static_cast<std::ptrdiff_t>(launch.node().params.routing.active);
      const auto experts = static_cast<std::ptrdiff_t>(logits.shape.cols);
      std::vector<std::byte> values(static_cast<std::size_t>(BytesOf(logits)));
      for (std::ptrdiff_t token = 0; token < logits.shape.rows; ++token, ++all) {
        const bool same =
            std::equal(of.chosen.begin() + token * active, of.chosen.begin() + (token + 1) * active,
                       found.chosen.begin() + token * active);
        moved += same ? 0 : 1;
        for (std::ptrdiff_t i = token * experts; i < (token + 1) * experts; ++i) {
          StoreFromDouble(values.data(), logits.type, i,
                          (same ? found : of).logits[static_cast<std::size_t>(i)]);
        }
      }
      status =
          dispatch.memory().Upload(launch.input(0), values.data(), values.size(), launch.stream);
      return status.ok() ? dispatch.launch(launch) : status;
    });
    const auto result = rounded.Prefill(*rounded.AddSequence(), goldens_.input_ids,
                                        {.all_logits = true, .hidden = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(layer, exact.size());
    EXPECT_LE(moved, all / 10) << ToString(type);
    ExpectGoldens(*result, 2e-2);
  }
}

// The prompt in pieces meets keys that earlier steps stored, across blocks of the cache.
TEST_P(CudaModels, PromptInPieces) {
  ShortenEmulatedPrompt();
  Session session =
      MakeSession(*test_.dispatch, {.max_context = 64, .block_size = 4, .max_step_tokens = 7});
  const auto result = session.Prefill(*session.AddSequence(), goldens_.input_ids,
                                      {.all_logits = true, .hidden = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ExpectGoldens(*result, GetParam().tolerance);
}

TEST_P(CudaModels, GreedyTokens) {
  constexpr double kLeastMargin = 1e-3;
  Session session = MakeSession(*test_.dispatch, {.max_context = 80});
  const int sequence = *session.AddSequence();
  auto result = session.Prefill(sequence, goldens_.input_ids);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const bool emulated = test_.dispatch->memory().reads_host_memory();
  const std::size_t steps =
      std::min<std::size_t>(goldens_.greedy_ids.size(), emulated ? 6 : SIZE_MAX);
  for (std::size_t i = 0; i < steps; ++i) {
    if (goldens_.greedy_margin[i] > kLeastMargin) {
      EXPECT_EQ(result->next[0], goldens_.greedy_ids[i]) << "token " << i;
    }
    const SequenceTokens next{sequence, {&goldens_.greedy_ids[i], 1}};
    result = session.Step({&next, 1});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
  }
}

// Two sequences of different lengths in one batch: each gives what it gives alone.
TEST_P(CudaModels, RaggedBatch) {
  const std::vector<std::int32_t>& ids = goldens_.input_ids;
  const auto vocab = static_cast<std::size_t>(model_->config().vocab);
  const std::size_t half = ids.size() / 2;
  Session session =
      MakeSession(*test_.dispatch, {.max_sequences = 2, .max_context = 64, .block_size = 4});
  const int whole = *session.AddSequence(), other = *session.AddSequence();
  const SequenceTokens first[] = {{other, {ids.data() + 3, half - 1}}, {whole, {ids.data(), half}}};
  auto result = session.Step(first, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const SequenceTokens second[] = {{whole, {ids.data() + half, 1}},
                                   {other, {ids.data(), half + 2}}};
  result = session.Step(second, {.logits = true});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  if (half < GetParam().least) return;
  EXPECT_LE(RelativeL2(result->logits.data(), goldens_.logits.data() + half * vocab, vocab),
            GetParam().tolerance);
}

// A cache of codes with scales that the weights bound: the prompt, and its last token as a step of
// its own. Routers decide near ties by what this rounds off, as E4M3 does its own.
TEST_P(CudaModels, CachesOfE4m3) {
  const TestDispatch rounding = MakeTestDispatch({});
  const std::vector<std::int32_t>& ids = goldens_.input_ids;
  const bool loose = model_->config().coding.is_e4m3() || model_->config().experts > 0;
  for (KernelDispatch* dispatch : {test_.dispatch.get(), rounding.dispatch.get()}) {
    // The wider bound tells nothing of how products round.
    if (loose && GetParam().bounded && dispatch == test_.dispatch.get()) continue;
    const SessionOptions options{.max_context = 64, .cache_type = DataType::kFloat8_e4m3};
    if (!GetParam().bounded) {
      const Status refused = Session::Create(*model_, *dispatch, options).status();
      EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(refused.message().find("use another cache_type"), std::string::npos);
      continue;
    }
    Session session = MakeSession(*dispatch, options);
    const int sequence = *session.AddSequence();
    auto result = session.Prefill(sequence, ids, {.all_logits = true, .hidden = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    ExpectGoldens(*result, loose ? 0.3 : GetParam().codes);
    ASSERT_TRUE(session.Truncate(sequence, static_cast<int>(ids.size()) - 1).ok());
    const SequenceTokens last{sequence, {&ids.back(), 1}};
    result = session.Step({&last, 1}, {.logits = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    const std::size_t vocab = result->logits.size();
    EXPECT_LE(RelativeL2(result->logits.data(),
                         goldens_.logits.data() + goldens_.logits.size() - vocab, vocab),
              loose ? 0.3 : GetParam().codes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaModels, testing::ValuesIn(kModelCases), [](const auto& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace culet
