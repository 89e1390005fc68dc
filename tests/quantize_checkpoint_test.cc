// Quantised checkpoints, read back as any other and compared with what rounding in double gives;
// and that nothing is left behind by what fails.
#include "culet/quantize_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/decoder.h"
#include "culet/device_memory.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kHidden = 128, kWidth = 256, kVocab = 32;

std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class Quantised : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) /
            ("culet_" + std::string(info->name()) + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "in");
    std::ofstream(root_ / "in" / "config.json") << Config("");
    std::ofstream(root_ / "in" / "tokenizer.json") << "{\"some\": 1}";
    std::ofstream(root_ / "in" / "pytorch_model.bin") << "weights";
    Add("model.embed_tokens.weight", {kVocab, kHidden});
    Add("lm_head.weight", {kVocab, kHidden});
    Add("model.norm.weight", {kHidden});
    Add(kLayer + "input_layernorm.weight", {kHidden});
    Add(kLayer + "post_attention_layernorm.weight", {kHidden});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      Add(kLayer + "self_attn." + name + ".weight", {kHidden, kHidden});
    }
    Add(kLayer + "mlp.gate_proj.weight", {kWidth, kHidden});
    Add(kLayer + "mlp.up_proj.weight", {kWidth, kHidden});
    Add(kDown, {kHidden, kWidth});
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::string Config(const std::string& more) {
    return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32,
      "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
      "intermediate_size": 256, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16")" +
           more + "}";
  }

  void Add(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::normal_distribution<double> normal(0, 0.05);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * SizeOf(type_));
    for (std::int64_t i = 0; i < count; ++i) {
      // A group of zeros, and one that is large.
      const double value = i < 128 ? 0 : normal(random_) * (i < 256 ? 100 : 1);
      StoreFromDouble(bytes.data(), type_, i, value);
    }
    tensors_[name] = {std::move(shape), std::move(bytes), type_};
  }

  void Write() {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, tensor] : tensors_) {
      entries.push_back({name, tensor.type, tensor.shape, tensor.bytes.data()});
    }
    ASSERT_TRUE(WriteSafetensors((root_ / "in" / "model.safetensors").string(), entries).ok());
  }

  Result<QuantizedCheckpoint> Run(CheckpointFormat format, std::vector<std::string> keep = {}) {
    QuantizeCheckpointOptions options;
    options.format = format;
    options.keep = std::move(keep);
    return QuantizeCheckpoint((root_ / "in").string(), (root_ / "out").string(), options);
  }

  // Whether nothing but the input is there.
  void ExpectNothingWritten() const {
    for (const auto& entry : fs::directory_iterator(root_)) {
      EXPECT_EQ(entry.path().filename(), "in") << entry.path();
    }
  }

  // Each element of a weight that was read back against the nearest that its scale allows. The
  // weight's rows are those of its tensor from `first` on.
  void ExpectRounded(const Weight& weight, CheckpointFormat format, const std::string& name = "",
                     std::int64_t first = 0) const {
    const bool four = IsU4(format), asymmetric = format == CheckpointFormat::kU4Asymmetric;
    const std::int64_t across = format == CheckpointFormat::kFp8Row ? weight.cols : 128;
    const std::int64_t down = format == CheckpointFormat::kFp8Block ? 128 : 1;
    const std::int64_t groups = weight.cols / across;
    const Tensor& source = tensors_.at(name.empty() ? weight.name : name);
    const auto stored = [&](std::int64_t at) {
      return LoadAsDouble(source.bytes.data(), source.type, first * weight.cols + at);
    };
    const auto loaded = [](DevicePtr data, DataType type, std::int64_t at) {
      return LoadAsDouble(FromDevicePtr<const void>(data), type, at);
    };
    ASSERT_EQ(weight.type, four ? DataType::kUint4 : DataType::kFloat8_e4m3);
    // A few elements of each row: the scale is looked for anew for each.
    for (std::int64_t row = 0; row < weight.rows; ++row) {
      for (std::int64_t col = row % 61; col < weight.cols;
           col += format == CheckpointFormat::kFp8Block ? 97 : 31) {
        double most = 0, least = 0;
        for (std::int64_t r = row / down * down; r < row / down * down + down; ++r) {
          for (std::int64_t c = col / across * across; c < (col / across + 1) * across; ++c) {
            most = std::max(most, stored(r * weight.cols + c));
            least = std::min(least, stored(r * weight.cols + c));
          }
        }
        const double amax = std::max(most, -least);
        const double exact = asymmetric ? (most - least) / 15 : amax / (four ? 7.5 : 448);
        const double scale = amax == 0 ? 1 : RoundTo(type_, exact);
        const std::int64_t at = row / down * groups + col / across;
        ASSERT_EQ(loaded(weight.scales_ptr, weight.scales_type, at), scale);
        const double value = stored(row * weight.cols + col) / scale;
        const double code = loaded(weight.data_ptr, weight.type, row * weight.cols + col);
        double wanted = RoundTo(weight.type, std::clamp(value, -448.0, 448.0));
        if (four) {
          const double zero = loaded(weight.zeros_ptr, weight.zeros_type, at);
          ASSERT_EQ(zero, asymmetric ? std::nearbyint(-least / scale) : 8);
          wanted = std::clamp(std::nearbyint(value) + zero, 0.0, 15.0);
          // Rounding the scale to the type costs a little of the ends.
          ASSERT_NEAR((code - zero) * scale, value * scale, 0.57 * scale);
        }
        ASSERT_EQ(code, wanted) << row << ", " << col << " of " << value;
      }
    }
  }

  static inline const std::string kLayer = "model.layers.0.";
  static inline const std::string kDown = kLayer + "mlp.down_proj.weight";
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
    DataType type;
  };
  fs::path root_;
  DataType type_ = DataType::kBfloat16;
  std::map<std::string, Tensor> tensors_;
  std::mt19937 random_{5};
};

constexpr CheckpointFormat kFormats[] = {CheckpointFormat::kU4, CheckpointFormat::kFp8Row,
                                         CheckpointFormat::kFp8Block,
                                         CheckpointFormat::kU4Asymmetric};

TEST_F(Quantised, IsReadBackAsWhatRoundingGives) {
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat32}) {
    type_ = type;
    SetUp();
    Write();
    for (const CheckpointFormat format : kFormats) {
      SCOPED_TRACE(std::string(ToString(format)) + " of " + ToString(type));
      fs::remove_all(root_ / "out");
      const auto made = Run(format);
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      EXPECT_EQ(made->quantised, 7u);
      EXPECT_THAT(made->plain, ElementsAre("lm_head"));
      const auto model = DecoderModel::Load((root_ / "out").string(), HostMemory());
      ASSERT_TRUE(model.ok()) << model.status().ToString();
      EXPECT_TRUE(model->config().warnings.empty());
      const LayerWeights& layer = model->weights().layers[0];
      for (const Weight* weight :
           {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
        SCOPED_TRACE(weight->name);
        ExpectRounded(*weight, format);
      }
      const auto file = SafetensorsFile::Open((root_ / "out" / "model.safetensors").string());
      ASSERT_TRUE(file.ok());
      std::size_t bytes = 0;
      for (const SafetensorsTensor& tensor : file->tensors()) {
        bytes += static_cast<std::size_t>(tensor.bytes);
        const auto before = tensors_.find(tensor.name);
        if (before == tensors_.end() || tensor.type() == DataType::kFloat8_e4m3) continue;
        EXPECT_EQ(
            std::memcmp(tensor.data, before->second.bytes.data(), before->second.bytes.size()), 0)
            << tensor.name;
      }
      EXPECT_EQ(made->bytes_after, bytes);
      EXPECT_LT(made->bytes_after, made->bytes_before);
      EXPECT_EQ(ReadAll(root_ / "out" / "tokenizer.json"), "{\"some\": 1}");
      EXPECT_FALSE(fs::exists(root_ / "out" / "pytorch_model.bin"));
    }
  }
}

TEST_F(Quantised, KeepsShardsAndTheirIndex) {
  std::map<std::string, std::vector<SafetensorsEntry>> files;
  std::string map;
  for (const auto& [name, tensor] : tensors_) {
    const std::string file = name == kDown ? "b.safetensors" : "a.safetensors";
    files[file].push_back({name, tensor.type, tensor.shape, tensor.bytes.data()});
    map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + file + "\"";
  }
  for (const auto& [file, entries] : files) {
    ASSERT_TRUE(WriteSafetensors((root_ / "in" / file).string(), entries).ok());
  }
  std::ofstream(root_ / "in" / "model.safetensors.index.json")
      << "{\"weight_map\": {" << map << "}}";
  const auto made = Run(CheckpointFormat::kU4);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_THAT(ReadAll(root_ / "out" / "model.safetensors.index.json"),
              HasSubstr("down_proj.weight_packed\": \"b.safetensors\""));
  const auto model = DecoderModel::Load((root_ / "out").string(), HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ExpectRounded(model->weights().layers[0].down, CheckpointFormat::kU4);
}

TEST_F(Quantised, WhatFailsLeavesNothing) {
  Write();
  const auto refused = [&](const Result<QuantizedCheckpoint>& made, StatusCode code,
                           const std::string& words) {
    ASSERT_FALSE(made.ok()) << words;
    EXPECT_EQ(made.status().code(), code) << made.status().ToString();
    EXPECT_THAT(made.status().message(), HasSubstr(words));
  };
  std::ofstream(root_ / "in" / "config.json")
      << Config(R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size":
                     [128, 128], "activation_scheme": "dynamic"})");
  refused(Run(CheckpointFormat::kU4), StatusCode::kInvalidArgument,
          "is quantised already (quant_method \"fp8\")");
  ExpectNothingWritten();
  std::ofstream(root_ / "in" / "config.json") << Config("");

  // In the middle of the file.
  StoreFromDouble(tensors_[kDown].bytes.data(), type_, 7, std::numeric_limits<double>::infinity());
  Write();
  for (const CheckpointFormat format : kFormats) {
    refused(Run(format), StatusCode::kInvalidArgument,
            "tensor " + kDown + " holds an element that is not finite");
    ExpectNothingWritten();
  }
  Add(kDown, {kHidden, kWidth});
  Write();

  int asked = 0;
  QuantizeCheckpointOptions options;
  options.stop = [&] { return ++asked == 5; };
  refused(QuantizeCheckpoint((root_ / "in").string(), (root_ / "out").string(), options),
          StatusCode::kFailedPrecondition, "stopped before model.");
  ExpectNothingWritten();

  fs::create_directory(root_ / "out");  // an empty one is taken
  ASSERT_TRUE(Run(CheckpointFormat::kU4).ok());
  const std::string before = ReadAll(root_ / "out" / "config.json");
  refused(Run(CheckpointFormat::kFp8Row), StatusCode::kInvalidArgument,
          "exists and is no empty folder");
  EXPECT_EQ(ReadAll(root_ / "out" / "config.json"), before);
  EXPECT_FALSE(ParseCheckpointFormat("q4").ok());
}

// Groups of 128 must be whole; other layers stay, and are listed.
TEST_F(Quantised, LayersWithoutWholeGroupsStay) {
  std::string config = Config("");
  config.replace(config.find("256"), 3, "192");
  std::ofstream(root_ / "in" / "config.json") << config;
  Add(kLayer + "mlp.gate_proj.weight", {192, kHidden});
  Add(kLayer + "mlp.up_proj.weight", {192, kHidden});
  Add(kDown, {kHidden, 192});
  Write();
  ASSERT_EQ(Run(CheckpointFormat::kFp8Row)->quantised, 7u);
  for (const CheckpointFormat format : {CheckpointFormat::kU4, CheckpointFormat::kFp8Block}) {
    fs::remove_all(root_ / "out");
    const auto made = Run(format);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_EQ(made->quantised, 6u);
    EXPECT_THAT(made->plain, ElementsAre("lm_head", "model.layers.0.mlp.down_proj"));
    const auto model = DecoderModel::Load((root_ / "out").string(), HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ(model->weights().layers[0].down.type, type_);
  }
}

// As compressed-tensors packs it: eight output features' zero points less 8 in a word.
TEST_F(Quantised, ZeroPointsArePackedAlongOutputFeatures) {
  Tensor& down = tensors_[kDown];
  for (std::int64_t row = 0; row < kHidden; ++row) {
    for (std::int64_t col = 0; col < kWidth; ++col) {
      // From -row % 8 to 15 - row % 8: steps of 1, and a zero point of row % 8.
      const auto value = static_cast<double>(col % 16 - row % 8);
      StoreFromDouble(down.bytes.data(), type_, row * kWidth + col, value);
    }
  }
  Write();
  ASSERT_TRUE(Run(CheckpointFormat::kU4Asymmetric).ok());
  const auto file = SafetensorsFile::Open((root_ / "out" / "model.safetensors").string());
  ASSERT_TRUE(file.ok());
  const SafetensorsTensor* zeros = file->Find(kDown + "_zero_point");
  ASSERT_NE(zeros, nullptr);
  EXPECT_EQ(zeros->dtype, "I32");
  EXPECT_THAT(zeros->shape, ElementsAre(kHidden / 8, kWidth / 128));
  const SafetensorsTensor* codes = file->Find(kDown + "_packed");
  ASSERT_NE(codes, nullptr);
  for (std::int64_t i = 0; i < zeros->elements(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, zeros->data + i * 4, 4);
    ASSERT_EQ(word, 0x76543210u);
  }
  for (std::int64_t i = 0; i < codes->elements(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, codes->data + i * 4, 4);
    ASSERT_EQ(word, i % 2 == 0 ? 0x76543210u : 0xFEDCBA98u);
  }
  EXPECT_THAT(ReadAll(root_ / "out" / "config.json"), HasSubstr("\"symmetric\": false"));
}

TEST_F(Quantised, LayersThatAreNamedStay) {
  Write();
  const auto made =
      Run(CheckpointFormat::kU4, {"down_proj", "re:model[.]layers[.]0[.]self_attn[.][qk]_proj"});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->quantised, 4u);
  EXPECT_THAT(made->plain,
              ElementsAre("lm_head", "model.layers.0.mlp.down_proj",
                          "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.q_proj"));
  const auto model = DecoderModel::Load((root_ / "out").string(), HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->weights().layers[0].down.type, type_);
  EXPECT_EQ(model->weights().layers[0].v.type, DataType::kUint4);
  for (const char* wrong : {"dwn_proj", "re:layers", "re:("}) {
    fs::remove_all(root_ / "out");
    const auto refused = Run(CheckpointFormat::kU4, {"down_proj", wrong});
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr(std::string("keep has '") + wrong));
    ExpectNothingWritten();
  }
}

// Phi-3's: q, k and v in one tensor, gate and up in another.
TEST_F(Quantised, TensorsOfSeveralWeights) {
  std::string config = Config(R"(, "num_key_value_heads": 2, "pad_token_id": 0)");
  config.replace(config.find("LlamaForCausalLM"), 16, "Phi3ForCausalLM");
  config.replace(config.find("\"llama\""), 7, "\"phi3\"");
  std::ofstream(root_ / "in" / "config.json") << config;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    tensors_.erase(kLayer + "self_attn." + name + ".weight");
  }
  tensors_.erase(kLayer + "mlp.gate_proj.weight");
  tensors_.erase(kLayer + "mlp.up_proj.weight");
  const std::string qkv = kLayer + "self_attn.qkv_proj.weight",
                    both = kLayer + "mlp.gate_up_proj.weight";
  Add(qkv, {2 * kHidden, kHidden});  // 128 of q, 64 of k and of v
  Add(both, {2 * kWidth, kHidden});
  Write();
  for (const CheckpointFormat format : kFormats) {
    SCOPED_TRACE(ToString(format));
    fs::remove_all(root_ / "out");
    const auto made = Run(format);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    // Blocks of 128 do not divide k and v.
    const bool whole = format != CheckpointFormat::kFp8Block;
    EXPECT_EQ(made->quantised, whole ? 4u : 3u);
    const auto model = DecoderModel::Load((root_ / "out").string(), HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const LayerWeights& layer = model->weights().layers[0];
    ExpectRounded(layer.gate, format, both);
    ExpectRounded(layer.up, format, both, kWidth);
    if (whole) {
      ExpectRounded(layer.q, format, qkv);
      ExpectRounded(layer.k, format, qkv, 128);
      ExpectRounded(layer.v, format, qkv, 192);
    } else {
      EXPECT_EQ(layer.v.type, type_);
      EXPECT_THAT(made->plain, ElementsAre("lm_head", "model.layers.0.self_attn.qkv_proj"));
    }
  }
}

// No form of compressed-tensors holds all experts in one tensor.
TEST_F(Quantised, StackedExpertsMustBeKept) {
  const std::string source = FixtureFolder("gptoss-bf16");
  if (source.empty()) GTEST_SKIP() << "no fixture gptoss-bf16; set CULET_FIXTURES";
  QuantizeCheckpointOptions options;
  const std::string out = (root_ / "out").string();
  const auto refused = QuantizeCheckpoint(source, out, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("tensor model.layers.0.mlp.experts.down_proj holds the weights of all"));
  options.keep = {"re:.*experts"};
  const auto made = QuantizeCheckpoint(source, out, options);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const auto model = DecoderModel::Load(out, HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->weights().layers[0].q.type, DataType::kUint4);
  EXPECT_NE(model->weights().layers[0].expert_gate->weights[0].type, DataType::kUint4);
}

}  // namespace
}  // namespace culet
