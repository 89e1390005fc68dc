// Checkpoints of several architectures as GGUF files, named and laid out as llama.cpp's converter
// does it, against the goldens of the checkpoints.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"
#include "gguf_builder.h"
#include "gguf_converted.h"
#include "model/gguf_config.h"
#include "model/gguf_file.h"

namespace culet {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

class GgufArchitectures : public GgufConverted {};

std::vector<float> LogitsOf(const std::string& path, const std::vector<std::int32_t>& ids) {
  const auto model = DecoderModel::Load(path, HostMemory());
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  if (!model.ok()) return {};
  EXPECT_THAT(model->config().warnings, testing::IsEmpty());
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  auto session = Session::Create(*model, *dispatch, {});
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  const auto result = session->Prefill(sequence, ids, {.all_logits = true});
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? result->logits : std::vector<float>();
}

TEST_P(GgufArchitectures, IsTheCheckpointThatItWasMadeFrom) {
  const auto goldens = ReadGoldens(folder_);
  ASSERT_TRUE(goldens.has_value());
  builder_.Write(path_);
  std::vector<float> expected = goldens->logits;
  if (GetParam().unsaid != nullptr) {
    const fs::path other = path_ + ".folder";
    fs::create_directory(other);
    fs::create_symlink(fs::path(folder_) / "model.safetensors", other / "model.safetensors");
    config_.update(json::parse(GetParam().unsaid));
    std::ofstream(other / "config.json") << config_;
    expected = LogitsOf(other.string(), goldens->input_ids);
    fs::remove_all(other);
  }
  const std::vector<float> logits = LogitsOf(path_, goldens->input_ids);
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_LE(RelativeL2(logits.data(), expected.data(), logits.size()), 1e-5);
}

// The number of experts in a tensor is the metadata's.
TEST_P(GgufArchitectures, WhatContradictsIsNamed) {
  const std::string name = GetParam().architecture;
  if (HasExperts()) {
    GgufBuilder other = builder_;
    for (const std::string part : {"expert_count", "expert_used_count"}) {
      const std::string key = GgufBuilder::Text(name + "." + part);
      const std::size_t at = other.metadata.find(key);
      ASSERT_NE(at, std::string::npos);
      other.metadata[at + key.size() + 4] = 2;
    }
    other.Write(path_);
    const auto model = DecoderModel::Load(path_, HostMemory());
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.status().message(),
                testing::AnyOf(HasSubstr("ffn_gate_inp.weight is ["), HasSubstr("n_group is 4")));
    return;
  }
  builder_.Add(name + ".expert_count", 4u);
  builder_.Write(path_);
  const auto model = DecoderModel::Load(path_, HostMemory());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(model.status().message(),
              HasSubstr("expert_count is 4; known is this architecture without routed experts"));
}

// Every key is a number of 32 bits, and none may be ignored in silence.
TEST_P(GgufArchitectures, KeysThatAreWrongAreNamedOrGiveAModel) {
  const std::string prefix = std::string(GetParam().architecture) + ".";
  for (std::size_t at = builder_.metadata.find(prefix); at != std::string::npos;
       at = builder_.metadata.find(prefix, at + 1)) {
    std::uint64_t length = 0;
    std::memcpy(&length, builder_.metadata.data() + at - 8, sizeof length);
    const std::string key = builder_.metadata.substr(at, length);
    const std::size_t type_at = at + length;
    std::uint32_t type = 0;
    std::memcpy(&type, builder_.metadata.data() + type_at, sizeof type);
    if (type != 4 && type != 6) continue;  // texts, flags and lists
    const float inf = std::numeric_limits<float>::infinity();
    const std::string bad[] = {GgufBuilder::Bytes(0u) + GgufBuilder::Bytes(std::uint8_t{}),
                               GgufBuilder::Bytes(4u) + GgufBuilder::Bytes(0u),
                               GgufBuilder::Bytes(5u) + GgufBuilder::Bytes(-1),
                               GgufBuilder::Bytes(5u) + GgufBuilder::Bytes(1'000'000'000),
                               GgufBuilder::Bytes(6u) + GgufBuilder::Bytes(inf),
                               GgufBuilder::Bytes(6u) + GgufBuilder::Bytes(-0.5f)};
    for (const std::string& value : bad) {
      GgufBuilder other;
      other.metadata = builder_.metadata;
      other.keys = builder_.keys;
      other.metadata.replace(type_at, 8, value);
      other.Tensor("token_embd.weight", {1, 600}, kF32, std::string(600 * 4, '\0'));
      const std::string bytes = other.File();
      const auto file =
          GgufFile::Parse(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), path_);
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      const auto text = GgufConfigText(*file);
      const auto config = text.ok() ? ParseDecoderConfig(*text, path_) : text.status();
      if (!config.ok()) {
        EXPECT_THAT(config.status().message(), HasSubstr(path_)) << key;
      } else if (value == bad[2] || value == bad[4] || value == bad[5]) {
        ADD_FAILURE() << key << " of type " << static_cast<int>(value[0]) << " was taken";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufArchitectures,
    testing::Values(
        GgufCase{.golden = "mixtral-shards", .architecture = "llama", .own = true, .turned = true},
        GgufCase{.golden = "qwen3-moe", .architecture = "qwen3moe"},
        GgufCase{.golden = "qwen2-moe", .architecture = "qwen2moe"},
        GgufCase{.golden = "gemma2", .architecture = "gemma2", .norms_plus_1 = true},
        GgufCase{.golden = "gemma3", .architecture = "gemma3", .norms_plus_1 = true},
        GgufCase{.golden = "phi3-longrope-short", .architecture = "phi3"},
        GgufCase{.golden = "phi3-longrope-long", .architecture = "phi3"},
        GgufCase{.golden = "phi4-mini", .architecture = "phi3"},
        GgufCase{.golden = "gptoss-bf16", .architecture = "gpt-oss"},
        GgufCase{.golden = "gptoss-mxfp4",
                 .architecture = "gpt-oss",
                 .unsaid = R"({"swiglu_limit": 7})"},
        GgufCase{.golden = "deepseek-v3", .architecture = "deepseek2", .gating = 2},
        GgufCase{
            .golden = "deepseek-v3", .architecture = "deepseek2", .gating = 2, .whole_kv_b = true},
        GgufCase{.golden = "glm4-moe", .architecture = "glm4moe", .gating = 2},
        GgufCase{.golden = "glm4", .architecture = "glm4"},
        GgufCase{.golden = "llama4",
                 .architecture = "llama4",
                 .halves = true,
                 .unsaid = R"({"attention_chunk_size": 8192, "floor_scale": 8192})"},
        GgufCase{.golden = "olmo2", .architecture = "olmo2"},
        GgufCase{.golden = "olmo3", .architecture = "olmo2"},
        GgufCase{.golden = "granite", .architecture = "granite", .turned = true},
        GgufCase{.golden = "cohere", .architecture = "command-r"},
        GgufCase{.golden = "cohere2", .architecture = "cohere2"},
        GgufCase{.golden = "smollm3", .architecture = "smollm3", .turned = true},
        GgufCase{.golden = "seed-oss", .architecture = "seed_oss"},
        GgufCase{.golden = "ernie4-5", .architecture = "ernie4_5"},
        GgufCase{.golden = "ernie4-5-moe", .architecture = "ernie4_5-moe"},
        GgufCase{.golden = "minimax-m2", .architecture = "minimax-m2", .gating = 2}));

}  // namespace
}  // namespace culet
