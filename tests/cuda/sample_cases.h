// Sample against the reference: the same token from every dispatch, whatever the options leave out.
#pragma once

#include <algorithm>
#include <array>

#include "cases.h"
#include "culet/decoder.h"
#include "culet/sampling.h"

namespace culet {

/// A graph of one Sample.
inline ComputeGraph SampleGraph(const Matrix& logits, const std::vector<SamplingOptions>& options,
                                const Matrix& draws, Matrix& packed, std::uint32_t first_draw = 0) {
  for (std::size_t row = 0; row < options.size(); ++row) {
    const SamplingRow words = PackSampling(options[row]);
    std::memcpy(packed.bytes.data() + row * sizeof words, words.data(), sizeof words);
  }
  ComputeGraph graph;
  OpParams params;
  params.int_param = first_draw;
  const int in = logits.AsLeaf(graph);
  graph.add_op(TensorOp::kSample, 0, {logits.rows, 1},
               {in, packed.AsLeaf(graph), draws.AsLeaf(graph)}, params, "", DataType::kInt32);
  return graph;
}

class Samples : public CudaGraphs {
 protected:
  static Matrix Packed(std::size_t rows) {
    return Matrix(static_cast<std::int64_t>(rows), 8, std::vector<std::int32_t>(rows * 8));
  }
  static Matrix Draws(std::size_t rows) {
    std::vector<std::int32_t> draws;
    for (std::size_t row = 0; row < rows; ++row)
      draws.push_back(static_cast<std::int32_t>(row * 7));
    return Indices(draws);
  }
  void SetUp() override {
    CudaGraphs::SetUp();
    if (IsSkipped()) return;
    // The CPU makes float32 values alone.
    types_ = {DataType::kFloat32};
    if (TakesBfloat16()) types_.push_back(DataType::kBfloat16);
  }
  bool TakesBfloat16() const {
    const Matrix one(DataType::kBfloat16, 1, 1, 1), draws = Indices({0});
    Matrix packed = Packed(1);
    return test_.dispatch->supports(SampleGraph(one, {{}}, draws, packed), 3).ok();
  }
  std::vector<DataType> types_;
};

// Every mixture of options, each on a row of its own, so that rows need different passes.
inline std::vector<SamplingOptions> Mixtures() {
  std::vector<SamplingOptions> all;
  std::uint64_t seed = 0;
  for (const float temperature : {0.0f, 1.0f, 40.0f}) {
    for (const int top_k : {0, 1, 2, 50, 100000}) {
      for (const float top_p : {1.0f, 0.8f, 1e-6f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          if (temperature == 0 && seed > 2) continue;
          all.push_back({temperature, top_k, top_p, min_p, seed++ * 0x9E3779B97F4A7C15u});
        }
      }
    }
  }
  return all;
}

TEST_F(Samples, DrawAsTheReference) {
  const std::vector<SamplingOptions> options = Mixtures();
  const auto rows = static_cast<std::int64_t>(options.size());
  for (const DataType type : types_) {
    for (const std::int64_t cols : {1, 2, 37, 4096, 9001}) {
      std::vector<float> values = Normal(rows * cols, 3);
      for (float& value : values) value *= 4;
      const Matrix logits(type, rows, cols, values), draws = Draws(options.size());
      Matrix packed = Packed(options.size());
      ExpectReference(SampleGraph(logits, options, draws, packed, 5),
                      std::string(ToString(type)) + " of " + std::to_string(cols));
    }
  }
}

// Bounds that fall among equal logits, over several slices of a row.
TEST_F(Samples, TiesGoByIndex) {
  const std::vector<SamplingOptions> options = Mixtures();
  const auto rows = static_cast<std::int64_t>(options.size());
  constexpr std::int64_t kCols = 9000;
  for (const DataType type : types_) {
    std::vector<float> values = Normal(rows * kCols, 4);
    for (float& value : values) value = std::round(value * 2) / 2;
    for (std::int64_t row = 0; row < rows; row += 3) {
      std::fill_n(values.begin() + row * kCols, kCols, -0.0f);
      values[static_cast<std::size_t>(row * kCols + 4500)] = 0;
    }
    const Matrix logits(type, rows, kCols, values), draws = Draws(options.size());
    Matrix packed = Packed(options.size());
    ExpectReference(SampleGraph(logits, options, draws, packed), ToString(type));
  }
}

TEST_F(Samples, LogitsThatAreNoNumbers) {
  const std::vector<SamplingOptions> options(8, {.temperature = 1, .top_k = 40, .top_p = 0.9f});
  constexpr std::int64_t kCols = 5001;
  for (const DataType type : types_) {
    Matrix logits(type, 8, kCols, 5);
    logits.Set(0 * kCols + 4900, kNaN);
    logits.Set(1 * kCols + 77, kInfinity);
    logits.Set(1 * kCols + 78, kInfinity);
    logits.Set(2 * kCols + 3, kInfinity), logits.Set(2 * kCols + 4, kNaN);
    for (std::int64_t c = 0; c < kCols; ++c) {
      logits.Set(3 * kCols + c, -kInfinity);
      logits.Set(4 * kCols + c, c == 4321 ? -3 : -kInfinity);
      logits.Set(5 * kCols + c, c % 2 == 0 ? 3e38 : -3e38);
      logits.Set(6 * kCols + c, 1e-40 * static_cast<double>(c));
    }
    const Matrix draws = Draws(8);
    Matrix packed = Packed(8);
    ExpectReference(SampleGraph(logits, options, draws, packed), ToString(type));
  }
}

// Options that PackSampling does not make: some token of the row, and nothing else is touched.
TEST_F(Samples, WordsThatNobodyPacked) {
  constexpr std::int64_t kCols = 4500;
  Matrix logits(DataType::kFloat32, 6, kCols, 6);
  Matrix packed(6, 8,
                {0x7FC00000, 1, 0, 0, 0,  0,  0, 0, -1,         -1, -1, -1, -1, -1, -1, -1,  //
                 0x7F800000, 1, 0, 1, 0,  0,  0, 0, 0x3F800000, -1, 5,  -1, 0,  0,  0,  0,
                 0x3F800000, 0, 0, 1, -1, -1, 0, 0, 0x3F800000, 3,  0,  0,  0,  2,  1,  1});
  const Matrix draws = Indices({-1, kFar, -kFar - 1, 0, 1, 2});
  ComputeGraph graph;
  const int in = logits.AsLeaf(graph);
  graph.add_op(TensorOp::kSample, 0, {6, 1}, {in, packed.AsLeaf(graph), draws.AsLeaf(graph)}, {},
               "", DataType::kInt32);
  const std::vector<std::byte> made =
      GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch);
  for (std::size_t row = 0; row < 6; ++row) {
    std::int32_t token = -1;
    std::memcpy(&token, made.data() + 4 * row, 4);
    EXPECT_TRUE(token >= 0 && token < kCols) << "row " << row << ": " << token;
  }
}

// The shares of many draws of one row, by chi-square: seven tokens are kept.
TEST_F(Samples, DrawByProbability) {
  constexpr int kDraws = 2000;
  const std::array<double, 9> weights = {0.3, 0.01, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.01};
  std::vector<float> values;
  std::vector<std::int32_t> numbers;
  for (int draw = 0; draw < kDraws; ++draw) {
    for (const double weight : weights) values.push_back(static_cast<float>(std::log(weight)));
    numbers.push_back(draw);
  }
  const Matrix logits(DataType::kFloat32, kDraws, 9, values), draws = Indices(numbers);
  const std::vector<SamplingOptions> options(
      kDraws, {.temperature = 1, .top_k = 8, .top_p = 0.98f, .min_p = 0.1f, .seed = 11});
  Matrix packed = Packed(options.size());
  const ComputeGraph graph = SampleGraph(logits, options, draws, packed);
  const std::vector<std::byte> made =
      GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch);
  std::array<int, 9> seen{};
  for (std::size_t row = 0; row < kDraws; ++row) {
    std::int32_t token = -1;
    std::memcpy(&token, made.data() + 4 * row, 4);
    ASSERT_TRUE(token >= 0 && token < 9);
    ++seen[static_cast<std::size_t>(token)];
  }
  EXPECT_EQ(seen[1] + seen[8], 0);
  double chi_square = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (i == 1 || i == 8) continue;
    const double expected = kDraws * weights[i] / 0.98;
    chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 22.5);  // beyond that lies one in a thousand, of six degrees of freedom
  EXPECT_GT(chi_square, 0.3);   // and before that
}

TEST_F(Samples, TopKOfOneIsArgMax) {
  const std::vector<SamplingOptions> options(5, {.temperature = 2, .top_k = 1, .seed = 3});
  for (const std::int64_t cols : {7, 4099, 20000}) {
    const Matrix logits(DataType::kFloat32, 5, cols, 9), draws = Draws(5);
    Matrix packed = Packed(5);
    const std::vector<std::byte> sampled =
        GraphCopy(SampleGraph(logits, options, draws, packed), test_.dispatch->memory())
            .Run(*test_.dispatch);
    ComputeGraph graph;
    graph.add_op(TensorOp::kArgMax, 0, {5, 1}, {logits.AsLeaf(graph)}, {}, "", DataType::kInt32);
    EXPECT_EQ(sampled, GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch));
  }
}

// Steps give what SampleToken draws of their logits, and Decode, whose tokens stay on the device,
// the same.
TEST_F(Samples, ASessionDrawsOfItsOwnLogits) {
  const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 5000, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64})",
                                         "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto model =
      DecoderModel::Random(*config, DataType::kBfloat16, test_.dispatch->memory(), 3);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::vector<SamplingOptions> options = {
      {.temperature = 1, .top_k = 50, .top_p = 0.9f, .seed = 1},
      {},
      {.temperature = 2, .min_p = 0.02f, .seed = std::uint64_t{5} << 40}};
  constexpr int kSteps = 6;
  const std::vector<std::int32_t> prompt = {1, 4000, 77};
  std::vector<std::vector<std::int32_t>> stepped(3), decoded(3);
  for (const bool decode : {false, true}) {
    auto session =
        Session::Create(*model, *test_.dispatch, {.max_sequences = 3, .max_context = 64});
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    std::vector<SequenceTokens> batch;
    for (const SamplingOptions& each : options) {
      batch.push_back({*session->AddSequence(), prompt});
      ASSERT_TRUE(session->SetSampling(batch.back().sequence, each).ok());
    }
    const auto read = session->Prefill(batch);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    for (std::size_t i = 0; i < 3; ++i) batch[i].tokens = {&read->next[i], 1};
    if (decode) {
      const auto made = session->Decode(batch, {.steps = kSteps});
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      for (std::size_t i = 0; i < 3; ++i) decoded[i] = (*made)[i].tokens;
      continue;
    }
    std::vector<std::int32_t> last = read->next;
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < 3; ++i) batch[i].tokens = {&last[i], 1};
      const auto made = session->Step(batch, {.logits = true});
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      for (std::size_t i = 0; i < 3; ++i) {
        const std::span<const float> row(made->logits.data() + i * 5000, 5000);
        const auto length = prompt.size() + static_cast<std::size_t>(step) + 1;
        EXPECT_EQ(made->next[i], *SampleToken(row, options[i], length)) << i << ", step " << step;
        stepped[i].push_back(made->next[i]);
      }
      last = made->next;
    }
  }
  EXPECT_EQ(decoded, stepped);
}

}  // namespace culet
