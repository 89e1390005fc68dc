// MakeRankDispatch: a dispatch whose graphs exchange values with other ranks.
#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "culet/printable.h"
#include "culet/ranks.h"
#include "ranks/exchange_fusions.h"
#include "ranks/watched_memory.h"

namespace culet {
namespace {

bool IsExchange(TensorOp op) noexcept {
  return op == TensorOp::kAllReduce || op == TensorOp::kAllGather || op == TensorOp::kAllArgMax;
}

struct PreparedExchange final : PreparedNode {
  explicit PreparedExchange(std::string k) : name(std::move(k)) {}
  std::string name;
  std::string kernel() const override { return name; }
};

// Launches whose exchanges have failed are replayed no more.
class CheckedLaunches final : public RecordedLaunches {
 public:
  CheckedLaunches(std::unique_ptr<RecordedLaunches> inner, RankExchange& exchange)
      : inner_(std::move(inner)), exchange_(exchange) {}
  Status Replay(cudaStream_t stream) override {
    CULET_RETURN_IF_ERROR(exchange_.status());
    return inner_->Replay(stream);
  }

 private:
  std::unique_ptr<RecordedLaunches> inner_;
  RankExchange& exchange_;
};

// Everything but exchanges is the inner dispatch's.
class RankDispatch final : public KernelDispatch {
 public:
  RankDispatch(std::unique_ptr<KernelDispatch> inner, std::shared_ptr<RankExchange> exchange,
               Communicator& ranks)
      : inner_(std::move(inner)), exchange_(std::move(exchange)), ranks_(ranks) {}

  Feasibility supports(const ComputeGraph& graph, int id) const override {
    const TensorNode& node = graph.node(id);
    if (!IsExchange(node.op)) return inner_->supports(graph, id);
    const RankParts& parts = node.params.parts;
    const bool fits = node.op == TensorOp::kAllReduce
                          ? static_cast<int>(node.params.int_param) == ranks_.size()
                          : parts.ranks() == ranks_.size() && parts.rank == ranks_.rank();
    if (!fits) return Feasibility::Refuse("it is of other ranks than this process is one of");
    return Feasibility::Ok();
  }

  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    const TensorNode& node = graph.node(id);
    if (!IsExchange(node.op)) return inner_->prepare(graph, id);
    return std::unique_ptr<PreparedNode>(std::make_unique<PreparedExchange>(
        fmt::format("{}/{}", exchange_->NameOf(node), ToString(node.op))));
  }

  std::size_t workspace(const ComputeGraph& graph, int id,
                        const PreparedNode* prepared) const override {
    const TensorNode& node = graph.node(id);
    if (!IsExchange(node.op)) return inner_->workspace(graph, id, prepared);
    if (node.op == TensorOp::kAllReduce) return 0;
    if (node.op == TensorOp::kAllArgMax) return exchange_->ArgMaxWorkspace(node.shape.rows);
    return exchange_->GatherWorkspace(node.shape.rows, node.params.parts);
  }

  Status agree(const Status& own, const std::string& plan) override {
    const Status inner = own.ok() ? inner_->agree(own, plan) : own;
    const auto choice = exchange_->choice();
    return ranks_.Agree(inner, choice ? fmt::format("{}\nsums {}", plan, ToString(*choice)) : plan);
  }

  // What fails on one rank must not let the others wait.
  Status launch(const NodeLaunch& launch) override {
    const bool exchanges =
        launch.fusion != nullptr ? IsExchangeFusion(*launch.fusion) : IsExchange(launch.node().op);
    const Status status = exchanges ? Exchange(launch) : inner_->launch(launch);
    if (!status.ok() && !exchanges) ranks_.Abort(status.message());
    return status;
  }

  bool records(cudaStream_t stream) const override { return inner_->records(stream); }
  Result<std::unique_ptr<RecordedLaunches>> record(const LaunchFunction& launches) override {
    auto made = inner_->record(launches);
    if (!made || *made == nullptr) return made;
    return std::unique_ptr<RecordedLaunches>(
        std::make_unique<CheckedLaunches>(*std::move(made), *exchange_));
  }
  bool prefers_buckets() const override { return inner_->prefers_buckets(); }
  int preferred_step_tokens() const override { return inner_->preferred_step_tokens(); }
  std::vector<std::string> fusion_names() const override {
    std::vector<std::string> names = ExchangeFusionNames();
    for (std::string& name : inner_->fusion_names()) names.push_back(std::move(name));
    return names;
  }
  // Norms behind an all-reduce come before those in front of a product: a launch less.
  std::vector<Fusion> fusions(const ComputeGraph& graph) const override {
    std::vector<Fusion> found = FindExchangeFusions(graph, *exchange_);
    for (Fusion& fusion : inner_->fusions(graph)) found.push_back(std::move(fusion));
    return found;
  }
  Result<std::unique_ptr<PreparedNode>> prepare_fusion(const ComputeGraph& graph,
                                                       const Fusion& fusion) override {
    if (!IsExchangeFusion(fusion)) return inner_->prepare_fusion(graph, fusion);
    return std::unique_ptr<PreparedNode>(
        std::make_unique<PreparedExchange>(fmt::format("{}/{}", exchange_->name(), fusion.name)));
  }
  std::size_t workspace_fusion(const ComputeGraph& graph, const Fusion& fusion,
                               const PreparedNode* prepared) const override {
    if (IsExchangeFusion(fusion)) return 0;
    return inner_->workspace_fusion(graph, fusion, prepared);
  }
  DataType preferred_values(DataType weights) const override {
    return inner_->preferred_values(weights);
  }
  DeviceMemory& memory() override {
    return exchange_->is_watched() ? static_cast<DeviceMemory&>(watched_) : inner_->memory();
  }

  // The seed's methods, which launch() does not come to.
  Status dispatch_mul_mat(const TensorNode& node, DevicePtr x, DevicePtr y, std::uint32_t m,
                          std::uint32_t n, std::uint32_t k) override {
    return inner_->dispatch_mul_mat(node, x, y, m, n, k);
  }
  Status dispatch_rms_norm(const TensorNode& node, DevicePtr x, DevicePtr y, std::uint32_t n,
                           std::uint32_t m, float epsilon) override {
    return inner_->dispatch_rms_norm(node, x, y, n, m, epsilon);
  }
  Status dispatch_add(DevicePtr a, DevicePtr b, DevicePtr y, std::size_t n) override {
    return inner_->dispatch_add(a, b, y, n);
  }
  Status dispatch_rope(const TensorNode& node, DevicePtr x, DevicePtr positions, std::size_t n,
                       std::uint32_t head_dim, std::uint32_t heads) override {
    return inner_->dispatch_rope(node, x, positions, n, head_dim, heads);
  }
  Status dispatch_attention(const TensorNode& node, DevicePtr q, DevicePtr k, DevicePtr v,
                            DevicePtr y, std::uint32_t m, std::size_t layer) override {
    return inner_->dispatch_attention(node, q, k, v, y, m, layer);
  }
  Status dispatch_copy(DevicePtr from, DevicePtr to, std::size_t bytes) override {
    return inner_->dispatch_copy(from, to, bytes);
  }
  Status dispatch_mul(DevicePtr a, DevicePtr b, DevicePtr y, std::size_t n) override {
    return inner_->dispatch_mul(a, b, y, n);
  }
  Status dispatch_silu(DevicePtr x, DevicePtr y, std::size_t n) override {
    return inner_->dispatch_silu(x, y, n);
  }

 private:
  Status Exchange(const NodeLaunch& launch) {
    const TensorNode& node = launch.node();
    const ExchangeStream stream{launch.stream, launch.previous != nullptr};
    if (launch.fusion != nullptr) return exchange_->AllReduceNorm(ArgsOfExchange(launch), stream);
    if (node.op == TensorOp::kAllReduce) {
      return exchange_->AllReduce(launch.input(0), launch.output,
                                  static_cast<std::size_t>(node.shape.rows * node.shape.cols),
                                  stream);
    }
    if (node.op == TensorOp::kAllArgMax) {
      return exchange_->AllArgMax(launch.input(0), launch.input(1), launch.output, node.shape.rows,
                                  node.params.parts, launch.workspace, stream);
    }
    return exchange_->AllGather(launch.input(0), launch.output, node.shape.rows, node.params.parts,
                                launch.workspace, stream);
  }

  std::unique_ptr<KernelDispatch> inner_;
  std::shared_ptr<RankExchange> exchange_;
  WatchedMemory watched_{inner_->memory(), *exchange_};
  Communicator& ranks_;
};

}  // namespace

namespace {

// Rank 0's, as its machine's cache has it.
Result<ExchangeChoice> ChoiceOf(Communicator& ranks, const ExchangeOptions& options) {
  ExchangeChoice choice = UsualExchange(ranks.size(), options.wire);
  if (options.tuning) {
    choice.two_shot_bytes = kMostTwoShotBytes;
  } else if (ranks.rank() == 0) {
    choice = FindExchange(options.cache, options.device_class, ranks.size(), options.wire)
                 .value_or(choice);
  }
  CULET_RETURN_IF_ERROR(ranks.Broadcast(&choice, sizeof choice, 0));
  return choice;
}

}  // namespace

Result<std::shared_ptr<RankExchange>> MakeExchange(Communicator& ranks, DeviceMemory& memory,
                                                   const ExchangeOptions& options) {
  const char* const variable = std::getenv("CULET_EXCHANGE");
  const std::string wanted = variable == nullptr ? "" : variable;
  Status known;
  if (!wanted.empty() && wanted != "nccl" && wanted != "peers") {
    known = Status(StatusCode::kInvalidArgument,
                   fmt::format("CULET_EXCHANGE is '{}'; give 'nccl' or 'peers', or leave it unset",
                               Printable(wanted)));
  } else if (options.wire != DataType::kFloat32 && options.wire != DataType::kBfloat16) {
    known = Status(
        StatusCode::kInvalidArgument,
        fmt::format("exchange is {}; sums cross as float32 or bfloat16", ToString(options.wire)));
  } else if (options.wire != DataType::kFloat32 &&
             (memory.reads_host_memory() || wanted == "nccl")) {
    known = Status(StatusCode::kUnsupported,
                   fmt::format("exchange is {}, which the kernels of GPUs send alone; leave it "
                               "out on the CPU and with CULET_EXCHANGE=nccl",
                               ToString(options.wire)));
  }
  CULET_RETURN_IF_ERROR(ranks.Agree(
      known, fmt::format("CULET_EXCHANGE {}, sums of {}", wanted, ToString(options.wire))));
  if (memory.reads_host_memory()) return std::shared_ptr(MakeHostExchange(ranks));
  auto nccl = MakeNcclExchange(ranks, memory);
  if (wanted == "nccl" && !nccl) return nccl.status();
  std::shared_ptr<RankExchange> other;
  if (nccl) other = *std::move(nccl);
  if (wanted == "nccl") return other;
  const auto choice = ChoiceOf(ranks, options);
  if (!choice) return choice.status();
  auto peers = MakePeerExchange(ranks, memory, other, *choice);
  if (peers) {
    if (!nccl) Log(LogLevel::kInfo, "ranks exchange without NCCL: {}", nccl.status().message());
    Log(LogLevel::kInfo, "ranks make sums of {}", ToString(*choice));
    return std::shared_ptr<RankExchange>(*std::move(peers));
  }
  if (wanted == "peers" || options.wire != DataType::kFloat32) return peers.status();
  if (!nccl) return nccl.status();
  if (peers.status().code() != StatusCode::kUnsupported) return peers.status();
  Log(LogLevel::kWarning, "ranks exchange through NCCL alone: {}", peers.status().message());
  return other;
}

Result<std::unique_ptr<KernelDispatch>> MakeRankDispatch(std::unique_ptr<KernelDispatch> inner,
                                                         Communicator& ranks,
                                                         std::shared_ptr<RankExchange> exchange) {
  if (exchange == nullptr) {
    auto made = MakeExchange(ranks, inner->memory());
    if (!made) return made.status();
    exchange = *std::move(made);
  }
  return std::unique_ptr<KernelDispatch>(
      std::make_unique<RankDispatch>(std::move(inner), std::move(exchange), ranks));
}

}  // namespace culet
