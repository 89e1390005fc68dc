// One model on several ranks: the goldens' bounds, equal bits on all ranks, and each rank's bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "asan.h"
#include "base/scales.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/ranks.h"
#include "decoder_fixture.h"
#include "graph/joined_weight.h"
#include "other_memory.h"
#include "rank_threads.h"

namespace culet {
namespace {

struct Case {
  const char* name;
  bool own = false;
  double tolerance = 1e-5;
  int most = 4;  // ranks
  ExpertsBy experts = ExpertsBy::kRule;
};

class TensorParallel : public testing::TestWithParam<std::tuple<Case, int>> {};

// The rank's answer to a model's goldens.
struct Answer {
  std::vector<float> logits, step_logits;
  std::vector<std::int32_t> tokens, drawn;
  double read = 0;
};

void AnswerOn(Communicator& ranks, const std::string& folder, const Goldens& goldens,
              ExpertsBy experts, Answer& answer) {
  LoadOptions load;
  load.experts = experts;
  load.rank = ranks.rank();
  load.ranks = ranks.size();
  const auto model = DecoderModel::Load(folder, HostMemory(), load);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  answer.read = model->read_bytes();
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  auto dispatch = MakeRankDispatch(MakeCpuDispatch(*gemm), ranks);
  ASSERT_TRUE(dispatch.ok()) << dispatch.status().ToString();
  SessionOptions options;
  options.max_sequences = 2;
  options.block_size = 8;
  auto session = Session::Create(*model, **dispatch, options);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  auto prompt = session->Prefill(sequence, goldens.input_ids, {.all_logits = true});
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  answer.logits = prompt->logits;
  const SequenceTokens next{sequence, {prompt->next.data(), 1}};
  DecodeOptions decode;
  decode.steps = kSanitized ? 4 : 12;
  const auto made = session->Decode({&next, 1}, decode);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  answer.tokens = prompt->next;
  answer.tokens.insert(answer.tokens.end(), made->front().tokens.begin(),
                       made->front().tokens.end());
  // Drawn tokens, in a batch of two.
  const int other = *session->AddSequence();
  for (const int each : {sequence, other}) {
    SamplingOptions sampling;
    sampling.temperature = 1.5f;
    sampling.seed = static_cast<std::uint64_t>(each) + 7;
    ASSERT_TRUE(session->SetSampling(each, sampling).ok());
  }
  ASSERT_TRUE(session->Truncate(sequence, 0).ok());
  const std::vector<SequenceTokens> both = {{sequence, goldens.input_ids},
                                            {other, goldens.input_ids}};
  auto drawn = session->Prefill(both, {.logits = true});
  ASSERT_TRUE(drawn.ok()) << drawn.status().ToString();
  answer.step_logits = drawn->logits;
  const std::vector<SequenceTokens> parts = {{sequence, {drawn->next.data(), 1}},
                                             {other, {drawn->next.data() + 1, 1}}};
  decode.steps = kSanitized ? 4 : 20;
  const auto more = session->Decode(parts, decode);
  ASSERT_TRUE(more.ok()) << more.status().ToString();
  for (const DecodedTokens& each : *more) {
    answer.drawn.insert(answer.drawn.end(), each.tokens.begin(), each.tokens.end());
  }
}

// Bytes of what each rank needs: vectors and routers, and the heads of keys of fewer than there are
// ranks.
double SharedBytes(const std::string& folder, bool keys) {
  double bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file_name = entry.path().filename().string();
    if (!file_name.starts_with("model") || !file_name.ends_with(".safetensors")) continue;
    const auto file = SafetensorsFile::Open(entry.path().string());
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const auto has = [&](const char* part) {
        return tensor.name.find(part) != std::string::npos;
      };
      const bool is_key = has("k_proj") || has("v_proj") || has("qkv_proj");
      const bool shared = tensor.shape.size() < 2 || has("mlp.gate.weight") || has("_a_proj") ||
                          has("router") || has("block_sparse_moe.gate") ||
                          has("shared_expert_gate");
      if (shared || (keys && is_key)) bytes += static_cast<double>(tensor.bytes);
    }
  }
  return bytes;
}

TEST_P(TensorParallel, EveryRankHasTheGoldens) {
  const auto& [test_case, size] = GetParam();
  const std::string folder =
      test_case.own ? OwnGoldens(test_case.name) : FixtureFolder(test_case.name);
  if (folder.empty()) GTEST_SKIP() << "no fixture " << test_case.name;
  const auto goldens = ReadGoldens(folder);
  ASSERT_TRUE(goldens.has_value());
  if (size > test_case.most) {
    const auto whole = ReadDecoderConfig(folder);
    ASSERT_TRUE(whole.ok());
    const auto part = ShardOf(*whole, 0, size, test_case.experts);
    EXPECT_EQ(part.status().code(), StatusCode::kInvalidArgument);
    const std::string most = "at most " + std::to_string(test_case.most) + " part";
    EXPECT_NE(part.status().message().find(most), std::string::npos) << part.status().message();
    return;
  }
  std::vector<Answer> answers(static_cast<std::size_t>(size));
  OnRanks(size, [&](Communicator& ranks) {
    AnswerOn(ranks, folder, *goldens, test_case.experts,
             answers[static_cast<std::size_t>(ranks.rank())]);
  });
  if (HasFailure()) return;
  const Answer& first = answers.front();
  ASSERT_EQ(first.logits.size(), goldens->logits.size());
  EXPECT_LE(RelativeL2(first.logits.data(), goldens->logits.data(), first.logits.size()),
            test_case.tolerance);
  std::size_t sure = 0;
  while (sure < goldens->greedy_ids.size() && goldens->greedy_margin[sure] > 1e-3) ++sure;
  sure = std::min(sure, first.tokens.size());
  EXPECT_EQ(std::vector(first.tokens.begin(), first.tokens.begin() + static_cast<int>(sure)),
            std::vector(goldens->greedy_ids.begin(),
                        goldens->greedy_ids.begin() + static_cast<int>(sure)));
  double read = 0;
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.logits, first.logits);
    EXPECT_EQ(answer.step_logits, first.step_logits);
    EXPECT_EQ(answer.tokens, first.tokens);
    EXPECT_EQ(answer.drawn, first.drawn);
    read += answer.read;
  }
  const auto whole = DecoderModel::Load(folder, HostMemory());
  ASSERT_TRUE(whole.ok());
  const bool keys = size > whole->config().kv_heads;
  const double most = whole->read_bytes() + (size - 1) * SharedBytes(folder, keys);
  EXPECT_LE(read, 1.001 * most);  // a block of scales may be of two parts
  EXPECT_GE(read, whole->read_bytes());
  // Of a model of some size that is next to nothing.
  if (size == 2 && !keys && !test_case.own) {
    EXPECT_LE(read, 1.05 * whole->read_bytes());
  }
}

Case ByExpert(const char* name) { return {.name = name, .experts = ExpertsBy::kExpert}; }

INSTANTIATE_TEST_SUITE_P(
    Models, TensorParallel,
    testing::Combine(
        testing::Values(Case{.name = "llama-gqa"}, Case{.name = "llama3-scaled-tied"},
                        Case{.name = "qwen2-bias-tied"}, Case{.name = "qwen3-qknorm"},
                        Case{.name = "qwen3-moe"}, Case{.name = "qwen3-fp8", .tolerance = 1e-4},
                        Case{.name = "fp8-block-skip", .tolerance = 1e-4, .most = 2},
                        Case{.name = "cohere2"}, Case{.name = "gemma3"},
                        Case{.name = "ct-fp8-static", .tolerance = 1e-4},
                        Case{.name = "ct-w4a16-asym"}, Case{.name = "awq-qwen3-g64"},
                        Case{.name = "gptq-sym", .most = 2}, Case{.name = "gptoss-bf16"},
                        Case{.name = "gptoss-mxfp4"}, Case{.name = "deepseek-v3"},
                        Case{.name = "qwen2-moe"}, Case{.name = "phi4-mini"},
                        Case{.name = "seed-oss"},
                        Case{.name = "llama-biases-llama3-tied", .own = true},
                        Case{.name = "mixtral-shards", .own = true},
                        Case{.name = "qwen3-moe-shares", .own = true}, ByExpert("qwen3-moe"),
                        ByExpert("gptoss-bf16"), ByExpert("gptoss-mxfp4"), ByExpert("deepseek-v3"),
                        ByExpert("qwen2-moe"), ByExpert("llama4"),
                        Case{.name = "mixtral-shards", .own = true, .experts = ExpertsBy::kExpert}),
        // Two and three are even and odd parts, and more than some models have heads of keys: with
        // sanitizers they say all.
        testing::ValuesIn(kSanitized ? std::vector{2, 3} : std::vector{1, 2, 3, 4})),
    [](const auto& info) {
      std::string name = std::get<0>(info.param).name;
      std::replace(name.begin(), name.end(), '-', '_');
      if (std::get<0>(info.param).experts == ExpertsBy::kExpert) name += "_by_expert";
      return name + "_" + std::to_string(std::get<1>(info.param));
    });

TEST(TensorParallelWeights, ExpertsAreSharedByTheRuleOrAsTold) {
  auto config = ReadDecoderConfig(CULET_SOURCE_DIR "/examples/models/qwen3-30b-a3b");
  ASSERT_TRUE(config.ok());
  const int width = config->moe_intermediate;
  auto part = ShardOf(*config, 1, 2);
  ASSERT_TRUE(part.ok());
  EXPECT_FALSE(part->shard.experts.present());
  EXPECT_LT(part->moe_intermediate, width);
  config->experts = 7;
  part = ShardOf(*config, 1, 2, ExpertsBy::kExpert);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->shard.experts.bounds, (std::vector<std::int64_t>{0, 3, 7}));
  EXPECT_EQ(part->moe_intermediate, width);
  // Fewer blocks of scales than ranks, of which none can be in two parts.
  config->coding.form = WeightCoding::Form::kFp8;
  config->coding.weights = {QuantType::kB, 128};
  config->moe_intermediate = 128;
  part = ShardOf(*config, 0, 2);
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_TRUE(part->shard.experts.present());
  part = ShardOf(*config, 0, 2, ExpertsBy::kWidth);
  EXPECT_NE(part.status().message().find("at most 1 part"), std::string::npos)
      << part.status().message();
  EXPECT_NE(ShardOf(*config, 0, 8, ExpertsBy::kExpert).status().message().find("at most 7 parts"),
            std::string::npos);
  config->experts = 0;
  EXPECT_NE(ShardOf(*config, 0, 2, ExpertsBy::kExpert).status().message().find("no routed experts"),
            std::string::npos);
}

// As where a rank reads them in place, though one product serves q, k and v, and another gate and
// up.
TEST(TensorParallelWeights, SlicesOfCodesJoinOnADevice) {
  for (const char* name : {"ct-w4a16-asym", "awq-qwen3-g64", "gptq-sym"}) {
    const std::string folder = FixtureFolder(name);
    if (folder.empty()) GTEST_SKIP() << "no fixture " << name;
    LoadOptions load;
    load.rank = 1;
    load.ranks = 2;
    OtherMemory memory;
    const auto there = DecoderModel::Load(folder, memory, load);
    ASSERT_TRUE(there.ok()) << there.status().ToString();
    const auto here = DecoderModel::Load(folder, HostMemory(), load);
    ASSERT_TRUE(here.ok()) << here.status().ToString();
    const LayerWeights &layer = there->weights().layers[1], &own = here->weights().layers[1];
    const Weight* const qkv[] = {&layer.q, &layer.k, &layer.v};
    const Weight* const gate_up[] = {&layer.gate, &layer.up};
    EXPECT_EQ(JoinedWeight(qkv).rows, own.q.rows + own.k.rows + own.v.rows) << name;
    EXPECT_EQ(JoinedWeight(gate_up).rows, own.gate.rows + own.up.rows) << name;
    for (Weight LayerWeights::*each :
         {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::o,
          &LayerWeights::gate, &LayerWeights::up, &LayerWeights::down}) {
      const Weight &a = layer.*each, &b = own.*each;
      ASSERT_EQ(a.type, DataType::kUint4) << a.name;
      const auto same = [](DevicePtr x, DevicePtr y, std::int64_t bytes) {
        return std::memcmp(FromDevicePtr<const void>(x), FromDevicePtr<const void>(y),
                           static_cast<std::size_t>(bytes)) == 0;
      };
      const auto size = [](DataType type) { return static_cast<std::int64_t>(SizeOf(type)); };
      EXPECT_TRUE(same(a.data_ptr, b.data_ptr, BytesOf(a.type, a.rows * a.cols))) << a.name;
      EXPECT_TRUE(same(a.scales_ptr, b.scales_ptr, ScalesOf(a) * size(a.scales_type))) << a.name;
      EXPECT_TRUE(same(a.zeros_ptr, b.zeros_ptr, ScalesOf(a) * size(a.zeros_type))) << a.name;
    }
  }
}

}  // namespace
}  // namespace culet
