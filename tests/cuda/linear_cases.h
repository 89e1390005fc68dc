// Linear attention on the CUDA dispatch, against the reference.
#pragma once

#include "cases.h"
#include "culet/decoder.h"
#include "tests/decoder_fixture.h"

namespace culet {

struct LinearSizes {
  GatedDeltaParams delta;
  int taps;
};
// Qwen3-Next's sizes with fewer heads, and some of nobody.
constexpr LinearSizes kLinearSizes[] = {{{2, 4, 128, 128}, 4}, {{1, 3, 20, 33}, 2},
                                        {{3, 3, 33, 7}, 8},    {{2, 4, 16, 24}, 4},
                                        {{1, 2, 200, 40}, 5},  {{2, 2, 64, 96}, 3}};

inline std::string NameOf(const LinearSizes& s) {
  return std::to_string(s.delta.key_heads) + " heads of " + std::to_string(s.delta.key_dim) + ", " +
         std::to_string(s.delta.value_heads) + " of " + std::to_string(s.delta.value_dim) + ", " +
         std::to_string(s.taps) + " taps";
}

// Sequences of several lengths: one that begins, some that go on, one without tokens, one whose
// state is nowhere.
struct LinearBatch {
  explicit LinearBatch(std::vector<std::int32_t> lengths) {
    std::vector<std::int32_t> first, all, to, rows;
    first.push_back(0);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      for (std::int32_t i = 0; i < lengths[s]; ++i) all.push_back(s == 1 ? i : 9 + i);
      first.push_back(first.back() + lengths[s]);
      to.push_back(s + 1 == lengths.size() && s > 0 ? -1 : kRows - 1 - static_cast<int>(s));
    }
    starts = Indices(first), positions = Indices(all), state_rows = Indices(to);
  }
  static constexpr int kRows = 7;
  Matrix starts = Indices({}), positions = Indices({}), state_rows = Indices({});
};

inline ComputeGraph ConvGraph(const LinearSizes& s, const LinearBatch& batch, const Matrix& x,
                              const Matrix& weight, const Matrix& states, DataType type) {
  ComputeGraph graph;
  OpParams params;
  params.delta = s.delta;
  params.weight = weight.AsWeight();
  const int from = x.AsLeaf(graph), kept = states.AsLeaf(graph);
  const int rows = batch.state_rows.AsLeaf(graph), starts = batch.starts.AsLeaf(graph);
  const int positions = batch.positions.AsLeaf(graph);
  graph.add_op(TensorOp::kCausalConv, 0, {x.rows, s.delta.qkv_cols()},
               {from, kept, rows, starts, positions}, params, "", type);
  return graph;
}

TEST_F(CudaGraphs, CausalConvolutions) {
  for (const LinearSizes& s : kLinearSizes) {
    const std::int64_t cols = s.delta.qkv_cols();
    for (const auto& lengths :
         {std::vector<std::int32_t>{1}, {5, 40, 1, 0, 2, 3}, {33, 2}, {70, 64, 1}}) {
      const LinearBatch batch(lengths);
      const std::int64_t tokens = batch.positions.rows;
      for (const DataType type : kValues) {
        for (const DataType stored : kStored) {
          const Matrix x(type, tokens, cols + s.delta.out_cols(), 1);
          const Matrix weight(stored, cols, s.taps, 2);
          const Matrix states(DataType::kFloat32, LinearBatch::kRows, (s.taps - 1) * cols, 3);
          const ComputeGraph graph = ConvGraph(s, batch, x, weight, states, type);
          ExpectReferenceTwice(graph, NameOf(s));
        }
      }
    }
  }
}

// A GatedDelta with all that it reads.
struct DeltaCase {
  DeltaCase(const LinearSizes& s, std::vector<std::int32_t> lengths, DataType type,
            DataType gates_type)
      : sizes(s),
        batch(std::move(lengths)),
        x(type, batch.positions.rows, s.delta.qkv_cols(), 1),
        gates(gates_type, batch.positions.rows, std::int64_t{2} * s.delta.value_heads, 2),
        states(DataType::kFloat32, LinearBatch::kRows, s.delta.state_cols(), 3),
        decays(DataType::kBfloat16, 1, s.delta.value_heads, 4),
        bias(DataType::kFloat32, 1, s.delta.value_heads, 5) {}

  ComputeGraph Graph() const {
    ComputeGraph graph;
    OpParams params;
    params.delta = sizes.delta;
    params.gamma = decays.AsWeight();
    params.bias = bias.AsWeight();
    params.scalar = 1e-6f;
    const int from = x.AsLeaf(graph), gate = gates.AsLeaf(graph);
    const int kept = states.AsLeaf(graph), rows = batch.state_rows.AsLeaf(graph);
    const int starts = batch.starts.AsLeaf(graph), at = batch.positions.AsLeaf(graph);
    graph.add_op(TensorOp::kGatedDelta, 0, {x.rows, sizes.delta.out_cols()},
                 {from, gate, kept, rows, starts, at}, params, "", x.type);
    return graph;
  }

  LinearSizes sizes;
  LinearBatch batch;
  Matrix x, gates, states, decays, bias;
};

TEST_F(CudaGraphs, GatedDeltaRules) {
  for (const LinearSizes& s : kLinearSizes) {
    for (const auto& lengths : {std::vector<std::int32_t>{1}, {5, 14, 1, 0, 2, 3}}) {
      for (const DataType type : kValues) {
        for (const DataType gates_type : kValues) {
          const DeltaCase steps(s, lengths, type, gates_type);
          const ComputeGraph graph = steps.Graph();
          const double bound = type == DataType::kFloat32 ? 3e-6 : 0;
          ExpectReferenceTwice(graph, NameOf(s), bound);
        }
      }
    }
  }
}

// Prompts, which go in chunks of 64: one that begins or goes on, lasts for whole chunks or ends
// within one, among rows of one token and sequences too short for that. A step of many sequences
// has its chunks elsewhere.
TEST_F(CudaGraphs, GatedDeltaChunks) {
  std::vector<std::int32_t> many(24, 1);
  many[0] = 17, many[1] = 70, many[5] = 16, many[22] = 15;
  struct Prompts {
    std::size_t sizes;
    std::vector<std::int32_t> lengths;
  };
  for (const auto& [sizes, lengths] :
       {Prompts{0, {1, 65, 0, 17}}, Prompts{1, {64, 16, 1, 0, 128, 15, 63}}, Prompts{3, many},
        Prompts{4, {40}}, Prompts{5, {150}}}) {
    const LinearSizes& s = kLinearSizes[sizes];
    for (const DataType type : kValues) {
      const DeltaCase prompts(s, lengths, type, DataType::kBfloat16);
      const ComputeGraph graph = prompts.Graph();
      const auto prepared = test_.dispatch->prepare(graph, graph.size() - 1);
      ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
      EXPECT_EQ((*prepared)->kernel(),
                s.delta.key_dim <= 128 ? "cuda/gated_delta/chunks" : "cuda/gated_delta");
      const double bound = type == DataType::kFloat32 ? 3e-6 : 0;
      ExpectReferenceTwice(graph, NameOf(s), bound);
    }
  }
}

// Steps that are recorded and launched ahead leave the states of sequences that ended alone.
TEST_F(CudaGraphs, StatesOfDecodedSequences) {
  const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3NextForCausalLM"],
      "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "mlp_only_layers": [0, 1],
      "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
      "linear_key_head_dim": 12, "linear_value_head_dim": 20, "max_position_embeddings": 64})",
                                         "config");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const auto model = DecoderModel::Random(*config, DataType::kFloat32, test_.dispatch->memory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto make = [&] {
    auto session = Session::Create(*model, *test_.dispatch,
                                   {.max_sequences = 4, .max_context = 48, .block_size = 8});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return *std::move(session);
  };
  constexpr std::size_t kSequences = 4;
  Session session = make();
  std::vector<std::vector<std::int32_t>> read(kSequences);
  std::vector<std::int32_t> first;
  std::vector<SequenceTokens> batch;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(kSequences); ++i) {
    for (std::int32_t at = 0; at < 3 + i; ++at) {
      read[static_cast<std::size_t>(i)].push_back((at * 37 + i * 11) % 96);
    }
    const int sequence = *session.AddSequence();
    ASSERT_TRUE(session.Prefill(sequence, read[static_cast<std::size_t>(i)]).ok());
    first.push_back(5 * i);
  }
  for (std::size_t i = 0; i < kSequences; ++i)
    batch.push_back({static_cast<int>(i), {&first[i], 1}});
  std::vector<int> made(kSequences);
  DecodeOptions options{.steps = 14};
  options.on_token = [&](std::size_t part, std::int32_t) {
    return ++made[part] < 5 + static_cast<int>(part) * 4;
  };
  const auto decoded = session.Decode(batch, options);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  for (std::size_t i = 0; i < kSequences; ++i) {
    read[i].push_back(first[i]);
    const auto& tokens = (*decoded)[i].tokens;
    read[i].insert(read[i].end(), tokens.begin(), tokens.end());
    const SequenceTokens last{static_cast<int>(i), {&tokens.back(), 1}};
    const auto next = session.Step({&last, 1}, {.logits = true});
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    Session anew = make();
    const auto expected = anew.Prefill(*anew.AddSequence(), read[i], {.logits = true});
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    EXPECT_LE(RelativeL2(next->logits.data(), expected->logits.data(), next->logits.size()), 1e-5);
  }
}

TEST_F(CudaGraphs, LinearSizesThatDoNotFit) {
  const LinearSizes wide{{1, 1, 257, 4}, 9};
  const LinearBatch batch({2});
  const std::int64_t cols = wide.delta.qkv_cols();
  const Matrix x(DataType::kFloat32, 2, cols + 4, 1), weight(DataType::kFloat32, cols, 9, 2);
  const Matrix states(DataType::kFloat32, LinearBatch::kRows, 8 * cols, 3);
  const ComputeGraph graph = ConvGraph(wide, batch, x, weight, states, DataType::kFloat32);
  ASSERT_TRUE(graph.Verify().ok()) << graph.Verify().ToString();
  const Feasibility can = test_.dispatch->supports(graph, graph.size() - 1);
  EXPECT_FALSE(can.ok());
  EXPECT_NE(std::string(can.reason()).find("at most 8 rows"), std::string::npos);
}

TEST_F(CudaGraphs, PartsOfHeadsAndGates) {
  struct Sizes {
    std::int64_t rows, heads, size, first, count;
  };
  for (const Sizes& s : {Sizes{3, 4, 64, 32, 32}, Sizes{5, 3, 21, 7, 9}, Sizes{1, 1, 16, 0, 16},
                         Sizes{70, 2, 768, 512, 256}}) {
    for (const DataType type : kValues) {
      const Matrix x(type, s.rows, s.heads * s.size, 1), y(type, s.rows, s.heads * s.count, 2);
      ComputeGraph graph;
      OpParams params;
      params.head_dim = static_cast<int>(s.size);
      params.int_param = static_cast<std::uint32_t>(s.first);
      const int from = x.AsLeaf(graph), other = y.AsLeaf(graph);
      const int part = graph.add_op(TensorOp::kHeadSlice, 0, {s.rows, s.heads * s.count}, {from},
                                    params, "", type);
      ExpectReference(graph, "slices of " + std::to_string(s.size));
      graph.add_op(TensorOp::kSigmoidGate, 0, {s.rows, s.heads * s.count}, {other, part}, {}, "",
                   type);
      ExpectReference(graph, "gates of " + std::to_string(s.size));
    }
  }
}

}  // namespace culet
