// Times the gated delta rule of the CUDA dispatch on one GPU, token by token and in chunks.
//   cuda_linear [--tokens 2048] [--sequences 1] [--key-heads 16] [--value-heads 32] [--f32] [--pdl]
// Heads of 128, as Qwen3-Next has. A CUDA graph of 20 launches, the median of seven replays after
// two. Columns: the time of a launch token by token, in chunks, and of their first kernel alone, in
// microseconds, TFLOP/s of the products that chunks need (BF16 passes not counted), and the
// relative L2 error of values and states of chunks against those token by token. It links to
// src/kernels/cuda_ops/linear_attention.cu, linear_chunks.cu and src/base/float_types.cc.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "graph_timer.h"
#include "kernels/cuda_ops/linear_chunks.h"

namespace culet::cuda_ops {
namespace {

constexpr int kDim = 128;

// Device memory until the program ends.
template <class T>
T* Device(const std::vector<T>& values) {
  void* data = nullptr;
  Check(cudaMalloc(&data, values.size() * sizeof(T) + 256), "cudaMalloc");
  Check(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "upload");
  return static_cast<T*>(data);
}

std::vector<std::byte> Normal(std::int64_t count, DataType type, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::byte> values(static_cast<std::size_t>(count) * SizeOf(type));
  for (std::int64_t i = 0; i < count; ++i) StoreFromDouble(values.data(), type, i, normal(random));
  return values;
}

using Launch = std::function<cudaError_t(LaunchStream)>;

double Microseconds(const Launch& launch, bool pdl) {
  return MicrosecondsInGraph(20, pdl,
                             [&](int, const LaunchStream& stream) { return launch(stream); });
}

double Error(const std::vector<std::byte>& value, const std::vector<std::byte>& right,
             DataType type) {
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(value.size() / SizeOf(type)); ++i) {
    const double a = LoadAsDouble(value.data(), type, i), b = LoadAsDouble(right.data(), type, i);
    error += (a - b) * (a - b);
    norm += b * b;
  }
  return std::sqrt(error / norm);
}

int Main(int argc, char** argv) {
  int tokens = 2048, sequences = 1, key_heads = 16, value_heads = 32;
  DataType type = DataType::kBfloat16;
  bool pdl = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--f32") {
      type = DataType::kFloat32;
    } else if (name == "--pdl") {
      pdl = true;
    } else {
      int* const to = name == "--tokens"        ? &tokens
                      : name == "--sequences"   ? &sequences
                      : name == "--key-heads"   ? &key_heads
                      : name == "--value-heads" ? &value_heads
                                                : nullptr;
      if (to == nullptr || i + 1 == argc || (*to = std::atoi(argv[++i])) < 1) {
        std::fprintf(stderr, "%s: the head of bench/cuda_linear.cc has all options\n", argv[i]);
        return 2;
      }
    }
  }
  if (value_heads % key_heads != 0) {
    std::fprintf(stderr, "%d value heads of %d key heads\n", value_heads, key_heads);
    return 2;
  }
  std::mt19937 random(7);
  const std::int64_t cols = std::int64_t{2 * key_heads + value_heads} * kDim;
  const std::int64_t rows = std::int64_t{tokens} * sequences;
  const std::int64_t state_cols = std::int64_t{value_heads} * kDim * kDim;
  std::vector<std::int32_t> starts{0}, positions, state_rows;
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i < tokens; ++i) positions.push_back(i);
    starts.push_back(static_cast<std::int32_t>(positions.size()));
    state_rows.push_back(s);
  }
  GatedDeltaArgs args;
  args.states.rows = Device(state_rows);
  args.states.starts = Device(starts);
  args.states.positions = Device(positions);
  args.states.count = args.states.sequences = sequences;
  args.states.cols = state_cols;
  args.states.tokens = rows;
  args.states.states = Device(std::vector<float>(static_cast<std::size_t>(sequences * state_cols)));
  args.x = Device(Normal(rows * cols, type, random));
  args.gates = Device(Normal(rows * 2 * value_heads, DataType::kBfloat16, random));
  args.decays = Device(Normal(value_heads, DataType::kBfloat16, random));
  args.bias = Device(Normal(value_heads, DataType::kBfloat16, random));
  args.x_type = args.out_type = type;
  args.gates_type = args.decays_type = args.bias_type = DataType::kBfloat16;
  args.epsilon = 1e-6f;
  args.out = Device(Normal(rows * value_heads * kDim, type, random));
  args.key_heads = key_heads;
  args.value_heads = value_heads;
  args.key_dim = args.value_dim = kDim;
  const std::size_t bytes = PrepareDeltaChunks({type, rows, sequences, value_heads, kDim});
  if (bytes == 0) {
    std::fprintf(stderr, "no chunks in %d tokens of a sequence on this device\n", tokens);
    return 1;
  }
  std::byte* const workspace = Device(std::vector<std::byte>(bytes));

  std::vector<std::byte> results[2][2];
  double us[3];
  const auto run = [&](int i, const Launch& launch) {
    us[i] = Microseconds(launch, pdl);
    if (i > 1) return;
    results[i][0].resize(static_cast<std::size_t>(rows * value_heads * kDim) * SizeOf(type));
    results[i][1].resize(static_cast<std::size_t>(sequences * state_cols) * sizeof(float));
    Check(cudaMemcpy(results[i][0].data(), args.out, results[i][0].size(), cudaMemcpyDeviceToHost),
          "download");
    Check(cudaMemcpy(results[i][1].data(), args.states.states, results[i][1].size(),
                     cudaMemcpyDeviceToHost),
          "download");
  };
  run(0, [&](LaunchStream stream) { return GatedDelta(args, stream); });
  run(1, [&](LaunchStream stream) { return GatedDeltaChunks(args, workspace, stream); });
  run(2, [&](LaunchStream stream) { return SolveDeltaChunks(args, workspace, stream); });
  const double macs_of_token = 3.0 * kDim * kDim + 2.0 * kDeltaChunk * kDim;
  const double flops = 2 * static_cast<double>(rows) * value_heads * macs_of_token;
  std::printf(
      "tokens,sequences,value_heads,type,tokens_us,chunks_us,prepare_us,tflops,"
      "error,state_error,workspace_mb\n");
  std::printf("%d,%d,%d,%s,%.1f,%.1f,%.1f,%.1f,%.1e,%.1e,%.1f\n", tokens, sequences, value_heads,
              type == DataType::kFloat32 ? "f32" : "bf16", us[0], us[1], us[2], flops / us[1] / 1e6,
              Error(results[1][0], results[0][0], type),
              Error(results[1][1], results[0][1], DataType::kFloat32),
              static_cast<double>(bytes) / 1e6);
  return 0;
}

}  // namespace
}  // namespace culet::cuda_ops

int main(int argc, char** argv) { return culet::cuda_ops::Main(argc, argv); }
