// Checkpoints with quantised layers: what a model has of them, and files that contradict the
// config.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "culet/decoder.h"
#include "culet/safetensors.h"
#include "graph/joined_weight.h"
#include "other_memory.h"

namespace culet {
namespace {

using testing::HasSubstr;

constexpr int kHidden = 128, kWidth = 256, kKeys = 64, kVocab = 32;
constexpr const char* kModules[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                    "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                    "mlp.down_proj"};

struct Size {
  std::int64_t rows, cols;
};
Size SizeOf(const std::string& module) {
  if (module.ends_with("k_proj") || module.ends_with("v_proj")) return {kKeys, kHidden};
  if (module.ends_with("gate_proj") || module.ends_with("up_proj")) return {kWidth, kHidden};
  if (module.ends_with("down_proj")) return {kHidden, kWidth};
  return {kHidden, kHidden};
}

// A model of one layer; tests change its tensors before they are written.
class Folder {
 public:
  explicit Folder(std::string quantization) : quantization_(std::move(quantization)) {
    Add("model.embed_tokens.weight", DataType::kBfloat16, {kVocab, kHidden});
    Add("lm_head.weight", DataType::kBfloat16, {kVocab, kHidden});
    Add("model.norm.weight", DataType::kBfloat16, {kHidden});
    Add(Of("input_layernorm") + ".weight", DataType::kBfloat16, {kHidden});
    Add(Of("post_attention_layernorm") + ".weight", DataType::kBfloat16, {kHidden});
    for (const char* module : kModules) {
      const Size size = SizeOf(module);
      Add(Of(module) + ".weight", DataType::kBfloat16, {size.rows, size.cols});
    }
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;

  static std::string Of(const std::string& module) { return "model.layers.0." + module; }

  void Add(const std::string& name, DataType type, std::vector<std::int64_t> shape, int byte = 0) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    tensors_[name] = {type, std::move(shape),
                      std::vector<std::byte>(static_cast<std::size_t>(BytesOf(type, count)),
                                             static_cast<std::byte>(byte))};
  }
  void AddFloat(const std::string& name, float value, std::vector<std::int64_t> shape) {
    Add(name, DataType::kFloat32, std::move(shape));
    auto& bytes = tensors_[name].bytes;
    for (std::size_t i = 0; i < bytes.size(); i += sizeof value) {
      std::memcpy(bytes.data() + i, &value, sizeof value);
      value += 1;
    }
  }
  void Remove(const std::string& name) { tensors_.erase(name); }

  // E4M3 weights with a scale a row, or one.
  void Quantise(const std::string& module, bool one) {
    const Size size = SizeOf(module);
    Add(Of(module) + ".weight", DataType::kFloat8_e4m3, {size.rows, size.cols}, 0x38);
    std::vector<std::int64_t> shape{size.rows, 1};
    if (one) shape = {1};
    AddFloat(Of(module) + ".weight_scale", 1.0f, shape);
  }
  void QuantiseAll(bool one) {
    for (const char* module : kModules) {
      Quantise(module, one);
      if (one) AddFloat(Of(module) + ".input_scale", 0.5f, {1});
    }
  }
  // AutoAWQ's three tensors instead of a weight.
  void Pack(const std::string& module) {
    const Size size = SizeOf(module);
    Remove(Of(module) + ".weight");
    Add(Of(module) + ".qweight", DataType::kInt32, {size.cols, size.rows / 8}, 0x75);
    Add(Of(module) + ".qzeros", DataType::kInt32, {size.cols / 64, size.rows / 8}, 0x77);
    AddFloat(Of(module) + ".scales", 1.0f, {size.cols / 64, size.rows});
  }

  // compressed-tensors' three tensors of NVFP4.
  void PackNvfp4(const std::string& module, float divisor = 4, int scale = 0x40) {
    const Size size = SizeOf(module);
    Remove(Of(module) + ".weight");
    Add(Of(module) + ".weight_packed", DataType::kFloat8_ue8m0, {size.rows, size.cols / 2}, 0x2a);
    tensors_[Of(module) + ".weight_packed"].dtype = "U8";
    Add(Of(module) + ".weight_scale", DataType::kFloat8_e4m3, {size.rows, size.cols / 16}, scale);
    AddFloat(Of(module) + ".weight_global_scale", divisor, {1});
  }

  Result<DecoderModel> Load(DeviceMemory& memory) {
    path_ = std::filesystem::path(testing::TempDir()) /
            ("quantised_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "vocab_size": )" << kVocab
        << R"(, "hidden_size": )" << kHidden << R"(, "intermediate_size": )" << kWidth
        << R"(, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
              "quantization_config": )"
        << quantization_ << "}";
    std::vector<SafetensorsEntry> entries;
    // Wide types first.
    for (const std::size_t size : {4, 2, 1}) {
      for (const auto& [name, tensor] : tensors_) {
        if (culet::SizeOf(tensor.type) != size) continue;
        entries.push_back(
            {name, tensor.type, tensor.shape, tensor.bytes.data(), nullptr, tensor.dtype});
      }
    }
    auto writer = SafetensorsWriter::Open((path_ / "model.safetensors").string());
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    const Status written = writer->Write(entries);
    EXPECT_TRUE(written.ok()) << written.ToString();
    return DecoderModel::Load(path_.string(), memory);
  }
  std::string WhyNot(DeviceMemory& memory = HostMemory()) {
    const auto model = Load(memory);
    EXPECT_FALSE(model.ok());
    return model.status().message();
  }

 private:
  struct Tensor {
    DataType type;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
    std::string dtype = {};  ///< in place of the type's name
  };
  std::string quantization_;
  std::map<std::string, Tensor> tensors_;
  std::filesystem::path path_;
};

std::string Float(const char* strategy, const char* inputs, const char* ignored = "lm_head") {
  return std::string(R"({"quant_method": "compressed-tensors", "format": "float-quantized",
    "ignore": [")") +
         ignored + R"("], "config_groups": {"group_0": {"weights": {"num_bits": 8,
    "type": "float", "strategy": ")" +
         strategy + R"("}, "input_activations": {"num_bits": 8, "type": "float", )" + inputs +
         "}}}}";
}
constexpr const char* kDynamic = R"("strategy": "token", "dynamic": true)";
constexpr const char* kStatic = R"("strategy": "tensor", "dynamic": false)";
constexpr const char* kAwq = R"({"quant_method": "awq", "bits": 4, "group_size": 64})";

const float* ScalesOf(const Weight& weight) {
  return FromDevicePtr<const float>(weight.scales_ptr);
}

constexpr const char* kNvfp4 =
    R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "symmetric": true,
    "strategy": "tensor_group", "group_size": 16}, "input_activations": null}}})";

// Byte 2a: E2M1 codes 10 and 2, -1 and 1; the scale 0x40 is 2, of 4.
TEST(QuantisedCheckpoint, Nvfp4HasTwoScales) {
  Folder folder(kNvfp4);
  for (const char* module : kModules) folder.PackNvfp4(module);
  const auto model = folder.Load(HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const Weight& down = model->weights().layers[0].down;
  EXPECT_EQ(down.type, DataType::kFloat4_e2m1);
  EXPECT_EQ(down.quant, (QuantDesc{QuantType::kK, 16}));
  EXPECT_EQ(down.scales_type, DataType::kFloat32);
  EXPECT_EQ(down.zeros_ptr, 0u);
  for (std::int64_t i = 0; i < down.rows * down.cols; ++i) {
    const double code = LoadAsDouble(FromDevicePtr<const void>(down.data_ptr), down.type, i);
    ASSERT_EQ(code, i % 2 == 0 ? -1 : 1);
    ASSERT_EQ(ScalesOf(down)[i / 16], 0.5f);
  }
}

TEST(QuantisedCheckpoint, Nvfp4IsRefusedByName) {
  const auto why = [](auto change) {
    Folder folder(kNvfp4);
    for (const char* module : kModules) folder.PackNvfp4(module);
    change(folder);
    return folder.WhyNot();
  };
  const std::string down = Folder::Of("mlp.down_proj");
  EXPECT_THAT(why([](Folder& f) { f.PackNvfp4("mlp.down_proj", 0); }),
              HasSubstr("tensor " + down + ".weight_global_scale holds 0; it must be a positive"));
  EXPECT_THAT(
      why([](Folder& f) { f.PackNvfp4("mlp.down_proj", 1, 0x7f); }),
      HasSubstr("tensor " + down + ".weight_scale holds NaN for output feature 0, group 0"));
  EXPECT_THAT(why([&](Folder& f) {
                f.Add(down + ".weight_scale", DataType::kFloat8_e4m3, {kHidden, 1});
              }),
              HasSubstr("tensor " + down +
                        ".weight_scale is F8_E4M3 [128, 1]; the config makes it "
                        "F8_E4M3 [128, 16]"));
  EXPECT_THAT(why([&](Folder& f) { f.Remove(down + ".weight_global_scale"); }),
              HasSubstr("tensor " + down + ".weight_global_scale is missing"));
}

// Rows have scales of their own, so any number of rows joins.
TEST(QuantisedCheckpoint, RowsJoin) {
  Folder folder(Float("channel", kDynamic));
  folder.QuantiseAll(false);
  OtherMemory memory;
  const auto model = folder.Load(memory);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const LayerWeights& layer = model->weights().layers[0];
  const Weight* const parts[] = {&layer.q, &layer.k, &layer.v};
  const Weight joined = JoinedWeight(parts);
  ASSERT_TRUE(joined.present());
  EXPECT_EQ(joined.rows, kHidden + 2 * kKeys);
  EXPECT_EQ(joined.quant, QuantDesc{QuantType::kRow});
  EXPECT_EQ(joined.input_quant, QuantDesc{QuantType::kRow});
  EXPECT_EQ(joined.input_scale, 0);
  EXPECT_EQ(ScalesOf(joined)[kHidden - 1], kHidden);
  EXPECT_EQ(ScalesOf(joined)[kHidden], 1);
  EXPECT_EQ(memory.uploaded_bytes, model->weight_bytes());
}

// One scale is that of all rows; inputs have one that is given.
TEST(QuantisedCheckpoint, OneScaleIsThatOfAllRows) {
  Folder folder(Float("tensor", kStatic));
  folder.QuantiseAll(true);
  folder.AddFloat(Folder::Of("self_attn.k_proj.weight_scale"), 3.0f, {1});
  OtherMemory memory;
  const auto model = folder.Load(memory);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const LayerWeights& layer = model->weights().layers[0];
  const Weight* const parts[] = {&layer.q, &layer.k, &layer.v};
  const Weight joined = JoinedWeight(parts);
  ASSERT_TRUE(joined.present());
  EXPECT_EQ(joined.input_scale, 0.5f);
  EXPECT_EQ(ScalesOf(joined)[kHidden - 1], 1);
  EXPECT_EQ(ScalesOf(joined)[kHidden], 3);
  EXPECT_EQ(ScalesOf(joined)[kHidden + kKeys], 1);
}

// Blocks under compressed-tensors' names: what quant_method fp8 calls weight_scale_inv.
TEST(QuantisedCheckpoint, BlocksOfCompressedTensors) {
  Folder folder(Float(R"(block", "block_structure": [128, 128], "symmetric": true, "x": ")",
                      R"("strategy": "group", "group_size": 128, "dynamic": true)"));
  for (const char* module : kModules) {
    folder.Quantise(module, false);
    const Size size = SizeOf(module);
    folder.AddFloat(Folder::Of(module) + ".weight_scale", 1.0f,
                    {(size.rows + 127) / 128, (size.cols + 127) / 128});
  }
  const auto model = folder.Load(HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const Weight& down = model->weights().layers[0].down;
  EXPECT_EQ(down.quant, (QuantDesc{QuantType::kB, 128}));
  EXPECT_EQ(down.input_quant, (QuantDesc{QuantType::kK, 128}));
  EXPECT_EQ(ScalesOf(down)[1], 2);
}

// Weights whose inputs are quantised by other scales are not one product.
TEST(QuantisedCheckpoint, OtherScalesOfInputsDoNotJoin) {
  Folder folder(Float("tensor", kStatic));
  folder.QuantiseAll(true);
  folder.AddFloat(Folder::Of("mlp.up_proj.input_scale"), 0.25f, {1});
  OtherMemory memory;
  const auto model = folder.Load(memory);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const LayerWeights& layer = model->weights().layers[0];
  const Weight* const parts[] = {&layer.gate, &layer.up};
  EXPECT_FALSE(JoinedWeight(parts).present());
}

TEST(QuantisedCheckpoint, LayersMayStayIn16Bits) {
  Folder folder(Float("channel", kDynamic, "re:.*down_proj"));
  for (const char* module : kModules) {
    if (std::string(module) != "mlp.down_proj") folder.Quantise(module, false);
  }
  const auto model = folder.Load(HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->weights().layers[0].down.type, DataType::kBfloat16);
  EXPECT_EQ(model->weights().layers[0].up.type, DataType::kFloat8_e4m3);
}

TEST(QuantisedCheckpoint, SaysWhatIsWrong) {
  const auto why = [](const std::string& config, bool one,
                      const std::function<void(Folder&)>& change) {
    Folder folder(config);
    folder.QuantiseAll(one);
    change(folder);
    return folder.WhyNot();
  };
  const auto nothing = [](Folder&) {};
  EXPECT_THAT(why(Float("channel", kDynamic, "re:.*down_proj"), false, nothing),
              HasSubstr("tensor model.layers.0.mlp.down_proj.weight is F8_E4M3, but "
                        "quantization_config lists model.layers.0.mlp.down_proj"));
  EXPECT_THAT(why(Float("channel", kDynamic), true, nothing),
              HasSubstr("tensor model.layers.0.self_attn.q_proj.weight_scale is [1]; the config "
                        "makes it [128, 1]"));
  EXPECT_THAT(why(Float("tensor", kStatic), false, nothing),
              HasSubstr("q_proj.weight_scale is [128, 1]; the config makes it [1]"));
  EXPECT_THAT(why(Float("tensor", kStatic), true,
                  [](Folder& f) { f.Remove(Folder::Of("self_attn.o_proj.input_scale")); }),
              HasSubstr("tensor model.layers.0.self_attn.o_proj.input_scale is missing"));
  for (const float scale : {0.0f, -1.0f}) {
    EXPECT_THAT(
        why(Float("tensor", kStatic), true,
            [&](Folder& f) { f.AddFloat(Folder::Of("mlp.up_proj.input_scale"), scale, {1}); }),
        HasSubstr("tensor model.layers.0.mlp.up_proj.input_scale holds"));
  }
  EXPECT_THAT(why(Float("channel", kDynamic), false,
                  [](Folder& f) { f.Remove(Folder::Of("mlp.up_proj.weight_scale")); }),
              HasSubstr("tensor model.layers.0.mlp.up_proj.weight_scale is missing"));
}

TEST(QuantisedCheckpoint, PackedWeights) {
  const auto packed = [](const std::function<void(Folder&)>& change) {
    auto folder = std::make_unique<Folder>(kAwq);
    for (const char* module : kModules) {
      if (std::string(module) != "mlp.down_proj") folder->Pack(module);
    }
    change(*folder);
    return folder;
  };
  const auto nothing = [](Folder&) {};
  const auto whole = packed(nothing);
  const auto model = whole->Load(HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const Weight& gate = model->weights().layers[0].gate;
  EXPECT_EQ(gate.type, DataType::kUint4);
  EXPECT_EQ(gate.quant, (QuantDesc{QuantType::kK, 64}));
  EXPECT_EQ(BytesOf(gate), kWidth * kHidden / 2 + kWidth * (kHidden / 64) * (4 + 2));
  EXPECT_EQ(model->weights().layers[0].down.type, DataType::kBfloat16);
  OtherMemory memory;
  const auto elsewhere = packed(nothing)->Load(memory);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().ToString();
  const LayerWeights& layer = elsewhere->weights().layers[0];
  EXPECT_EQ(layer.gate.type, DataType::kUint4);
  // There one product serves q, k and v.
  const Weight* const parts[] = {&layer.q, &layer.k, &layer.v};
  const Weight joined = JoinedWeight(parts);
  ASSERT_TRUE(joined.present());
  EXPECT_EQ(joined.rows, kHidden + 2 * kKeys);
  const Weight& v = model->weights().layers[0].v;
  const std::int64_t first = kHidden + kKeys;
  for (std::int64_t row = 0; row < v.rows; ++row) {
    for (std::int64_t col = 0; col < kHidden; ++col) {
      ASSERT_EQ(LoadAsDouble(FromDevicePtr<const void>(joined.data_ptr), DataType::kUint4,
                             (first + row) * kHidden + col),
                LoadAsDouble(FromDevicePtr<const void>(v.data_ptr), DataType::kUint4,
                             row * kHidden + col));
    }
    for (std::int64_t group = 0; group < kHidden / 64; ++group) {
      const std::int64_t to = (first + row) * (kHidden / 64) + group;
      const std::int64_t from = row * (kHidden / 64) + group;
      ASSERT_EQ(LoadAsDouble(FromDevicePtr<const void>(joined.scales_ptr), joined.scales_type, to),
                LoadAsDouble(FromDevicePtr<const void>(v.scales_ptr), v.scales_type, from));
      ASSERT_EQ(LoadAsDouble(FromDevicePtr<const void>(joined.zeros_ptr), joined.zeros_type, to),
                LoadAsDouble(FromDevicePtr<const void>(v.zeros_ptr), v.zeros_type, from));
    }
  }
  EXPECT_THAT(packed([](Folder& f) { f.Remove(Folder::Of("mlp.gate_proj.qzeros")); })->WhyNot(),
              HasSubstr("tensor model.layers.0.mlp.gate_proj.qzeros is missing"));
  EXPECT_THAT(packed([](Folder& f) { f.Remove(Folder::Of("mlp.gate_proj.qweight")); })->WhyNot(),
              HasSubstr("tensor model.layers.0.mlp.gate_proj.qweight is missing"));
  EXPECT_THAT(
      packed([](Folder& f) {
        f.Add(Folder::Of("mlp.gate_proj.qzeros"), DataType::kInt32, {1, kWidth / 8});
      })->WhyNot(),
      HasSubstr("tensor model.layers.0.mlp.gate_proj.qzeros is [1, 32]; the config makes it "
                "[2, 32]"));
}

}  // namespace
}  // namespace culet
