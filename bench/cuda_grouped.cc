// Times the grouped kernels for Hopper on one GPU, on rows as top-k routing leaves them.
//   cuda_grouped [--layer NAME] [--tokens 1,8,...] [--format fp8|bf16] [--routing even|zipf|half]
//     [--all] [--no-pdl] [--late] [--gather] [--csv FILE]
// Layers and limits are those of the peers' program: the bytes of the routed rows, of the experts
// that have any and of D at 4.31 TB/s, or the FLOPs at 1550 (BF16: 788) TFLOP/s. A CUDA graph over
// several routings, the median of seven replays. --all: every kernel and split, not the chosen one.
// --gather: rows of A by an index.
// even: each token chooses its experts at random; zipf: expert i with weight 1 / (i + 1); half: one
// expert takes half of the rows.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "kernels/sm90/grouped/choice.h"
#include "kernels/sm90/grouped/swap.h"

namespace culet::sm90 {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) { Check(cudaMalloc(&data_, bytes + 256), "cudaMalloc"); }
  // The values over and over.
  Buffer(std::size_t bytes, const void* values, std::size_t size) : Buffer(bytes) {
    for (std::size_t at = 0; at < bytes; at += size) {
      Check(cudaMemcpy(static_cast<char*>(data_) + at, values, std::min(size, bytes - at),
                       cudaMemcpyHostToDevice),
            "upload");
    }
  }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { cudaFree(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

template <class T>
Buffer Uploaded(const std::vector<T>& values) {
  return Buffer(values.size() * sizeof(T), values.data(), values.size() * sizeof(T));
}

struct Layer {
  const char* name;
  int local, experts, active, n, k;
};
constexpr Layer kLayers[] = {{"dsv3-ep8.gate_up", 32, 256, 8, 4096, 7168},
                             {"dsv3-ep8.down", 32, 256, 8, 7168, 2048},
                             {"qwen3-30b.gate_up", 128, 128, 8, 1536, 2048},
                             {"qwen3-30b.down", 128, 128, 8, 2048, 768},
                             {"mixtral.gate_up", 8, 8, 2, 28672, 4096},
                             {"mixtral.down", 8, 8, 2, 4096, 14336}};

struct Options {
  std::string layer, routing = "even", format = "fp8", csv;
  std::vector<int> tokens = {1, 8, 64, 256, 1024, 4096};
  bool all = false, pdl = true, early = true, gather = false;
};

// Rows of each local expert; never none at all.
std::vector<int> Route(const Layer& layer, int tokens, const std::string& routing, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> weight(static_cast<std::size_t>(layer.experts), 1);
  if (routing == "zipf") {
    for (std::size_t e = 0; e < weight.size(); ++e) weight[e] = 1 / static_cast<double>(e + 1);
  }
  for (;;) {
    std::vector<int> counts(static_cast<std::size_t>(layer.local));
    int routed = 0;
    for (int t = 0; t < tokens; ++t) {
      std::vector<double> left = weight;
      for (int i = 0; i < layer.active; ++i) {
        std::discrete_distribution<int> pick(left.begin(), left.end());
        const int e = pick(random);
        left[static_cast<std::size_t>(e)] = 0;
        if (e < layer.local) ++counts[static_cast<std::size_t>(e)], ++routed;
      }
    }
    if (routed == 0) continue;
    if (routing == "half") {
      std::vector<int> half(counts.size());
      half[0] = (routed + 1) / 2;
      int rest = routed - half[0];
      for (std::size_t e = 1; e < half.size(); ++e) {
        half[e] = rest / static_cast<int>(half.size() - e);
        rest -= half[e];
      }
      return half;
    }
    return counts;
  }
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Microseconds of a launch.
double Time(const std::vector<GroupedSwapLaunch>& launches, int calls) {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreate(&stream), "stream");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < calls; ++i) {
    Check(launches[static_cast<std::size_t>(i) % launches.size()].Start(stream), "launch");
  }
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin = nullptr, end = nullptr;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<double> samples;
  for (int i = 0; i < 8; ++i) {
    Check(cudaEventRecord(begin, stream), "event");
    Check(cudaGraphLaunch(exec, stream), "replay");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "replay");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i > 0) samples.push_back(1e3 * static_cast<double>(ms) / calls);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return Median(samples);
}

void Run(const Options& options) {
  std::ofstream csv;
  if (!options.csv.empty()) {
    csv.open(options.csv);
    csv << "name,tokens,routing,format,kernel,splits,rows,active,limit_us,us,over_limit\n";
  }
  int sms = 0;
  Check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "attribute");
  cudaDeviceProp properties{};
  Check(cudaGetDeviceProperties(&properties, 0), "properties");
  std::printf("%s\n", properties.name);
  const bool fp8 = options.format == "fp8";
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  constexpr std::size_t kValues = 8 << 20;
  std::vector<std::uint8_t> codes(kValues);
  std::vector<std::uint16_t> halves(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    const float value = normal(random);
    codes[i] = FloatToFloat8E4m3(value * 100);
    halves[i] = FloatToBfloat16(value);
  }
  const void* const values = fp8 ? static_cast<const void*>(codes.data()) : halves.data();
  const std::size_t element = fp8 ? 1 : 2, size = kValues * element;
  std::vector<float> ones(1 << 20);
  for (float& x : ones) x = 1 + 0.1f * normal(random);
  std::vector<double> logs(options.tokens.size());
  int layers = 0;
  for (const Layer& layer : kLayers) {
    if (!options.layer.empty() && layer.name != options.layer) continue;
    ++layers;
    const auto n = static_cast<std::size_t>(layer.n), k = static_cast<std::size_t>(layer.k),
               local = static_cast<std::size_t>(layer.local);
    const Buffer weights(local * n * k * element, values, size);
    const std::size_t blocks = (k + 127) / 128;
    const Buffer scales(local * ((n + 127) / 128) * blocks * 4, ones.data(), ones.size() * 4);
    for (std::size_t at = 0; at < options.tokens.size(); ++at) {
      const int tokens = options.tokens[at];
      const unsigned routings = tokens <= 64 ? 6 : 2;
      std::vector<std::vector<int>> counts;
      double rows = 0, active = 0;
      for (unsigned r = 0; r < routings; ++r) {
        counts.push_back(Route(layer, tokens, options.routing, 17u * unsigned(tokens) + r));
        for (const int c : counts.back()) rows += c, active += c > 0 ? 1 : 0;
      }
      rows /= routings, active /= routings;
      const double nk = double(n) * double(k), kb = double(k) * double(element);
      const double bytes = fp8 ? rows * kb * (1 + 4.0 / 128) + active * nk * (1 + 4.0 / 16384) +
                                     2 * rows * double(n)
                               : rows * kb + 2 * active * nk + 2 * rows * double(n);
      const double limit =
          std::max(bytes / 4.31e6, 2 * rows * nk / (fp8 ? 1550e6 : 788e6));
      const int most = std::max(1, tokens * std::min(layer.active, layer.local));
      const Buffer a(std::size_t(most) * k * element, values, size);
      const Buffer a_scales(std::size_t(most) * blocks * 4, ones.data(), ones.size() * 4);
      const Buffer d(std::size_t(most) * n * 2);
      std::vector<Buffer> starts;
      std::vector<int> index(static_cast<std::size_t>(most));
      for (int& row : index) row = static_cast<int>(random() % unsigned(most));
      const Buffer indices = Uploaded(index);
      for (const auto& c : counts) {
        std::vector<int> s{0};
        for (const int x : c) s.push_back(s.back() + x);
        starts.push_back(Uploaded(s));
      }
      GroupedProblem problem;
      problem.groups = layer.local;
      problem.rows = problem.a_rows = most;
      problem.n = layer.n, problem.k = layer.k;
      problem.a = a.as<void>(), problem.lda = layer.k;
      problem.b = weights.as<void>(), problem.b_group_rows = layer.n;
      problem.scale_a = a_scales.as<float>(), problem.scale_b = scales.as<float>();
      problem.scale_a_row = int(blocks), problem.scale_a_block = 1;
      problem.scale_b_group = std::int64_t((n + 127) / 128 * blocks);
      problem.d = d.as<void>(), problem.ldd = layer.n;
      if (options.gather) problem.index = indices.as<int>();
      problem.pdl = options.pdl;
      problem.early_weights = options.early;
      const GroupedUse use{double(tokens), double(layer.active), double(layer.experts)};
      const GroupedChoice chosen =
          ChooseGrouped(problem, fp8 ? DataType::kFloat8_e4m3 : DataType::kBfloat16, false, use, sms);
      const int calls = std::max<int>(
          int(routings), std::min(48, int(3000 / limit)) / int(routings) * int(routings));
      const auto time = [&](const GroupedSwapKernel& kernel, int splits) {
        Check(LoadKernel(kernel.function, kernel.smem_bytes), kernel.id);
        std::vector<GroupedSwapLaunch> launches(routings);
        for (unsigned r = 0; r < routings; ++r) {
          problem.starts = starts[r].as<int>();
          if (!PlanGroupedSwap(kernel, problem, splits, sms, &launches[r])) return -1.0;
        }
        return Time(launches, calls);
      };
      double best = 0;
      std::string line;
      for (const GroupedSwapKernel& kernel : GroupedSwapKernels()) {
        if (kernel.gated || (kernel.format->element_bytes == 1) != fp8) continue;
        for (int splits = 1; splits <= (kernel.split_tokens > 0 ? 4 : 1); splits *= 2) {
          const bool is_chosen = chosen.kernel == &kernel && chosen.splits == splits;
          if (!options.all && !is_chosen) continue;
          if (options.all && tokens >= 1024 && kernel.tokens == 32 && splits > 1) continue;
          const double us = time(kernel, splits);
          if (is_chosen) best = us;
          char text[80];
          std::snprintf(text, sizeof text, " | %s%d/k%d %.2f", is_chosen ? "*" : "", kernel.tokens,
                        splits, us / limit);
          line += text;
          if (csv) {
            csv << layer.name << ',' << tokens << ',' << options.routing << ',' << options.format
                << ',' << kernel.id << ',' << splits << ',' << rows << ',' << active << ',' << limit
                << ',' << us << ',' << us / limit << '\n';
          }
        }
      }
      logs[at] += std::log(best / limit);
      std::printf("%-18s T=%5d rows=%8.1f active=%6.1f limit %8.2f us%s\n", layer.name, tokens, rows,
                  active, limit, line.c_str());
      std::fflush(stdout);
    }
  }
  std::printf("%s %s geometric mean over limit:", options.format.c_str(), options.routing.c_str());
  for (std::size_t at = 0; at < logs.size(); ++at) {
    std::printf("  T=%d %.3f", options.tokens[at], std::exp(logs[at] / layers));
  }
  std::printf("\n");
}

}  // namespace
}  // namespace culet::sm90

int main(int argc, char** argv) {
  culet::sm90::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto next = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    if (name == "--layer") options.layer = next();
    else if (name == "--routing") options.routing = next();
    else if (name == "--format") options.format = next();
    else if (name == "--csv") options.csv = next();
    else if (name == "--all") options.all = true;
    else if (name == "--no-pdl") options.pdl = false;
    else if (name == "--gather") options.gather = true;
    else if (name == "--late") options.early = false;
    else if (name == "--tokens") {
      options.tokens.clear();
      std::string list = next();
      for (char* at = list.data(); *at != '\0';) {
        options.tokens.push_back(static_cast<int>(std::strtol(at, &at, 10)));
        if (*at == ',') ++at;
      }
    } else {
      std::fprintf(stderr, "unknown argument %s; see the head of bench/cuda_grouped.cc\n", argv[i]);
      return 2;
    }
  }
  culet::sm90::Run(options);
}
