// What a decoder must hold beyond single outputs: every number of rows, sequences beside each
// other, models beside each other, long contexts, a thousand steps, every tensor of the file in
// use.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

constexpr const char* kCheckpoints[] = {
    "llama-biases-llama3-tied", "llama-linear", "mistral-window",   "mixtral-shards",
    "qwen2-some-windows",       "qwen3-yarn",   "qwen3-moe-shares", "qwen3-moe-fp8"};

struct Checkpoint {
  explicit Checkpoint(const std::string& name)
      : folder(OwnGoldens(name)),
        goldens(*ReadGoldens(folder)),
        model(*DecoderModel::Load(folder, HostMemory())),
        vocab(static_cast<std::size_t>(model.config().vocab)) {}

  std::string folder;
  Goldens goldens;
  DecoderModel model;
  std::size_t vocab;

  std::span<const std::int32_t> Ids(std::size_t first, std::size_t count) const {
    return {goldens.input_ids.data() + first, count};
  }
  // A row of logits against the prompt's at `position`.
  double Error(const float* logits, std::size_t position) const {
    return RelativeL2(logits, goldens.logits.data() + position * vocab, vocab);
  }
};

struct Dispatches {
  Gemm gemm = *Gemm::Create();
  std::unique_ptr<KernelDispatch> cpu = MakeCpuDispatch(gemm), reference = MakeReferenceDispatch();
  std::vector<KernelDispatch*> all = {cpu.get(), reference.get()};
};

// So many sequences, each a beginning of the prompt of another length: all together in one step,
// then a token more of each, which is a product of exactly so many rows.
TEST(Acceptance, EveryNumberOfRows) {
  Dispatches dispatches;
  for (const char* name : {"qwen3-moe-shares", "mistral-window", "qwen3-moe-fp8"}) {
    const Checkpoint checkpoint(name);
    const std::size_t prompt = checkpoint.goldens.input_ids.size();
    for (KernelDispatch* dispatch : dispatches.all) {
      for (const std::size_t m : {1, 2, 3, 5, 8, 9, 17, 32}) {
        auto session = Session::Create(
            checkpoint.model, *dispatch,
            {.max_sequences = static_cast<int>(m), .max_context = 32, .block_size = 8});
        ASSERT_TRUE(session.ok()) << session.status().ToString();
        std::vector<SequenceTokens> first, second;
        for (std::size_t i = 0; i < m; ++i) {
          const std::size_t length = 1 + (i * 5 + 2) % (prompt - 1);
          const int sequence = *session->AddSequence();
          first.push_back({sequence, checkpoint.Ids(0, length)});
          second.push_back({sequence, checkpoint.Ids(length, 1)});
        }
        std::ranges::reverse(second);
        for (const auto& batch : {first, second}) {
          const auto result = session->Step(batch, {.logits = true});
          ASSERT_TRUE(result.ok()) << result.status().ToString();
          for (std::size_t i = 0; i < m; ++i) {
            const auto position = static_cast<std::size_t>(*session->LengthOf(batch[i].sequence));
            EXPECT_LE(checkpoint.Error(&result->logits[i * checkpoint.vocab], position - 1), 1e-5)
                << name << ", m = " << m << ", row " << i;
          }
        }
      }
    }
  }
}

// Models of different rotary frequencies, sizes and windows take turns on one dispatch.
TEST(Acceptance, TwoModelsInTurns) {
  Dispatches dispatches;
  const Checkpoint one("llama-linear"), other("mistral-window");
  ASSERT_NE(one.model.config().rope.theta, other.model.config().rope.theta);
  for (KernelDispatch* dispatch : dispatches.all) {
    auto a = Session::Create(one.model, *dispatch, {.max_context = 32});
    auto b = Session::Create(other.model, *dispatch, {.max_context = 32});
    ASSERT_TRUE(a.ok() && b.ok());
    const int in_a = *a->AddSequence(), in_b = *b->AddSequence();
    const std::size_t prompt = one.goldens.input_ids.size();
    for (std::size_t i = 0; i < prompt; i += 2) {
      const SequenceTokens to_a[] = {{in_a, one.Ids(i, 2)}}, to_b[] = {{in_b, other.Ids(i, 2)}};
      const auto from_a = a->Step(to_a, {.logits = true}), from_b = b->Step(to_b, {.logits = true});
      ASSERT_TRUE(from_a.ok() && from_b.ok());
      EXPECT_LE(one.Error(from_a->logits.data(), i + 1), 1e-5) << i;
      EXPECT_LE(other.Error(from_b->logits.data(), i + 1), 1e-5) << i;
    }
  }
}

// The graph reads exactly what the files hold: biases and norms of heads are there where the file
// has them.
TEST(Acceptance, EveryTensorIsInTheGraph) {
  const auto dispatch = MakeReferenceDispatch();
  for (const char* name : kCheckpoints) {
    const Checkpoint checkpoint(name);
    auto session = Session::Create(checkpoint.model, *dispatch, {.max_context = 16});
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE(session->Prefill(*session->AddSequence(), checkpoint.Ids(0, 2)).ok());
    std::multiset<std::string> read;
    const auto add = [&](const Weight& weight) {
      if (!weight.present()) return;
      read.insert(weight.name);
      if (weight.scales_ptr != 0) read.insert(weight.name + "_scale_inv");
    };
    for (const TensorNode& node : session->last_executor()->graph().nodes()) {
      for (const auto weight : kWeightsOfOp) add(node.params.*weight);
      if (node.params.experts == nullptr) continue;
      for (const Weight& weight : node.params.experts->weights) add(weight);
      for (const Weight& bias : node.params.experts->biases) add(bias);
    }
    std::multiset<std::string> stored;
    for (const auto& file : std::filesystem::directory_iterator(checkpoint.folder)) {
      const std::string path = file.path().string();
      if (!file.path().filename().string().starts_with("model") ||
          !path.ends_with(".safetensors")) {
        continue;
      }
      const auto opened = SafetensorsFile::Open(path);
      ASSERT_TRUE(opened.ok()) << path;
      for (const SafetensorsTensor& tensor : opened->tensors()) stored.insert(tensor.name);
    }
    if (checkpoint.model.config().tied_head) {
      stored.insert("model.embed_tokens.weight");  // read twice
      stored.erase("lm_head.weight");
    }
    std::erase_if(stored, [](const std::string& tensor) { return tensor.ends_with("inv_freq"); });
    EXPECT_EQ(read, stored) << name;
  }
}

// A model whose contexts may grow long.
DecoderModel LongModel() {
  const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "rope_theta": 1e5,
    "max_position_embeddings": 2048})",
                                         "config");
  return *DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
}

constexpr int kPrompt = 30, kSteps = 1000;

struct Steps {
  std::vector<std::int32_t> tokens;  // the prompt's and those of the steps
  std::vector<float> logits;         // of each step
};

// The prompt, then a thousand greedy steps: past 256 and 1024 keys and many blocks.
Steps Decode(const DecoderModel& model, KernelDispatch& dispatch) {
  Steps run;
  for (int i = 0; i < kPrompt; ++i) run.tokens.push_back((i * 37 + 11) % 96);
  auto session = Session::Create(model, dispatch, {.max_context = kPrompt + kSteps});
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  auto result = session->Prefill(sequence, run.tokens);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  run.tokens.reserve(kPrompt + kSteps);  // steps point at tokens
  for (int step = 0; step < kSteps; ++step) {
    // Greedy tokens alone soon repeat each other.
    run.tokens.push_back((result->next[0] + step * step) % 96);
    const SequenceTokens next[] = {{sequence, {&run.tokens.back(), 1}}};
    result = session->Step(next, {.logits = true});
    if (!result.ok()) {
      ADD_FAILURE() << result.status().ToString();
      return run;
    }
    run.logits.insert(run.logits.end(), result->logits.begin(), result->logits.end());
  }
  return run;
}

TEST(Acceptance, AThousandStepsTwice) {
  const DecoderModel model = LongModel();
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm, {.determinism = Determinism::kRepeatable});
  const Steps one = Decode(model, *dispatch), two = Decode(model, *dispatch);
  EXPECT_EQ(one.tokens, two.tokens);
  EXPECT_TRUE(one.logits == two.logits);
}

// Single steps, past every edge, give what the definition gives for all tokens at once.
TEST(Acceptance, StepsEqualThePromptAsAWhole) {
  const DecoderModel model = LongModel();
  Dispatches dispatches;
  const Steps steps = Decode(model, *dispatches.cpu);
  auto session = Session::Create(model, *dispatches.reference,
                                 {.max_context = 2048, .max_step_tokens = kPrompt + kSteps});
  ASSERT_TRUE(session.ok());
  const auto whole = session->Prefill(*session->AddSequence(), steps.tokens, {.all_logits = true});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  for (std::size_t step = 0; step < kSteps; ++step) {
    const double error =
        RelativeL2(&steps.logits[step * 96], &whole->logits[(kPrompt + step) * 96], 96);
    ASSERT_LE(error, 1e-5) << "position " << kPrompt + step;
  }
}

}  // namespace
}  // namespace culet
