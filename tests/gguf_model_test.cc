// Models out of GGUF files: the repository's own golden, written as llama.cpp's converter writes
// it; quantised embeddings; and metadata that is wrong.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"
#include "gguf_builder.h"
#include "other_memory.h"

namespace culet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::uint32_t kF32 = 0, kQ8_0 = 8, kQ5_K = 13;
constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 16, kHidden = 64, kVocab = 96;

std::string NameOf(std::string name) {
  const std::pair<std::string, std::string> parts[] = {{"model.embed_tokens", "token_embd"},
                                                       {"model.norm", "output_norm"},
                                                       {"model.layers.", "blk."},
                                                       {"self_attn.q_proj", "attn_q"},
                                                       {"self_attn.k_proj", "attn_k"},
                                                       {"self_attn.v_proj", "attn_v"},
                                                       {"self_attn.o_proj", "attn_output"},
                                                       {"mlp.gate_proj", "ffn_gate"},
                                                       {"mlp.up_proj", "ffn_up"},
                                                       {"mlp.down_proj", "ffn_down"},
                                                       {"post_attention_layernorm", "ffn_norm"},
                                                       {"input_layernorm", "attn_norm"}};
  for (const auto& [from, to] : parts) {
    if (const std::size_t at = name.find(from); at != std::string::npos) {
      name.replace(at, from.size(), to);
    }
  }
  return name;
}

// A tensor as F32, rows of q and k so that elements 2 i and 2 i + 1 turn together.
std::string Converted(const SafetensorsTensor& tensor) {
  const std::int64_t rows = tensor.shape.front(), cols = tensor.elements() / rows;
  const bool turned = tensor.name.find("q_proj") != std::string::npos ||
                      tensor.name.find("k_proj") != std::string::npos;
  std::string bytes;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t in_head = row % kHeadDim;
    const std::int64_t from =
        turned ? row - in_head + in_head % 2 * (kHeadDim / 2) + in_head / 2 : row;
    for (std::int64_t col = 0; col < cols; ++col) {
      alignas(4) std::byte element[4] = {};
      const std::size_t size = SizeOf(tensor.type());
      std::memcpy(element, tensor.data + static_cast<std::size_t>(from * cols + col) * size, size);
      bytes += GgufBuilder::Bytes(static_cast<float>(LoadAsDouble(element, tensor.type(), 0)));
    }
  }
  return bytes;
}

// What llama3's scaling divides the frequencies by, as in the golden's config.
std::string Factors() {
  std::string bytes;
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const double frequency = std::pow(5e5, -2.0 * i / kHeadDim);
    const double length = 2 * std::numbers::pi / frequency;
    const double smooth = std::clamp((32 / length - 1) / (4 - 1), 0.0, 1.0);
    const double scaled = (1 - smooth) * frequency / 8 + smooth * frequency;
    bytes += GgufBuilder::Bytes(static_cast<float>(frequency / scaled));
  }
  return bytes;
}

void AddMetadata(GgufBuilder& file) {
  file.Add("general.architecture", "llama");
  file.Add("llama.block_count", 2u);
  file.Add("llama.context_length", 256u);
  file.Add("llama.embedding_length", static_cast<std::uint32_t>(kHidden));
  file.Add("llama.feed_forward_length", 80u);
  file.Add("llama.attention.head_count", static_cast<std::uint32_t>(kHeads));
  file.Add("llama.attention.head_count_kv", static_cast<std::uint32_t>(kKvHeads));
  file.Add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  file.Add("llama.rope.freq_base", 5e5f);
  file.AddTexts("tokenizer.ggml.tokens", {"a", "b", "c", "<|eot_id|>", "<|eot_id|>x"});
  file.AddInts("tokenizer.ggml.token_type", {1, 1, 3, 3, 3});
  file.Add("tokenizer.ggml.eos_token_id", 2u);
}

// The golden's tensors; `of` may write one in its own way.
using Other = std::function<bool(GgufBuilder&, const std::string&, const std::string&)>;
GgufBuilder Golden(const Other& other = nullptr) {
  GgufBuilder builder;
  AddMetadata(builder);
  const auto file =
      SafetensorsFile::Open(OwnGoldens("llama-biases-llama3-tied") + "/model.safetensors");
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  for (const SafetensorsTensor& tensor : file->tensors()) {
    // Of a tied head and frequencies converters write nothing.
    if (tensor.name == "lm_head.weight" || tensor.name.ends_with("inv_freq")) continue;
    const std::string name = NameOf(tensor.name);
    std::vector<std::uint64_t> sizes(tensor.shape.rbegin(), tensor.shape.rend());
    const std::string bytes = Converted(tensor);
    if (other && other(builder, name, bytes)) continue;
    builder.Tensor(name, sizes, kF32, bytes);
  }
  builder.Tensor("rope_freqs.weight", {kHeadDim / 2}, kF32, Factors());
  return builder;
}

class GgufModel : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (fs::path(testing::TempDir()) /
             (std::string("culet_") +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf"))
                .string();
  }
  void TearDown() override { fs::remove(path_); }

  Result<DecoderModel> Load(const GgufBuilder& file, DeviceMemory& memory = HostMemory()) {
    file.Write(path_);
    return DecoderModel::Load(path_, memory);
  }
  void ExpectRefused(const GgufBuilder& file, StatusCode code, const std::string& words,
                     DeviceMemory& memory = HostMemory()) {
    const auto model = Load(file, memory);
    ASSERT_FALSE(model.ok()) << words;
    EXPECT_EQ(model.status().code(), code) << model.status().ToString();
    EXPECT_THAT(model.status().message(), HasSubstr(path_));
    EXPECT_THAT(model.status().message(), HasSubstr(words));
  }

  std::vector<float> Logits(const DecoderModel& model, KernelDispatch& dispatch,
                            const std::vector<std::int32_t>& ids) {
    auto session = Session::Create(model, dispatch, {});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    const int sequence = *session->AddSequence();
    StepOutputs outputs;
    outputs.all_logits = true;
    const SequenceTokens tokens{sequence, ids};
    const auto result = session->Step({&tokens, 1}, outputs);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? result->logits : std::vector<float>();
  }

  std::string path_;
};

TEST_F(GgufModel, IsTheCheckpointThatItWasMadeFrom) {
  const auto goldens = ReadGoldens(OwnGoldens("llama-biases-llama3-tied"));
  ASSERT_TRUE(goldens.has_value());
  const auto model = Load(Golden());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const DecoderConfig& config = model->config();
  EXPECT_TRUE(config.tied_head && config.qkv_bias && config.o_bias && config.mlp_bias);
  EXPECT_EQ(config.vocab, kVocab);
  EXPECT_THAT(config.eos_ids, ElementsAre(2, 3));  // and the control token that ends a turn
  EXPECT_TRUE(config.warnings.empty());
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  const std::vector<float> logits = Logits(*model, *dispatch, goldens->input_ids);
  ASSERT_EQ(logits.size(), goldens->logits.size());
  EXPECT_LE(RelativeL2(logits.data(), goldens->logits.data(), logits.size()), 1e-5);
  // tune --model and bench --model read the same file.
  const auto shapes = ReadModelShapes(path_);
  ASSERT_TRUE(shapes.ok()) << shapes.status().ToString();
  EXPECT_EQ(shapes->architecture, "LlamaForCausalLM");
  EXPECT_EQ(shapes->products.back().n, kVocab);
}

// Codes of an embedding that is the head, too: both are the same numbers.
TEST_F(GgufModel, AnEmbeddingOfCodesIsPickedByRows) {
  std::vector<float> rounded;
  const auto model =
      Load(Golden([&](GgufBuilder& file, const std::string& name, const std::string& bytes) {
        if (name != "token_embd.weight") return false;
        std::string blocks;
        for (std::size_t at = 0; at < bytes.size(); at += 32 * sizeof(float)) {
          std::uint16_t scale = 0;
          StoreFromDouble(&scale, DataType::kFloat16, 0,
                          1.0 / 256 * static_cast<double>(1 + at % 3));
          blocks += GgufBuilder::Bytes(scale);
          for (std::size_t i = 0; i < 32; ++i) {
            float value = 0;
            std::memcpy(&value, bytes.data() + at + i * sizeof value, sizeof value);
            const double d = Float16ToFloat(scale);
            const double code = std::clamp(std::nearbyint(value / d), -128.0, 127.0);
            blocks += static_cast<char>(static_cast<std::int8_t>(code));
            rounded.push_back(static_cast<float>(code * d));
          }
        }
        file.Tensor(name, {kHidden, kVocab}, kQ8_0, blocks);
        return true;
      }));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->weights().embedding.type, DataType::kInt8);
  const std::string codes_path = path_;
  path_ += ".plain";
  const auto plain =
      Load(Golden([&](GgufBuilder& file, const std::string& name, const std::string&) {
        if (name != "token_embd.weight") return false;
        file.Tensor(name, {kHidden, kVocab}, kF32,
                    std::string(reinterpret_cast<const char*>(rounded.data()),
                                rounded.size() * sizeof(float)));
        return true;
      }));
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  const std::vector<std::int32_t> ids = {5, 95, 0, 17, 17, 60};
  Gemm gemm = *Gemm::Create();
  for (const auto& dispatch : {MakeCpuDispatch(gemm), MakeReferenceDispatch()}) {
    const std::vector<float> of_codes = Logits(*model, *dispatch, ids);
    const std::vector<float> of_plain = Logits(*plain, *dispatch, ids);
    ASSERT_EQ(of_codes.size(), of_plain.size());
    EXPECT_LE(RelativeL2(of_codes.data(), of_plain.data(), of_plain.size()), 2e-6);
  }
  OtherMemory device;
  path_ = codes_path;
  const auto other = DecoderModel::Load(path_, device);
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_EQ(other->weights().embedding.type, DataType::kInt8);
  fs::remove(codes_path + ".plain");
}

TEST_F(GgufModel, WhatTheMetadataCannotBeIsNamed) {
  const auto with = [](const std::string& key, const std::string& number) {
    GgufBuilder file;
    file.Add("general.architecture", "llama");
    for (const char* usual : {"block_count", "context_length", "embedding_length",
                              "feed_forward_length", "attention.head_count", "vocab_size"}) {
      if (key != usual) file.Add(std::string("llama.") + usual, 64u);
    }
    file.Add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (!number.empty()) file.Raw("llama." + key, 5, number);
    return file;
  };
  const auto number = [](std::int32_t value) { return GgufBuilder::Bytes(value); };
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument, kNot = StatusCode::kUnsupported;
  GgufBuilder file;
  ExpectRefused(file, kInvalid, "general.architecture is missing; known in GGUF files are llama");
  file.Add("general.architecture", "gptj");
  ExpectRefused(file, kNot, "general.architecture is gptj; known in GGUF files are llama, qwen2");
  ExpectRefused(with("block_count", ""), kInvalid, "metadata llama.block_count is missing");
  ExpectRefused(with("block_count", number(0)), kInvalid, "metadata llama.block_count is 0");
  ExpectRefused(with("embedding_length", number(-5)), kInvalid, "llama.embedding_length is -5");
  ExpectRefused(with("expert_count", number(8)), kInvalid,
                "metadata llama.expert_used_count is missing");
  ExpectRefused(with("attention.value_length", number(2)), kNot, "attention.value_length 2");
  file = Golden();
  file.Add("split.count", 3u);
  ExpectRefused(file, kNot, "is one of 3 files of a model; merge them");
  file = Golden();
  file.Add("llama.rope.scaling.type", "yarn");
  ExpectRefused(file, kNot, "tensor rope_freqs.weight stands beside rope.scaling.type yarn");
}

// Metadata in the first, tensors in two others.
TEST_F(GgufModel, ASplitModelIsOpenedByAnyOfItsFiles) {
  const fs::path folder = path_ + ".split";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const auto path = [&](int number) {
    return (folder / ("m-0000" + std::to_string(number) + "-of-00003.gguf")).string();
  };
  GgufBuilder parts[3];
  AddMetadata(parts[0]);
  std::int32_t count = 0;
  const auto sizes = [](const std::string& name, std::uint64_t elements) {
    if (!name.ends_with(".weight") || name.ends_with("norm.weight")) {
      return std::vector<std::uint64_t>{elements};
    }
    const std::uint64_t cols = name.ends_with("ffn_down.weight") ? 80 : kHidden;
    return std::vector<std::uint64_t>{cols, elements / cols};
  };
  const GgufBuilder whole =
      Golden([&](GgufBuilder&, const std::string& name, const std::string& bytes) {
        GgufBuilder& part = name.starts_with("blk.0") ? parts[1] : parts[2];
        part.Tensor(name, sizes(name, bytes.size() / sizeof(float)), kF32, bytes);
        ++count;
        return false;
      });
  parts[2].Tensor("rope_freqs.weight", {kHeadDim / 2}, kF32, Factors());
  const auto write = [&](int number, std::int32_t no, std::int32_t of, std::int32_t tensors) {
    GgufBuilder file = parts[number - 1];
    file.Raw("split.no", 2, GgufBuilder::Bytes(static_cast<std::uint16_t>(no)));
    file.Raw("split.count", 2, GgufBuilder::Bytes(static_cast<std::uint16_t>(of)));
    file.Raw("split.tensors.count", 5, GgufBuilder::Bytes(tensors));
    file.Write(path(number));
  };
  const auto write_all = [&] {
    for (int i = 1; i <= 3; ++i) write(i, i - 1, 3, count + 1);
  };
  write_all();
  const auto expected = Load(whole);
  ASSERT_TRUE(expected.ok()) << expected.status().ToString();
  const std::vector<std::int32_t> ids = {5, 95, 0, 17};
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  const std::vector<float> logits = Logits(*expected, *dispatch, ids);
  for (const std::string& by : {path(1), path(3), folder.string()}) {
    const auto model = DecoderModel::Load(by, HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(Logits(*model, *dispatch, ids), logits) << by;
  }
  const auto expect = [&](StatusCode code, const std::string& part, const std::string& words) {
    const auto model = DecoderModel::Load(path(1), HostMemory());
    ASSERT_FALSE(model.ok()) << words;
    EXPECT_EQ(model.status().code(), code) << model.status().ToString();
    EXPECT_THAT(model.status().message(), HasSubstr(part));
    EXPECT_THAT(model.status().message(), HasSubstr(words));
    write_all();
  };
  fs::remove(path(2));
  expect(StatusCode::kNotFound, path(2), "is missing, the file 2 of 3 of a model; fetch it");
  fs::copy_file(path(2), path(3), fs::copy_options::overwrite_existing);
  expect(StatusCode::kDataLoss, path(3), "split.no is 1 and split.count 3; by its name they must");
  write(3, 2, 4, count + 1);
  expect(StatusCode::kDataLoss, path(3), "split.no is 2 and split.count 4; by its name they must");
  write(3, 2, 3, count);
  expect(StatusCode::kDataLoss, path(3), "in the first file " + std::to_string(count + 1));
  parts[2] = parts[1];
  write_all();
  expect(StatusCode::kDataLoss, path(3), "stands twice: in another file of the model, too");
  fs::resize_file(path(2), 20);
  expect(StatusCode::kDataLoss, path(2), "cut off");
  fs::remove_all(folder);
}

TEST_F(GgufModel, WhatTensorsCannotBeIsNamed) {
  const auto without = [](const std::string& gone, const std::string& sizes) {
    return Golden([&](GgufBuilder& file, const std::string& name, const std::string& bytes) {
      if (name != gone) return false;
      if (sizes == "short") file.Tensor(name, {32, 64}, kF32, bytes.substr(0, 32 * 64 * 4));
      if (sizes == "Q5_K") file.Tensor(name, {256, 1}, kQ5_K, std::string(176, '\0'));
      return true;
    });
  };
  const std::string name = "blk.1.attn_output.weight";
  ExpectRefused(without(name, ""), StatusCode::kNotFound,
                "tensor blk.1.attn_output.weight (model.layers.1.self_attn.o_proj.weight) is "
                "missing");
  ExpectRefused(without(name, "short"), StatusCode::kInvalidArgument,
                "tensor blk.1.attn_output.weight is [32, 64]; the metadata makes it [64, 64]");
  ExpectRefused(without("output_norm.weight", "Q5_K"), StatusCode::kInvalidArgument,
                "tensor output_norm.weight is [256, 1]");
  GgufBuilder file = Golden();
  file.Tensor("blk.9.attn_q.weight", {8}, kF32, std::string(32, '\0'));
  ExpectRefused(file, StatusCode::kInvalidArgument,
                "the file holds 1 tensors that LlamaForCausalLM does not read: "
                "blk.9.attn_q.weight");
  // Of a known shape and a type that is not read.
  file = Golden();
  file.Tensor("output.weight", {kHidden, kVocab}, 24, std::string(kHidden * kVocab, '\0'));
  ExpectRefused(file, StatusCode::kUnsupported,
                "tensor output.weight is I8; known types are F32, F16, Q4_0");
}

}  // namespace
}  // namespace culet
