// Weights that one product serves are contiguous on a device that does not read the host's memory,
// and hold what they hold elsewhere.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "decoder_fixture.h"
#include "graph/joined_weight.h"
#include "other_memory.h"

namespace culet {
namespace {

constexpr const char* kConfig = R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
  "vocab_size": 32, "hidden_size": 512, "intermediate_size": $I, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true})";

DecoderConfig ConfigOf(const std::string& intermediate) {
  std::string text = kConfig;
  text.replace(text.find("$I"), 2, intermediate);
  auto config = ParseDecoderConfig(text, "the test");
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return *std::move(config);
}

void ExpectSame(const Weight& a, const Weight& b) {
  ASSERT_EQ(a.type, b.type);
  if (!a.present()) return;
  const auto equal = [](DevicePtr x, DevicePtr y, std::int64_t bytes) {
    return std::memcmp(FromDevicePtr<const void>(x), FromDevicePtr<const void>(y),
                       static_cast<std::size_t>(bytes)) == 0;
  };
  const auto size = static_cast<std::int64_t>(SizeOf(a.type));
  EXPECT_TRUE(equal(a.data_ptr, b.data_ptr, a.rows * a.cols * size)) << a.name;
  if (a.scales_ptr == 0) return;
  EXPECT_TRUE(equal(a.scales_ptr, b.scales_ptr, (a.rows + 127) / 128 * ((a.cols + 127) / 128) * 4))
      << a.name;
}

void ExpectSame(const DecoderModel& a, const DecoderModel& b) {
  for (std::size_t i = 0; i < a.weights().layers.size(); ++i) {
    const LayerWeights &x = a.weights().layers[i], &y = b.weights().layers[i];
    for (Weight LayerWeights::*weight :
         {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::o,
          &LayerWeights::q_bias, &LayerWeights::k_bias, &LayerWeights::v_bias, &LayerWeights::gate,
          &LayerWeights::up, &LayerWeights::down, &LayerWeights::gate_bias, &LayerWeights::up_bias,
          &LayerWeights::mlp_norm}) {
      ExpectSame(x.*weight, y.*weight);
    }
  }
}

Weight Qkv(const LayerWeights& layer) {
  const Weight* const parts[] = {&layer.q, &layer.k, &layer.v};
  return JoinedWeight(parts);
}
Weight GateUp(const LayerWeights& layer) {
  const Weight* const parts[] = {&layer.gate, &layer.up};
  return JoinedWeight(parts);
}

TEST(JoinedWeights, OfAllTypes) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8_e4m3}) {
    // E4M3 of 136 rows ends in the middle of a block.
    for (const char* intermediate : {"384", "136"}) {
      const DecoderConfig config = ConfigOf(intermediate);
      OtherMemory memory;
      const auto model = DecoderModel::Random(config, type, memory);
      ASSERT_TRUE(model.ok()) << model.status().ToString();
      const auto on_host = DecoderModel::Random(config, type, HostMemory());
      ASSERT_TRUE(on_host.ok()) << on_host.status().ToString();
      ExpectSame(*model, *on_host);
      EXPECT_EQ(memory.uploaded_bytes, model->weight_bytes());  // one copy
      const LayerWeights& layer = model->weights().layers[1];
      EXPECT_EQ(Qkv(layer).rows, 512 + 2 * 256) << ToString(type);
      const Weight* const biases[] = {&layer.q_bias, &layer.k_bias, &layer.v_bias};
      const Weight bias = JoinedWeight(biases);
      EXPECT_EQ(bias.rows, 1);
      EXPECT_EQ(bias.cols, 512 + 2 * 256);
      const bool whole = type != DataType::kFloat8_e4m3 || std::string(intermediate) == "384";
      EXPECT_EQ(GateUp(layer).present(), whole) << ToString(type);
    }
  }
}

TEST(JoinedWeights, OfACheckpoint) {
  const std::string folder = OwnGoldens("llama-biases-llama3-tied");
  OtherMemory memory;
  const auto model = DecoderModel::Load(folder, memory);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto mapped = DecoderModel::Load(folder, HostMemory());
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  ExpectSame(*model, *mapped);
  const LayerWeights& layer = model->weights().layers[0];
  EXPECT_TRUE(Qkv(layer).present());
  EXPECT_TRUE(GateUp(layer).present());
}

// Experts of one tensor: of all gate, then of all up, as grouped products take them.
TEST(JoinedWeights, OfStackedExperts) {
  const std::string folder = FixtureFolder("gptoss-bf16");
  if (folder.empty()) GTEST_SKIP() << "no fixture gptoss-bf16; set CULET_FIXTURES";
  OtherMemory memory;
  const auto model = DecoderModel::Load(folder, memory);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto on_host = DecoderModel::Load(folder, HostMemory());
  ASSERT_TRUE(on_host.ok()) << on_host.status().ToString();
  const LayerWeights &layer = model->weights().layers[0], &host = on_host->weights().layers[0];
  std::vector<const Weight*> joined;
  for (const auto part : {&LayerWeights::expert_gate, &LayerWeights::expert_up}) {
    for (const Weight& weight : (layer.*part)->weights) joined.push_back(&weight);
  }
  ASSERT_GT(joined.size(), 4U);
  for (std::size_t i = 1; i < joined.size(); ++i) {
    EXPECT_EQ(joined[i]->data_ptr - joined[i - 1]->data_ptr,
              static_cast<DevicePtr>(joined[i]->rows * joined[i]->cols) * SizeOf(joined[i]->type));
  }
  for (const auto part :
       {&LayerWeights::expert_gate, &LayerWeights::expert_up, &LayerWeights::expert_down}) {
    for (std::size_t e = 0; e < (layer.*part)->weights.size(); ++e) {
      ExpectSame((layer.*part)->weights[e], (host.*part)->weights[e]);
      ExpectSame((layer.*part)->biases[e], (host.*part)->biases[e]);
    }
  }
}

TEST(JoinedWeights, AreOfOneTypeAndLength) {
  std::vector<float> memory(64);
  Weight a;
  a.data_ptr = ToDevicePtr(memory.data());
  a.type = DataType::kFloat32;
  a.rows = 2, a.cols = 8;
  Weight b = a;
  b.data_ptr += 2 * 8 * sizeof(float);
  const auto joined = [&] {
    const Weight* const parts[] = {&a, &b};
    return JoinedWeight(parts);
  };
  EXPECT_EQ(joined().rows, 4);
  b.cols = 4;
  EXPECT_FALSE(joined().present());
  b.cols = 8, b.data_ptr += 4;
  EXPECT_FALSE(joined().present());
  b.data_ptr -= 4, b.type = DataType::kBfloat16;
  EXPECT_FALSE(joined().present());
  b.type = DataType::kNull;
  EXPECT_FALSE(joined().present());
}

TEST(JoinedWeights, HaveTheirScalesBehindEachOther) {
  std::vector<std::byte> codes(2 * 128 * 128);
  std::vector<float> scales(3);
  Weight a;
  a.data_ptr = ToDevicePtr(codes.data());
  a.type = DataType::kFloat8_e4m3;
  a.rows = a.cols = 128;
  a.quant = {QuantType::kB, 128};
  a.scales_ptr = ToDevicePtr(scales.data());
  a.scales_type = DataType::kFloat32;
  Weight b = a;
  b.data_ptr += 128 * 128;
  b.scales_ptr += sizeof(float);
  const auto joined = [&] {
    const Weight* const parts[] = {&a, &b};
    return JoinedWeight(parts);
  };
  EXPECT_EQ(joined().rows, 256);
  b.scales_ptr += sizeof(float);
  EXPECT_FALSE(joined().present());
}

}  // namespace
}  // namespace culet
