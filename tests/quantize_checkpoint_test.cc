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

  Result<QuantizedCheckpoint> Run(CheckpointFormat format) {
    QuantizeCheckpointOptions options;
    options.format = format;
    return QuantizeCheckpoint((root_ / "in").string(), (root_ / "out").string(), options);
  }

  // Whether nothing but the input is there.
  void ExpectNothingWritten() const {
    for (const auto& entry : fs::directory_iterator(root_)) {
      EXPECT_EQ(entry.path().filename(), "in") << entry.path();
    }
  }

  // Each element of a weight that was read back against the nearest that its scale allows.
  void ExpectRounded(const Weight& weight, CheckpointFormat format) const {
    const bool four = format == CheckpointFormat::kU4;
    const std::int64_t across = format == CheckpointFormat::kFp8Row ? weight.cols : 128;
    const std::int64_t down = format == CheckpointFormat::kFp8Block ? 128 : 1;
    const std::int64_t groups = weight.cols / across;
    const Tensor& source = tensors_.at(weight.name);
    const auto stored = [&](std::int64_t at) {
      return LoadAsDouble(source.bytes.data(), source.type, at);
    };
    ASSERT_EQ(weight.type, four ? DataType::kUint4 : DataType::kFloat8_e4m3);
    // A few elements of each row: the scale is looked for anew for each.
    for (std::int64_t row = 0; row < weight.rows; ++row) {
      for (std::int64_t col = row % 61; col < weight.cols;
           col += format == CheckpointFormat::kFp8Block ? 97 : 31) {
        double most = 0;
        for (std::int64_t r = row / down * down; r < row / down * down + down; ++r) {
          for (std::int64_t c = col / across * across; c < (col / across + 1) * across; ++c) {
            most = std::max(most, std::abs(stored(r * weight.cols + c)));
          }
        }
        const double scale = most == 0 ? 1 : RoundTo(type_, most / (four ? 7.5 : 448));
        const std::int64_t at = row / down * groups + col / across;
        ASSERT_EQ(
            LoadAsDouble(FromDevicePtr<const void>(weight.scales_ptr), weight.scales_type, at),
            scale);
        const double value = stored(row * weight.cols + col) / scale;
        const double code = LoadAsDouble(FromDevicePtr<const void>(weight.data_ptr), weight.type,
                                         row * weight.cols + col) -
                            (four ? 8 : 0);
        const double wanted = four ? std::clamp(std::nearbyint(value), -8.0, 7.0)
                                   : RoundTo(weight.type, std::clamp(value, -448.0, 448.0));
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
                                         CheckpointFormat::kFp8Block};

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

}  // namespace
}  // namespace culet
