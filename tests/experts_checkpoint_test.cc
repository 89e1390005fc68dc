// Checkpoints of models with experts: all of them in one tensor, and layers that are passed over.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "culet/decoder.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"
#include "model/checkpoint.h"

namespace culet {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ExpertsCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "culet_experts_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_;
};

// Three experts of width 2 and hidden size 5; numbers say where they lie.
constexpr std::int64_t kExperts = 3, kWidth = 2, kHidden = 5;

TEST_F(ExpertsCheckpoint, StackedWeightsAreTurnedAndTakenApart) {
  std::vector<float> both(kExperts * kHidden * 2 * kWidth), biases(kExperts * 2 * kWidth);
  for (std::size_t i = 0; i < both.size(); ++i) both[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < biases.size(); ++i) biases[i] = static_cast<float>(i);
  const Status written = WriteSafetensors(
      (folder_ / "model.safetensors").string(),
      {{"e.gate_up_proj", DataType::kFloat32, {kExperts, kHidden, 2 * kWidth}, both.data()},
       {"e.gate_up_proj_bias", DataType::kFloat32, {kExperts, 2 * kWidth}, biases.data()}});
  ASSERT_TRUE(written.ok()) << written.ToString();
  DecoderConfig config;
  config.architecture = "MixtralForCausalLM";
  WeightMemory memory(HostMemory());
  auto checkpoint = Checkpoint::Open(folder_.string(), config, memory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  for (std::int64_t e = 0; e < kExperts; ++e) {
    // Gates and ups side by side, then one behind the other.
    for (const auto& [first, step] :
         {std::pair{0, 2}, std::pair{1, 2}, std::pair{0, 1}, std::pair{2, 1}}) {
      StackedRequest request{.name = "e.gate_up_proj",
                             .count = kExperts,
                             .number = e,
                             .rows = kWidth,
                             .cols = kHidden,
                             .first = first,
                             .step = step,
                             .of = 2 * kWidth};
      const Weight weight = checkpoint->GetStacked(request);
      request.name += "_bias";
      request.cols = 0;
      const Weight bias = checkpoint->GetStacked(request);
      ASSERT_TRUE(checkpoint->status().ok()) << checkpoint->status().ToString();
      EXPECT_EQ(weight.rows, kWidth);
      EXPECT_EQ(weight.cols, kHidden);
      EXPECT_EQ(bias.rows, 1);
      EXPECT_EQ(bias.cols, kWidth);
      const auto* const w = FromDevicePtr<const float>(weight.data_ptr);
      const auto* const b = FromDevicePtr<const float>(bias.data_ptr);
      for (std::int64_t i = 0; i < kWidth; ++i) {
        EXPECT_EQ(b[i], static_cast<float>(e * 2 * kWidth + step * i + first));
        for (std::int64_t h = 0; h < kHidden; ++h) {
          EXPECT_EQ(w[i * kHidden + h],
                    static_cast<float>((e * kHidden + h) * 2 * kWidth + step * i + first));
        }
      }
    }
  }
  EXPECT_TRUE(checkpoint->AllRead().ok());
  const StackedRequest other{.name = "e.gate_up_proj",
                             .count = kExperts + 1,
                             .rows = kWidth,
                             .cols = kHidden,
                             .of = 2 * kWidth};
  EXPECT_FALSE(checkpoint->GetStacked(other).present());
  EXPECT_THAT(checkpoint->status().message(),
              HasSubstr("tensor e.gate_up_proj is [3, 5, 4]; the config makes it [4, 5, 4]"));
}

// GLM-4.5's fixture has tensors of a layer behind its three, of which its config speaks.
TEST_F(ExpertsCheckpoint, LayersThatPredictAheadArePassedOver) {
  const std::string source = FixtureFolder("glm4-moe");
  if (source.empty()) GTEST_SKIP() << "no fixture glm4-moe; set CULET_FIXTURES";
  fs::copy_file(source + "/model.safetensors", folder_ / "model.safetensors");
  const auto load = [&](int ahead) {
    std::ifstream file(source + "/config.json");
    auto config = nlohmann::json::parse(file);
    config["num_nextn_predict_layers"] = ahead;
    std::ofstream(folder_ / "config.json") << config.dump();
    return DecoderModel::Load(folder_.string(), HostMemory()).status();
  };
  EXPECT_TRUE(load(1).ok()) << load(1).ToString();
  EXPECT_THAT(load(0).message(), HasSubstr("model.layers.3.eh_proj.weight"));
}

}  // namespace
}  // namespace culet
