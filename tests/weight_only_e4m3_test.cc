// Checkpoints with E4M3 weights whose inputs are not quantised, on the CPU and in double: what they
// give is what the dequantised weights give.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/float_types.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/quantize_checkpoint.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int32_t kPrompt[] = {1, 5, 2, 7, 11, 3, 8};

class WeightOnly : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("weight_only_" + std::to_string(getpid()) + "_" +
                                            std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    fs::create_directories(root_);
    const auto& [source, strategy] = GetParam();
    fs::path folder = OwnGoldens(source);
    if (strategy != std::string("block")) {
      QuantizeCheckpointOptions options;
      options.format = CheckpointFormat::kFp8Row;
      const auto made = QuantizeCheckpoint(folder.string(), (root_ / "rows").string(), options);
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      ASSERT_GT(made->quantised, 4u);
      folder = root_ / "rows";
    }
    fs::create_directories(root_ / "e4m3");
    fs::create_directories(root_ / "plain");
    WriteConfigs(folder / "config.json", strategy);
    WriteWeights(folder / "model.safetensors", strategy == std::string("tensor"));
  }
  void TearDown() override { fs::remove_all(root_); }

  void WriteConfigs(const fs::path& path, const std::string& strategy) {
    std::ifstream from(path);
    json config = json::parse(from);
    const json before = config["quantization_config"];
    config.erase("quantization_config");
    std::ofstream(root_ / "plain" / "config.json") << config;
    json weights{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", strategy}};
    if (strategy == "block") weights["block_structure"] = {128, 128};
    const json group{{"weights", weights}, {"input_activations", nullptr}};
    config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "float-quantized"},
        {"config_groups", {{"group_0", group}}},
        {"ignore", before.value("ignore", before.value("modules_to_not_convert", json::array()))}};
    std::ofstream(root_ / "e4m3" / "config.json") << config;
  }

  // The same weights, and each times its scales in float32. Of `one` the first scale is that of all
  // rows.
  void WriteWeights(const fs::path& path, bool one) {
    auto file = SafetensorsFile::Open(path.string());
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    constexpr std::string_view kInverse = "_scale_inv";
    std::vector<std::vector<std::byte>> kept;
    std::vector<SafetensorsEntry> plain, scaled, codes;
    const auto keep = [&](std::vector<std::byte> bytes) {
      kept.push_back(std::move(bytes));
      return kept.back().data();
    };
    for (const SafetensorsTensor& tensor : file->tensors()) {
      std::vector<std::byte> bytes(tensor.data, tensor.data + tensor.bytes);  // aligned
      const DataType type = tensor.type();
      const bool inverse = tensor.name.ends_with(kInverse);
      if (inverse || tensor.name.ends_with("_scale")) {
        const std::string of_weight =
            inverse ? tensor.name.substr(0, tensor.name.size() - kInverse.size()) + "_scale"
                    : tensor.name;
        using Shape = std::vector<std::int64_t>;
        scaled.push_back({of_weight, type, one ? Shape{1} : tensor.shape, keep(bytes)});
        continue;
      }
      (type == DataType::kFloat8_e4m3 ? codes : scaled)
          .push_back({tensor.name, type, tensor.shape, keep(bytes)});
      std::vector<std::byte> wide(static_cast<std::size_t>(tensor.elements()) * sizeof(float));
      const SafetensorsTensor* scales = file->Find(tensor.name + "_scale");
      const bool blocks = scales == nullptr;
      if (blocks) scales = file->Find(tensor.name + std::string(kInverse));
      std::vector<std::byte> of;
      if (scales != nullptr) of.assign(scales->data, scales->data + scales->bytes);
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        double value = LoadAsDouble(bytes.data(), type, i);
        if (scales != nullptr) {
          const std::int64_t row = i / tensor.shape[1], col = i % tensor.shape[1];
          const std::int64_t at = one ? 0 : blocks ? row / 128 * scales->shape[1] + col / 128 : row;
          value *= LoadAsDouble(of.data(), scales->type(), at);
        }
        StoreFromDouble(wide.data(), DataType::kFloat32, i, value);
      }
      plain.push_back({tensor.name, DataType::kFloat32, tensor.shape, keep(std::move(wide))});
    }
    scaled.insert(scaled.end(), codes.begin(), codes.end());
    ASSERT_TRUE(WriteSafetensors((root_ / "e4m3" / "model.safetensors").string(), scaled).ok());
    ASSERT_TRUE(WriteSafetensors((root_ / "plain" / "model.safetensors").string(), plain).ok());
  }

  std::vector<float> Logits(const char* folder, KernelDispatch& dispatch) {
    auto model = DecoderModel::Load((root_ / folder).string(), HostMemory());
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    if (!model.ok()) return {};
    const Weight& q = model->weights().layers[0].q;
    EXPECT_EQ(q.type, folder == std::string("e4m3") ? DataType::kFloat8_e4m3 : DataType::kFloat32);
    EXPECT_EQ(q.input_quant, QuantDesc{});
    auto session = Session::Create(*model, dispatch, {.max_context = 16});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    if (!session.ok()) return {};
    const int sequence = *session->AddSequence();
    auto result = session->Prefill(sequence, kPrompt, {.all_logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? std::move(result->logits) : std::vector<float>();
  }

  fs::path root_;
};

TEST_P(WeightOnly, GivesWhatDequantisedWeightsGive) {
  const auto exact = MakeReferenceDispatch();
  const std::vector<float> wanted = Logits("plain", *exact);
  ASSERT_FALSE(wanted.empty());
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  for (const auto& dispatch : {MakeCpuDispatch(*gemm), MakeReferenceDispatch()}) {
    const std::vector<float> found = Logits("e4m3", *dispatch);
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_LE(RelativeL2(found.data(), wanted.data(), wanted.size()), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeightOnly,
                         testing::Values(std::tuple{"llama-linear", "channel"},
                                         std::tuple{"llama-linear", "tensor"},
                                         std::tuple{"qwen3-moe-shares", "channel"},
                                         std::tuple{"qwen3-moe-fp8", "block"}));

}  // namespace
}  // namespace culet
