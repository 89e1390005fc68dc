#include "decode_bench.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "contenders.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "decoder_args.h"
#include "elapsed.h"
#include "node_profile.h"
#include "progress.h"
#include "team_args.h"

namespace culet::cli {
namespace {

constexpr int kRounds = 5;          // of decoding, between measurements of the read rate
constexpr int kProfileSamples = 3;  // of each launch, of which a step has many alike

// Linux counts the most resident memory, and from anew after a 5.
void ForgetPeakMemory() { std::ofstream("/proc/self/clear_refs") << 5; }

double PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    double kibibytes = 0;
    if (key == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

// The products of a node or fusion: all share one input, with columns side by side. None if the
// fusion has kernels of other operations too, because its time includes theirs.
std::vector<const TensorNode*> ProductsOf(const GraphExecutor& executor, int id) {
  const Fusion* fusion = executor.fusion_of(id);
  std::vector<const TensorNode*> products;
  if (executor.kernel_of(id).find(" + cuda/") != std::string::npos) return products;
  for (const int of : fusion != nullptr ? fusion->nodes : std::vector<int>{id}) {
    const TensorNode& node = executor.graph().node(of);
    if (node.op == TensorOp::kMulMat) products.push_back(&node);
  }
  return products;
}

// Their problem as `culet bench` names it. On a GPU their input is first rounded to the weight's 16
// bits.
Result<GemmDesc> ProblemOf(const std::vector<const TensorNode*>& products, int arch) {
  const TensorNode& node = *products.front();
  const Weight& weight = node.params.weight;
  const Format format =
      weight.type == DataType::kFloat8_e4m3   ? Format::kFp8Block
      : weight.type == DataType::kUint4       ? Format::kU4
      : weight.type == DataType::kFloat4_e2m1 ? Format::kMxfp4
      : weight.type == DataType::kInt8        ? Format::kInt8
      : weight.type == DataType::kBfloat16    ? (arch != 0 ? Format::kBf16 : Format::kF32Bf16)
      : weight.type == DataType::kFloat16     ? (arch != 0 ? Format::kF16 : Format::kF32F16)
                                              : Format::kF32;
  std::int64_t columns = 0;
  for (const TensorNode* product : products) columns += product->params.weight.rows;
  return MakeDesc(format, static_cast<int>(node.shape.rows), static_cast<int>(columns),
                  static_cast<int>(weight.cols), arch, node.type);
}

class Bench {
 public:
  Bench(Gemm& gemm, const DecodeBenchOptions& options, const DecoderModel& model,
        culet::Session& session)
      : gemm_(gemm), options_(options), model_(model), session_(session) {}

  /// Ends a step, and what lies between steps, when options.stop says so.
  NodeGate Gate() const {
    return [stop = options_.stop]() -> Status {
      if (!stop || !stop()) return {};
      return Status(StatusCode::kFailedPrecondition, "stopped");
    };
  }

  /// Why the steps replayed no recording; empty when they did.
  std::string WhyNotRecorded() const { return session_.last_executor()->why_not_recorded(); }

  Status Run(DecodeMeasurement& result) {
    CULET_RETURN_IF_ERROR(Prefill(result.prefill));
    CULET_RETURN_IF_ERROR(FillContext());
    return Decode(result.decode);
  }

  // Steps between measurements of the read rate: on a shared machine both change from one second to
  // the next, together.
  Status CompareWithRates(DecodeMeasurement& result) {
    std::vector<HardwareRates> rates;
    std::vector<double> steps, shares, reads, computes;
    const int runs = std::max(3, options_.steps / kRounds);
    for (int round = 0; round <= kRounds; ++round) {
      CULET_RETURN_IF_ERROR(Gate()());
      const auto measured = MeasureRates(gemm_.device(), DataType::kFloat32);
      if (!measured.ok()) return measured.status();
      rates.push_back(*measured);
      reads.push_back(measured->read_gbps);
      computes.push_back(measured->gflops);
      if (round == 0) continue;
      std::vector<double> times;
      CULET_RETURN_IF_ERROR(DecodeSteps(1, times));  // the measurement emptied the caches
      cache_read_.push_back(CacheReadBytes());
      times.clear();
      CULET_RETURN_IF_ERROR(DecodeSteps(runs, times));
      steps.insert(steps.end(), times.begin(), times.end());
      round_us_.push_back(Median(std::move(times)));
    }
    for (std::size_t i = 0; i < round_us_.size(); ++i) {
      const double gbps = (rates[i].read_gbps + rates[i + 1].read_gbps) / 2;
      const double bytes = result.bytes_a_token + cache_read_[i];
      shares.push_back(bytes / (round_us_[i] * 1e-6) / (gbps * 1e9));
    }
    result.cache_read_bytes = Median(cache_read_);
    result.decode.step_us = Median(std::move(steps));
    result.read_share = Median(std::move(shares));
    result.rates = rates.front();
    result.rates.read_gbps = Median(std::move(reads));
    result.rates.gflops = Median(std::move(computes));
    return {};
  }

  // After everything else: it takes memory of its own.
  Status TimeProductsAlone(StepTimes& times) {
    Selection choice;
    choice.kind = Selection::kChoice;
    MeasureOptions measure;
    measure.stop = options_.stop;
    for (ProductGroup& group : times.products) {
      CULET_RETURN_IF_ERROR(Gate()());
      auto contenders = SelectContenders(gemm_, group.desc, choice);
      if (!contenders.ok()) return contenders.status();
      CULET_RETURN_IF_ERROR(MeasureContenders(gemm_, group.desc, measure, *contenders));
      CULET_RETURN_IF_ERROR(contenders->front().status);
      if (!contenders->front().timed()) return Gate()();
      group.alone_us = contenders->front().MedianUs();
    }
    return {};
  }

 private:
  std::vector<std::int32_t> Tokens(int count) {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      tokens.push_back(static_cast<std::int32_t>(
          (state_ >> 33) % static_cast<std::uint64_t>(model_.config().vocab)));
    }
    return tokens;
  }

  Status Prefill(StepTimes& times) {
    const std::vector<std::int32_t> prompt = Tokens(options_.prefill);
    return TimeSteps(times, options_.prefill, std::max(3, options_.steps / 5), [&]() -> Status {
      const auto sequence = session_.AddSequence();
      if (!sequence.ok()) return sequence.status();
      const SequenceTokens step[] = {{*sequence, prompt}};
      const Clock::time_point start = Clock::now();
      CULET_RETURN_IF_ERROR(session_.Step(step).status());
      last_us_ = MicrosecondsSince(start);
      return session_.RemoveSequence(*sequence);
    });
  }

  // All sequences' contexts as one batch.
  Status FillContext() {
    length_ = options_.context;
    const std::vector<std::int32_t> tokens = Tokens(options_.batch * options_.context);
    std::vector<SequenceTokens> prompts;
    for (int i = 0; i < options_.batch; ++i) {
      const auto sequence = session_.AddSequence();
      if (!sequence.ok()) return sequence.status();
      const auto length = static_cast<std::size_t>(options_.context);
      prompts.push_back(
          {*sequence, std::span(tokens).subspan(static_cast<std::size_t>(i) * length, length)});
      sequences_.push_back(*sequence);
    }
    auto filled = session_.Prefill(prompts);
    if (filled.ok()) next_ = std::move(filled->next);
    return filled.status();
  }

  Status DecodeStep() {
    std::vector<SequenceTokens> step;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      step.push_back({sequences_[i], std::span(next_).subspan(i, 1)});
    }
    const Clock::time_point start = Clock::now();
    auto result = session_.Step(step);
    last_us_ = MicrosecondsSince(start);
    if (result.ok()) {
      next_ = std::move(result->next);
      ++length_;
    }
    return result.status();
  }

  // Steps that follow each other as when a model is used; `times`: from one to the next.
  Status DecodeSteps(int runs, std::vector<double>& times) {
    std::vector<SequenceTokens> batch;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      batch.push_back({sequences_[i], std::span(next_).subspan(i, 1)});
    }
    Clock::time_point last;
    bool first = true;
    const auto made =
        session_.Decode(batch, {.steps = runs + 1, .on_token = [&](std::size_t part, std::int32_t) {
                                  if (part + 1 < sequences_.size()) return true;
                                  if (!first) times.push_back(MicrosecondsSince(last));
                                  first = false;
                                  last = Clock::now();
                                  return true;
                                }});
    if (!made.ok()) return made.status();
    for (std::size_t i = 0; i < made->size(); ++i) next_[i] = (*made)[i].tokens.back();
    length_ += runs + 1;
    return {};
  }

  // What the last step read of keys and values: those that each sequence's new token sees.
  double CacheReadBytes() const {
    const ComputeGraph& graph = session_.last_executor()->graph();
    double bytes = 0;
    for (int id = 0; id < graph.size(); ++id) {
      const TensorNode& node = graph.node(id);
      if (node.op != TensorOp::kAttention) continue;
      const AttentionParams& attention = node.params.attention;
      const int keys = attention.window > 0 ? std::min(attention.window, length_) : length_;
      const int values = attention.value_dim > 0 ? 0 : attention.head_dim;  // parts of the keys
      bytes += static_cast<double>(keys) * attention.kv_heads * (attention.head_dim + values) *
               static_cast<double>(SizeOf(graph.node(node.inputs[1]).type));
    }
    return bytes * options_.batch;
  }

  Status Decode(StepTimes& times) {
    return TimeSteps(times, options_.batch, options_.steps, [&] { return DecodeStep(); });
  }

  // Runs `step` once to warm up and `runs` times as it is; then what its launches take.
  template <class Step>
  Status TimeSteps(StepTimes& times, int tokens, int runs, const Step& step) {
    times.tokens = tokens;
    CULET_RETURN_IF_ERROR(step());
    std::vector<double> steps;
    for (int i = 0; i < runs; ++i) {
      CULET_RETURN_IF_ERROR(step());
      steps.push_back(last_us_);
    }
    times.step_us = Median(std::move(steps));
    if (options_.profile) {
      const auto timed = TimeLastStep(session_, kProfileSamples);
      if (!timed.ok()) return timed.status();
      for (const NodeTime& node : *timed) {
        CULET_RETURN_IF_ERROR(AddNode(times, node.id, node.time_us));
      }
      times.among = !timed->empty();
    }
    return times.among ? Finish(times) : TimeNodes(times, runs, step);
  }

  // `runs` steps with every node timed by itself.
  template <class Step>
  Status TimeNodes(StepTimes& times, int runs, const Step& step) {
    std::map<int, std::vector<double>> samples;
    session_.SetHook([&](KernelDispatch& dispatch, const NodeLaunch& launch) -> Status {
      const Clock::time_point start = Clock::now();
      CULET_RETURN_IF_ERROR(dispatch.launch(launch));
      CULET_RETURN_IF_ERROR(dispatch.memory().Synchronize(launch.stream));
      samples[launch.id].push_back(MicrosecondsSince(start));
      return {};
    });
    Status status;
    for (int i = 0; i < runs && status.ok(); ++i) status = step();
    session_.SetHook(nullptr);
    CULET_RETURN_IF_ERROR(status);
    for (auto& [id, values] : samples) {
      CULET_RETURN_IF_ERROR(AddNode(times, id, Median(std::move(values))));
    }
    return Finish(times);
  }

  static Status Finish(StepTimes& times) {
    for (ProductGroup& group : times.products) group.graph_us /= group.nodes;
    std::ranges::sort(times.groups, std::greater(), &NodeGroup::time_us);
    return {};
  }

  Status AddNode(StepTimes& times, int id, double time_us) {
    const GraphExecutor& executor = *session_.last_executor();
    const TensorNode& node = executor.graph().node(id);
    const Fusion* fusion = executor.fusion_of(id);
    const auto products = ProductsOf(executor, id);
    const bool product = !products.empty() || node.op == TensorOp::kExpertMulMat;
    times.nodes_us += time_us;
    if (product) times.product_us += time_us;
    const std::string op = fusion != nullptr ? fusion->name : ToString(node.op);
    const std::string kernel = executor.kernel_of(id);
    auto group = std::ranges::find_if(
        times.groups, [&](const NodeGroup& g) { return g.op == op && g.kernel == kernel; });
    if (group == times.groups.end()) {
      group = times.groups.insert(times.groups.end(), {op, kernel, product, 0, 0});
    }
    ++group->nodes;
    group->time_us += time_us;
    if (products.empty()) return {};
    const auto desc = ProblemOf(products, gemm_.device().arch);
    if (!desc.ok()) return desc.status();
    auto problem = std::ranges::find(times.products, *desc, &ProductGroup::desc);
    if (problem == times.products.end()) {
      problem = times.products.insert(times.products.end(), {*desc, 0, 0, 0});
    }
    ++problem->nodes;
    problem->graph_us += time_us;
    return {};
  }

  Gemm& gemm_;
  const DecodeBenchOptions& options_;
  const DecoderModel& model_;
  culet::Session& session_;
  std::vector<int> sequences_;
  std::vector<std::int32_t> next_;
  double last_us_ = 0;
  std::vector<double> round_us_, cache_read_;
  int length_ = 0;  // positions of each sequence
  std::uint64_t state_ = 1;
};

}  // namespace

Result<DataType> WeightsOf(Format format) {
  switch (format) {
    case Format::kF32:
      return DataType::kFloat32;
    case Format::kF16:
      return DataType::kFloat16;
    case Format::kBf16:
      return DataType::kBfloat16;
    case Format::kFp8Block:
      return DataType::kFloat8_e4m3;
    case Format::kU4:
      return DataType::kUint4;
    case Format::kMxfp4:
      return DataType::kFloat4_e2m1;
    case Format::kInt8:
      return DataType::kInt8;
    default:
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("--decode takes no weights of format {}; use bf16, fp8-block, u4, "
                                "mxfp4, int8, f16 or f32",
                                ToString(format)));
  }
}

double StepTimes::ProductSpeed() const {
  double graph = 0, alone = 0;
  for (const ProductGroup& group : products) {
    graph += group.nodes * group.graph_us;
    alone += group.nodes * group.alone_us;
  }
  return graph > 0 ? alone / graph : 0;
}

Status MeasureDecode(Gemm& gemm, const DecodeBenchOptions& options, DecodeMeasurement& result) {
  const auto weights = WeightsOf(options.format);
  if (!weights.ok()) return weights.status();
  auto config = ReadDecoderConfig(options.config);
  if (!config.ok()) return config.status();
  config->max_position = 0;  // what is timed may go beyond: nobody reads the text
  for (const std::string& warning : config->warnings) Note(warning);
  ForgetPeakMemory();
  gemm.SetStop(options.stop);
  const DispatchPolicy policy = options.tune ? DispatchPolicy::kMeasure : DispatchPolicy::kDefault;
  auto made =
      gemm.device().ordinal >= 0
          ? MakeCudaDispatch(gemm, {.policy = policy})
          : Result<std::unique_ptr<KernelDispatch>>(MakeCpuDispatch(gemm, {.policy = policy}));
  if (!made.ok()) return made.status();
  std::unique_ptr<KernelDispatch> dispatch = *std::move(made);
  SessionOptions session_options;
  session_options.max_sequences = options.batch + 1;
  // The context, the steps (one to warm up, the others twice), and those of CompareWithRates.
  const int all_steps =
      2 * options.steps + 1 + kRounds * (3 + std::max(3, options.steps / kRounds));
  session_options.max_context = std::max(options.context + all_steps, options.prefill);
  session_options.max_step_tokens = std::max(options.prefill, options.batch);
  session_options.cache_type = options.cache_type;
  session_options.value_type = options.value_type;
  session_options.fusions = options.fusions;
  session_options.record = options.record;
  session_options.cache_blocks =
      (options.batch * session_options.max_context + options.prefill) / session_options.block_size +
      options.batch + 2;
  const int ranks = options.team != nullptr ? options.team->size() : 1;
  const auto part = ShardOf(*config, 0, ranks, options.team_model.experts);
  if (!part.ok()) return part.status();
  const auto cache_bytes = CacheBytes(*part, session_options);
  if (!cache_bytes.ok()) return cache_bytes.status();
  Progress progress;
  LoadOptions load;
  load.reserve = *cache_bytes;
  load.stop = options.stop;
  load.ranks = ranks;
  load.experts = options.team_model.experts;
  load.on_progress = [&](std::size_t done, std::size_t all) {
    progress.Update(static_cast<double>(done) / static_cast<double>(all), "making weights");
  };
  std::optional<DecoderModel> model;
  const auto make = [&]() -> Status {
    auto random = DecoderModel::Random(*config, *weights, dispatch->memory(), /*seed=*/1, load);
    if (random.ok()) model.emplace(*std::move(random));
    return random.status();
  };
  TeamModel shared = options.team_model;
  shared.random = *weights;
  shared.unlimited = true;
  const Status opened = options.team != nullptr ? options.team->Open(shared, make) : make();
  progress.Clear();
  if (!opened.ok()) return opened;
  auto session = CreateSession(options.team, *model, dispatch, {session_options, false, policy});
  if (!session.ok()) return session.status();
  result.weight_bytes = model->weight_bytes();
  result.bytes_a_token = model->bytes_a_token();
  result.cache_bytes = session->cache_bytes();
  Bench bench(gemm, options, *model, *session);
  session->SetGate(bench.Gate());
  CULET_RETURN_IF_ERROR(bench.Run(result));
  if (gemm.device().ordinal < 0) result.peak_bytes = PeakMemoryBytes();  // of the host
  CULET_RETURN_IF_ERROR(bench.CompareWithRates(result));
  result.not_recorded = bench.WhyNotRecorded();
  CULET_RETURN_IF_ERROR(bench.TimeProductsAlone(result.decode));
  return bench.TimeProductsAlone(result.prefill);
}

}  // namespace culet::cli
