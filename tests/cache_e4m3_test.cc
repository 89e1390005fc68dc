// Caches of keys and values in E4M3: what a graph refuses, writes to the last bit, and sessions:
// where the scales come from, that nothing is clipped, how far logits move.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/e4m3_cache.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/safetensors.h"
#include "decoder_fixture.h"

namespace culet {
namespace {

namespace fs = std::filesystem;

constexpr DataType kCodes = DataType::kFloat8_e4m3;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CacheCode, RoundsToEvenSaturatesAndKeepsNaN) {
  const auto value = [](float x, float scale) {
    return Float8E4m3ToFloat(E4m3CacheCode(x, scale)) * scale;
  };
  EXPECT_EQ(value(1.0625f, 1), 1.0f);
  EXPECT_EQ(value(1.1875f, 1), 1.25f);
  EXPECT_EQ(value(464, 1), 448);
  EXPECT_EQ(value(-1e30f, 2), -896);
  EXPECT_EQ(value(0x1p-10f, 1), 0);
  EXPECT_EQ(value(3 * 0x1p-11f, 1), 0x1p-9f);
  for (const float x : {kNan, kInf, -kInf}) EXPECT_EQ(E4m3CacheCode(x, 1), kE4m3Nan) << x;
  EXPECT_EQ(value(std::numeric_limits<float>::max(), 1e-30f), 448 * 1e-30f);
}

// Each number on every dispatch of the host to the last bit, of heads that end within vectors.
TEST(CacheWrites, AreTheDefinitions) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  const auto cpu = MakeCpuDispatch(*gemm), reference = MakeReferenceDispatch();
  const std::vector<std::int32_t> slots = {2, -1, 0, 7, 4};
  for (const std::int64_t size : {1, 5, 16, 37}) {
    const std::int64_t cols = 3 * size;
    const std::vector<float> scales = {1, 0.3f, 0x1p-120f};
    std::vector<float> rows(slots.size() * static_cast<std::size_t>(cols));
    const float special[] = {kNan,    kInf,    -kInf,        0,        -0.0f,  448,  464, 465, -500,
                             1.0625f, 1.1875f, 3 * 0x1p-11f, 0x1p-10f, 1e-30f, 1e30f};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = i % 3 == 0
                    ? special[i / 3 % std::size(special)]
                    : std::sin(static_cast<float>(i)) * std::exp2(static_cast<float>(i % 23) - 12);
    }
    for (KernelDispatch* dispatch : {cpu.get(), reference.get()}) {
      std::vector<std::uint8_t> cache(static_cast<std::size_t>(5 * cols) + 8, 0x55);
      ComputeGraph graph;
      const Shape shape{5, cols};
      const int leaf = graph.add_leaf(ToDevicePtr(cache.data()), shape, kCodes);
      const int from = graph.add_leaf(ToDevicePtr(rows.data()), {5, cols});
      const int to = graph.add_leaf(ToDevicePtr(slots.data()), {5, 1}, DataType::kInt32);
      const int of = graph.add_leaf(ToDevicePtr(scales.data()), {1, 3});
      graph.add_op(TensorOp::kKvWrite, 0, shape, {leaf, from, to, of}, {}, "write", kCodes);
      const auto done = execute_graph(graph, *dispatch);
      ASSERT_TRUE(done.ok()) << done.status().ToString();
      for (std::int64_t i = 0; i < 5 * cols + 8; ++i) {
        std::uint8_t expected = 0x55;
        const auto at = std::ranges::find(slots, static_cast<std::int32_t>(i / cols));
        if (i < 5 * cols && at != slots.end()) {
          const std::int64_t row = at - slots.begin(), c = i % cols;
          expected = E4m3CacheCode(rows[static_cast<std::size_t>(row * cols + c)],
                                   scales[static_cast<std::size_t>(c / size)]);
        }
        ASSERT_EQ(cache[static_cast<std::size_t>(i)], expected) << "element " << i;
      }
    }
  }
}

// A graph with one write and one attention, each changed in one way.
TEST(CacheGraphs, RefuseWhatIsNotACacheOfCodes) {
  struct Fault {
    DataType cache = kCodes, scales = DataType::kFloat32;
    std::int64_t of_write = 2, of_attention = 2;
    bool without = false;  // no scales of the attention
    const char* words = "";
  };
  for (const Fault& fault :
       {Fault{}, Fault{.cache = DataType::kFloat16, .words = "kv_write takes 3"},
        Fault{.scales = DataType::kFloat16, .words = "it must be float32"},
        Fault{.of_write = 3, .words = "3 scales do not divide the 32 columns"},
        Fault{.of_attention = 4, .words = "it must be [1, 2]"},
        Fault{.without = true, .words = "caches of float8_e4m3 go with nine"}}) {
    ComputeGraph graph;
    alignas(64) static std::byte memory[1 << 14];
    const auto leaf = [&](Shape shape, DataType type) {
      return graph.add_leaf(ToDevicePtr(memory), shape, type);
    };
    const auto index = [&](Shape shape) { return leaf(shape, DataType::kInt32); };
    const int x = leaf({1, 32}, DataType::kFloat32), slots = index({1, 1});
    int caches[2];
    for (int& cache : caches) {
      cache = graph.add_op(
          TensorOp::kKvWrite, 0, {64, 32},
          {leaf({64, 32}, fault.cache), x, slots, leaf({1, fault.of_write}, fault.scales)}, {}, "",
          fault.cache);
    }
    OpParams params;
    params.attention = {.heads = 2, .kv_heads = 2, .head_dim = 16, .scale = 1, .block_size = 16};
    std::vector<int> inputs = {
        x, caches[0], caches[1], index({2, 1}), index({1, 1}), index({1, 1}), index({1, 4})};
    for (int i = 0; i < 2 && !fault.without; ++i) {
      inputs.push_back(leaf({1, fault.of_attention}, DataType::kFloat32));
    }
    graph.add_op(TensorOp::kAttention, 0, {1, 32}, inputs, params);
    const Status status = graph.Verify();
    EXPECT_EQ(status.ok(), *fault.words == 0) << status.ToString();
    EXPECT_NE(status.message().find(fault.words), std::string::npos) << status.ToString();
  }
}

// -- Sessions -------------------------------------------------------------------------------------

constexpr const char* kModels[] = {"llama-biases-llama3-tied", "llama-linear", "mistral-window",
                                   "mixtral-shards",           "qwen3-yarn",   "qwen2-some-windows",
                                   "qwen3-moe-shares",         "qwen3-moe-fp8"};

class CachesOfCodes : public testing::Test {
 protected:
  void SetUp() override {
    auto gemm = Gemm::Create();
    ASSERT_TRUE(gemm.ok());
    gemm_ = std::make_unique<Gemm>(*std::move(gemm));
    dispatch_ = MakeCpuDispatch(*gemm_);
  }

  static DecoderModel Load(const std::string& folder) {
    auto model = DecoderModel::Load(folder, HostMemory());
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return *std::move(model);
  }

  // Logits of a prompt in two pieces, and of one more token.
  std::vector<float> Logits(const DecoderModel& model, const std::vector<std::int32_t>& ids,
                            DataType cache, KernelDispatch& dispatch, const NodeHook& hook = {}) {
    auto session = Session::Create(
        model, dispatch,
        {.max_context = 64, .block_size = 4, .max_step_tokens = 7, .cache_type = cache});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    session->SetHook(hook);
    const int sequence = *session->AddSequence();
    auto result = session->Prefill(sequence, ids, {.all_logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    std::vector<float> logits = result->logits;
    const SequenceTokens next{sequence, {ids.data(), 1}};
    result = session->Step({&next, 1}, {.logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    logits.insert(logits.end(), result->logits.begin(), result->logits.end());
    return logits;
  }

  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<KernelDispatch> dispatch_;
};

// Every key and value that a model makes is within its scale, and the codes are as near as four
// bits allow: scales are no larger than they may be, either.
TEST_F(CachesOfCodes, ClipNothingAndKeepFourBits) {
  for (const char* name : kModels) {
    const auto goldens = ReadGoldens(OwnGoldens(name));
    ASSERT_TRUE(goldens.has_value()) << name;
    const DecoderModel model = Load(OwnGoldens(name));
    int writes = 0;
    Logits(model, goldens->input_ids, kCodes, *dispatch_,
           [&](KernelDispatch& dispatch, const NodeLaunch& launch) -> Status {
             CULET_RETURN_IF_ERROR(dispatch.launch(launch));
             if (launch.node().op != TensorOp::kKvWrite) return {};
             ++writes;
             const Shape shape = launch.input_node(1).shape;
             const auto* const rows = FromDevicePtr<const float>(launch.input(1));
             const auto* const slots = FromDevicePtr<const std::int32_t>(launch.input(2));
             const auto* const scales = FromDevicePtr<const float>(launch.input(3));
             const std::int64_t size = shape.cols / launch.input_node(3).shape.cols;
             double error = 0, norm = 0;
             for (std::int64_t i = 0; i < shape.rows * shape.cols; ++i) {
               const std::int64_t c = i % shape.cols;
               const float scale = scales[c / size];
               EXPECT_LE(std::fabs(rows[i]), 448 * scale) << launch.Describe();
               const double stored = LoadAsDouble(FromDevicePtr<const void>(launch.output), kCodes,
                                                  slots[i / shape.cols] * shape.cols + c) *
                                     scale;
               error += (stored - rows[i]) * (stored - rows[i]);
               norm += double{rows[i]} * rows[i];
             }
             EXPECT_LE(std::sqrt(error), 0.035 * std::sqrt(norm)) << launch.Describe();
             return {};
           });
    EXPECT_GT(writes, 0) << name;
  }
}

// Logits beside those of a cache of float32, and the reference with the same cache.
TEST_F(CachesOfCodes, LogitsStayNear) {
  const auto reference = MakeReferenceDispatch();
  for (const char* name : kModels) {
    const auto goldens = ReadGoldens(OwnGoldens(name));
    ASSERT_TRUE(goldens.has_value()) << name;
    const DecoderModel model = Load(OwnGoldens(name));
    const auto exact = Logits(model, goldens->input_ids, DataType::kFloat32, *dispatch_);
    const auto near = Logits(model, goldens->input_ids, kCodes, *dispatch_);
    const auto same = Logits(model, goldens->input_ids, kCodes, *reference);
    ASSERT_EQ(near.size(), exact.size());
    const double moved = RelativeL2(near.data(), exact.data(), exact.size());
    const double apart = RelativeL2(near.data(), same.data(), same.size());
    RecordProperty(name, std::to_string(moved) + " " + std::to_string(apart));
    // A router's near ties, and those of E4M3 inputs, choose other experts and codes.
    const DecoderConfig& config = model.config();
    EXPECT_LE(moved, config.experts > 0 || config.coding.is_e4m3() ? 0.25 : 0.08) << name;
    EXPECT_GT(moved, 1e-4) << name << ": is it rounded at all?";
    EXPECT_LE(apart, 0.03) << name;
  }
}

// A model whose files hold scales of their own.
class GivenScales : public CachesOfCodes {
 protected:
  void SetUp() override {
    CachesOfCodes::SetUp();
    folder_ = fs::path(testing::TempDir()) /
              ("culet_scales_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    fs::create_directories(folder_);
    source_ = OwnGoldens("llama-linear");
    fs::copy_file(source_ + "/config.json", folder_ / "config.json",
                  fs::copy_options::overwrite_existing);
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  // The checkpoint with k_scale in every layer.
  void Write(const std::vector<float>& scales, const std::vector<std::int64_t>& shape) {
    const auto file = SafetensorsFile::Open(source_ + "/model.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    std::vector<SafetensorsEntry> entries;
    const DecoderModel source = Load(source_);
    for (const LayerWeights& layer : source.weights().layers) {
      std::string name = layer.k.name;
      name.replace(name.find("k_proj"), std::string::npos, "k_scale");
      entries.push_back({name, DataType::kFloat32, shape, scales.data()});
    }
    for (const SafetensorsTensor& tensor : file->tensors()) {
      entries.push_back({tensor.name, tensor.type(), tensor.shape, tensor.data});
    }
    std::ranges::stable_sort(entries, std::ranges::greater(),
                             [](const SafetensorsEntry& e) { return SizeOf(e.type); });
    const Status written = WriteSafetensors((folder_ / "model.safetensors").string(), entries);
    ASSERT_TRUE(written.ok()) << written.ToString();
  }

  fs::path folder_;
  std::string source_;
};

// They count more than the bound; too small ones saturate, on every dispatch alike.
TEST_F(GivenScales, Serve) {
  const auto goldens = ReadGoldens(source_);
  ASSERT_TRUE(goldens.has_value());
  const auto reference = MakeReferenceDispatch();
  const int heads = Load(source_).config().kv_heads;
  for (const float scale : {0.05f, 1e-4f}) {
    for (const bool each : {false, true}) {
      const std::vector<float> scales(static_cast<std::size_t>(heads), scale);
      Write(scales, each ? std::vector<std::int64_t>{heads} : std::vector<std::int64_t>{});
      const DecoderModel model = Load(folder_.string());
      float most = 0, found = 0;
      const NodeHook hook = [&](KernelDispatch& dispatch, const NodeLaunch& launch) -> Status {
        if (launch.node().op == TensorOp::kKvWrite &&
            launch.node().name.ends_with("key_cache_write")) {
          found = *FromDevicePtr<const float>(launch.input(3));
          const Shape shape = launch.input_node(1).shape;
          for (std::int64_t i = 0; i < shape.rows * shape.cols; ++i) {
            most = std::max(most, std::fabs(FromDevicePtr<const float>(launch.input(1))[i]));
          }
        }
        return dispatch.launch(launch);
      };
      const auto near = Logits(model, goldens->input_ids, kCodes, *dispatch_, hook);
      const auto same = Logits(model, goldens->input_ids, kCodes, *reference);
      EXPECT_EQ(found, scale);
      EXPECT_EQ(most > 448 * scale, scale == 1e-4f);
      EXPECT_LE(RelativeL2(near.data(), same.data(), same.size()), 0.03) << scale;
      // Another type of cache does not ask for them.
      EXPECT_EQ(Logits(model, goldens->input_ids, DataType::kFloat32, *dispatch_),
                Logits(Load(source_), goldens->input_ids, DataType::kFloat32, *dispatch_));
    }
  }
}

TEST_F(GivenScales, AreRefusedUnlessPositive) {
  for (const float scale : {0.0f, -1.0f, kNan, kInf}) {
    Write({scale}, {1});
    const DecoderModel model = Load(folder_.string());
    const auto session = Session::Create(model, *dispatch_, {.cache_type = kCodes});
    ASSERT_FALSE(session.ok()) << scale;
    EXPECT_EQ(session.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(session.status().message().find("self_attn.k_scale holds"), std::string::npos)
        << session.status().ToString();
  }
  Write({1, 1, 1, 1, 1, 1, 1}, {7});
  const auto model = DecoderModel::Load(folder_.string(), HostMemory());
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("k_scale is [7]; it must have one element or"),
            std::string::npos)
      << model.status().ToString();
}

// A byte an element and the scales; what a session says that it takes.
TEST_F(CachesOfCodes, TakeAQuarterOfFloat32) {
  const DecoderModel model = Load(OwnGoldens("llama-linear"));
  SessionOptions options{.max_sequences = 3, .max_context = 64};
  const auto wide = CacheBytes(model.config(), options);
  options.cache_type = kCodes;
  const auto narrow = CacheBytes(model.config(), options);
  ASSERT_TRUE(wide.ok() && narrow.ok());
  const auto scales = static_cast<std::size_t>(2 * model.config().layers) * 256;
  EXPECT_EQ(*narrow, *wide / 4 + scales);
  const auto session = Session::Create(model, *dispatch_, options);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_EQ(session->cache_bytes(), static_cast<double>(*narrow));
}

}  // namespace
}  // namespace culet
