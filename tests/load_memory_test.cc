// What loading a model into a device's memory needs, and says.
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "decoder_fixture.h"
#include "other_memory.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

TEST(LoadMemory, WhatDoesNotFitIsRefusedBeforeACopy) {
  const std::string folder = OwnGoldens("llama-linear");
  OtherMemory memory;
  const auto loaded = DecoderModel::Load(folder, memory);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const auto bytes = static_cast<std::size_t>(loaded->weight_bytes());
  int copies = 0;
  const auto load = [&](std::size_t free, std::size_t reserve) {
    memory.free = free;
    copies = 0;
    return DecoderModel::Load(folder, memory,
                              {.reserve = reserve, .on_progress = [&](auto, auto) { ++copies; }})
        .status();
  };
  EXPECT_TRUE(load(bytes, 0).ok());
  EXPECT_GT(copies, 10);
  EXPECT_TRUE(load(bytes + 5, 5).ok());
  const Status few = load(bytes - 1, 0);
  EXPECT_EQ(few.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(few.message(), HasSubstr(std::to_string(bytes) + " bytes"));
  EXPECT_THAT(few.message(), HasSubstr(std::to_string(bytes - 1) + " are free"));
  EXPECT_EQ(copies, 0);
  EXPECT_THAT(load(bytes + 5, 6).message(), HasSubstr("and 6 beside them"));
  EXPECT_EQ(memory.uploads, 0);
}

TEST(LoadMemory, ProgressGoesToTheEnd) {
  OtherMemory memory;
  std::vector<std::pair<std::size_t, std::size_t>> calls;
  const auto loaded = DecoderModel::Load(OwnGoldens("qwen3-moe-fp8"), memory,
                                         {.on_progress = [&](auto done, auto all) {
                                           calls.push_back({done, all});
                                         }});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ASSERT_FALSE(calls.empty());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].second, calls[0].second);
    EXPECT_LE(calls[i].first, calls[i].second);
    EXPECT_GE(calls[i].first, calls[i > 0 ? i - 1 : 0].first);
  }
  EXPECT_EQ(calls.back().first, calls.back().second);
}

DecoderConfig SmallConfig() {
  return *ParseDecoderConfig(R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 1100,
    "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "intermediate_size": 512, "num_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 128, "mlp_only_layers": [1]})",
                             "config");
}

TEST(LoadMemory, RandomWeightsThatDoNotFitAreNotMade) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat8_e4m3}) {
    OtherMemory memory;
    const auto make = [&](std::size_t free, std::size_t reserve) {
      memory.free = free;
      return DecoderModel::Random(SmallConfig(), type, memory, 1, {.reserve = reserve}).status();
    };
    const auto all = DecoderModel::Random(SmallConfig(), type, HostMemory());
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    const auto bytes = static_cast<std::size_t>(all->weight_bytes());
    EXPECT_TRUE(make(bytes + 7, 7).ok());
    memory.uploads = 0;
    for (const auto& [free, reserve] : {std::pair{bytes - 1, std::size_t{0}}, {bytes + 6, 7}}) {
      const Status few = make(free, reserve);
      EXPECT_EQ(few.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(few.message(), HasSubstr("a Qwen3MoeForCausalLM of random weights needs " +
                                           std::to_string(bytes) + " bytes"));
      EXPECT_THAT(few.message(), HasSubstr(std::to_string(free) + " are free"));
    }
    EXPECT_EQ(memory.uploads, 0);
  }
}

TEST(LoadMemory, TheHostKnowsWhatIsFree) {
  const auto free = HostMemory().free_bytes();
  ASSERT_TRUE(free.has_value());
  EXPECT_GT(*free, std::size_t{1} << 20);
  DecoderConfig config = SmallConfig();
  config.vocab = 2'000'000'000;  // 2 TB of embedding and head
  config.hidden = 256;
  EXPECT_EQ(DecoderModel::Random(config, DataType::kFloat32, HostMemory()).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(LoadMemory, StopEndsLoadingAndMaking) {
  int asked = 0;
  LoadOptions options;
  options.stop = [&] { return ++asked == 3; };
  OtherMemory memory;
  const Status loaded = DecoderModel::Load(OwnGoldens("llama-linear"), memory, options).status();
  EXPECT_EQ(loaded.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(loaded.message(), HasSubstr("bytes of weights were there"));
  EXPECT_EQ(asked, 3);
  for (DeviceMemory* const to : {static_cast<DeviceMemory*>(&memory), &HostMemory()}) {
    asked = 0;
    const Status made =
        DecoderModel::Random(SmallConfig(), DataType::kBfloat16, *to, 1, options).status();
    EXPECT_EQ(made.code(), StatusCode::kFailedPrecondition) << made.ToString();
    EXPECT_EQ(asked, 3);
  }
  options.stop = []() -> bool { throw std::runtime_error("enough"); };
  EXPECT_EQ(
      DecoderModel::Random(SmallConfig(), DataType::kBfloat16, memory, 1, options).status().code(),
      StatusCode::kFailedPrecondition);
}

TEST(LoadMemory, TheBytesOfACacheAreThoseOfTheSession) {
  const auto model = DecoderModel::Load(OwnGoldens("llama-linear"), HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  SessionOptions options;
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const int context : {0, 1, 77}) {
      options.cache_type = type, options.max_context = context, options.max_sequences = 3;
      const auto bytes = CacheBytes(model->config(), options);
      ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
      const auto dispatch = MakeReferenceDispatch();
      const auto session = Session::Create(*model, *dispatch, options);
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      EXPECT_EQ(static_cast<double>(*bytes), session->cache_bytes()) << context;
    }
  }
  options.block_size = 0;
  EXPECT_THAT(CacheBytes(model->config(), options).status().message(),
              HasSubstr("block_size is 0"));
}

// A cache of the values' own type holds them as they are.
TEST(LoadMemory, ACacheIsOfTheValuesTypeUnlessItIsGiven) {
  const auto model = DecoderModel::Load(OwnGoldens("llama-linear"), HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto dispatch = MakeReferenceDispatch();
  const auto made = [&](DataType values, DataType cache) -> SessionOptions {
    SessionOptions options;
    options.value_type = values, options.cache_type = cache;
    const auto bytes = CacheBytes(model->config(), options);
    const auto session = Session::Create(*model, *dispatch, options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    EXPECT_EQ(static_cast<double>(*bytes), session->cache_bytes());
    return session->options();
  };
  constexpr DataType kNull = DataType::kNull, kBf16 = DataType::kBfloat16;
  constexpr DataType kF32 = DataType::kFloat32;
  EXPECT_EQ(made(kNull, kNull).cache_type, kF32);
  EXPECT_EQ(made(kBf16, kNull).cache_type, kBf16);
  EXPECT_EQ(made(kBf16, kF32).cache_type, kF32);
  EXPECT_EQ(made(kF32, kBf16).cache_type, kBf16);
}

TEST(LoadMemory, TheHostsOwnMemoryCopiesNothing) {
  int calls = 0;
  const auto loaded =
      DecoderModel::Load(OwnGoldens("llama-linear"), HostMemory(),
                         {.reserve = ~std::size_t{0}, .on_progress = [&](auto, auto) { ++calls; }});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace culet
