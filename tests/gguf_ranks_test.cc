// Ranks that share a GGUF file: together they are the model, and columns that are no whole blocks
// are refused.
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/ranks.h"
#include "decoder_fixture.h"
#include "gguf_builder.h"
#include "gguf_converted.h"
#include "model/gguf_checkpoint.h"
#include "model/gguf_config.h"
#include "rank_threads.h"

namespace culet {
namespace {

using testing::HasSubstr;

std::vector<float> LogitsOn(Communicator& ranks, const std::string& path,
                            const std::vector<std::int32_t>& ids) {
  LoadOptions load;
  load.rank = ranks.rank();
  load.ranks = ranks.size();
  const auto model = DecoderModel::Load(path, HostMemory(), load);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  if (!model.ok()) return {};
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeRankDispatch(MakeCpuDispatch(gemm), ranks);
  EXPECT_TRUE(dispatch.ok()) << dispatch.status().ToString();
  auto session = Session::Create(*model, **dispatch, {});
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  const auto result = session->Prefill(sequence, ids, {.all_logits = true});
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? result->logits : std::vector<float>();
}

// Of one rank and of two.
void ExpectEqualOnRanks(const std::string& path, const std::vector<std::int32_t>& ids) {
  std::vector<float> of_one, of_two[2];
  OnRanks(1, [&](Communicator& ranks) { of_one = LogitsOn(ranks, path, ids); });
  OnRanks(2, [&](Communicator& ranks) { of_two[ranks.rank()] = LogitsOn(ranks, path, ids); });
  ASSERT_FALSE(of_one.empty());
  ASSERT_EQ(of_one.size(), of_two[0].size());
  EXPECT_EQ(of_two[0], of_two[1]);
  EXPECT_LE(RelativeL2(of_two[0].data(), of_one.data(), of_one.size()), 1e-5);
}

class GgufRanks : public GgufConverted {};

TEST_P(GgufRanks, AreTheModelTogether) {
  const auto goldens = ReadGoldens(folder_);
  ASSERT_TRUE(goldens.has_value());
  builder_.Write(path_);
  ExpectEqualOnRanks(path_, goldens->input_ids);
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufRanks,
    testing::Values(
        GgufCase{.golden = "mixtral-shards", .architecture = "llama", .own = true, .turned = true},
        GgufCase{.golden = "phi4-mini", .architecture = "phi3"},
        GgufCase{.golden = "gptoss-mxfp4", .architecture = "gpt-oss"},
        GgufCase{.golden = "deepseek-v3", .architecture = "deepseek2", .gating = 2},
        GgufCase{
            .golden = "deepseek-v3", .architecture = "deepseek2", .gating = 2, .whole_kv_b = true},
        GgufCase{.golden = "glm4", .architecture = "glm4"},
        GgufCase{.golden = "qwen2-moe", .architecture = "qwen2moe"}));

// Q8_0's blocks decide where columns are cut: 96 columns are three of them.
TEST(GgufRanksOfCodes, CutBetweenBlocks) {
  GgufBuilder file;
  file.Add("general.architecture", "llama");
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::uint32_t>>{{"block_count", 1},
                                                          {"context_length", 64},
                                                          {"embedding_length", 64},
                                                          {"feed_forward_length", 96},
                                                          {"attention.head_count", 4},
                                                          {"attention.head_count_kv", 2}}) {
    file.Add("llama." + key, value);
  }
  file.Add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::uint32_t state = 1;
  const auto tensor = [&](const std::string& name, std::uint64_t cols, std::uint64_t rows) {
    std::string blocks;
    for (std::uint64_t block = 0; block < cols * rows / 32; ++block) {
      blocks += std::string("\x00\x18", 2);  // 2^-9
      for (int i = 0; i < 32; ++i) {
        state = state * 1664525 + 1013904223;
        blocks += static_cast<char>(state >> 24);
      }
    }
    file.Tensor(name, {cols, rows}, 8, blocks);
  };
  tensor("token_embd.weight", 64, 96);
  tensor("blk.0.attn_q.weight", 64, 64);
  tensor("blk.0.attn_k.weight", 64, 32);
  tensor("blk.0.attn_v.weight", 64, 32);
  tensor("blk.0.attn_output.weight", 64, 64);
  tensor("blk.0.ffn_gate.weight", 64, 96);
  tensor("blk.0.ffn_up.weight", 64, 96);
  tensor("blk.0.ffn_down.weight", 96, 64);
  std::string ones;
  for (int i = 0; i < 64; ++i) ones += GgufBuilder::Bytes(1.0f);
  for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    file.Tensor(std::string(name) + ".weight", {64}, 0, ones);
  }
  const std::string path = testing::TempDir() + "/culet_ranks_of_codes.gguf";
  file.Write(path);
  ExpectEqualOnRanks(path, {5, 17, 90, 3, 3, 60});

  const auto config = ReadDecoderConfig(path);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto part = ShardOf(*config, 1, 2);
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_EQ(part->intermediate % 32, 0);
  const auto too_many = ShardOf(*config, 0, 4);
  EXPECT_EQ(too_many.status().code(), StatusCode::kInvalidArgument);

  const auto opened = GgufFile::Open(path);
  ASSERT_TRUE(opened.ok());
  WeightMemory memory(HostMemory());
  GgufCheckpoint checkpoint(*opened, **GgufArchitectureOf(*opened), *config, memory);
  WeightRequest request{"model.layers.0.mlp.down_proj.weight", 64, 48};
  request.of_cols = 96;
  request.first_col = 48;
  EXPECT_FALSE(checkpoint.GetPart(request).present());
  EXPECT_EQ(checkpoint.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(checkpoint.status().message(),
              HasSubstr("tensor blk.0.ffn_down.weight is Q8_0, of blocks of 32 columns, and a "
                        "rank's part is 48 columns from 48 on"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace culet
