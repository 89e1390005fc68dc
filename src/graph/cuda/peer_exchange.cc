#include "graph/cuda/peer_exchange.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/device_scope.h"
#include "base/exchange_watch.h"
#include "cuda/error.h"
#include "kernels/cuda_ops/exchange.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

class PeerExchange final : public RankExchange {
 public:
  PeerExchange(Communicator& ranks, PeerSetup setup) : ranks_(ranks), setup_(std::move(setup)) {}

  Status Prepare(DeviceMemory& memory) {
    const DeviceScope scope(setup_.device);
    const std::size_t table = setup_.areas.size() * sizeof(void*);
    auto buffer = DeviceBuffer::Create(memory, sizeof(ExchangeControl) + table);
    if (!buffer) return buffer.status();
    buffer_ = *std::move(buffer);
    const DevicePtr areas = buffer_.get() + sizeof(ExchangeControl);
    const ExchangeControl control;
    CULET_RETURN_IF_ERROR(memory.Upload(buffer_.get(), &control, sizeof control, nullptr));
    CULET_RETURN_IF_ERROR(memory.Upload(areas, setup_.areas.data(), table, nullptr));
    CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));
    auto status = SharedBuffer::Create(memory, sizeof(ExchangeStatus));
    if (!status) return status.status();
    shared_ = *std::move(status);
    *Shared() = {};
    overlap_ = CanOverlap();
    peers_.areas = FromDevicePtr<void* const>(areas);
    peers_.control = FromDevicePtr<ExchangeControl>(buffer_.get());
    peers_.status = Shared();
    peers_.rank = ranks_.rank();
    peers_.ranks = ranks_.size();
    peers_.slots = PeerSlots(ranks_.size());
    // The kernels know who is late and are to say so before the host, which only sees a long wait.
    constexpr double kEarlier = 0.9e9;  // in nanoseconds
    peers_.limit_ns = static_cast<std::uint64_t>(ranks_.options().wait_seconds * kEarlier);
    // The host reads and writes what kernels write and read.
    watch_.emplace(ranks_, setup_.device,
                   ExchangeWatch::Hooks{[this] { return Look(); },
                                        [this] { std::atomic_ref(Shared()->abort).store(1); }});
    return {};
  }

  Status AllReduce(DevicePtr x, DevicePtr sum, std::size_t count, ExchangeStream stream) override {
    AllReduceArgs args;
    args.peers = peers_;
    args.x = FromDevicePtr<const float>(x);
    args.sum = FromDevicePtr<float>(sum);
    args.count = static_cast<std::int64_t>(count);
    args.units = setup_.units;
    if (setup_.other != nullptr && !(IsPushed(count) && CanAllReduce(args))) {
      return setup_.other->AllReduce(x, sum, count, stream);
    }
    if (!CanAllReduce(args)) return Refused("an all-reduce", count);
    return watch_->Guarded([&]() -> Status {
      const DeviceScope scope(setup_.device);
      LaunchStream launch = Of(stream);
      const std::int64_t piece = MostPushed();
      for (std::int64_t left = args.count; left > 0; left -= piece) {
        args.count = std::min(left, piece);
        CULET_RETURN_IF_ERROR(
            CudaStatus(cuda_ops::AllReduce(args, launch), "launching all_reduce"));
        args.x += piece;
        args.sum += piece;
        launch.overlap = overlap_;
      }
      return {};
    });
  }

  bool TakesNorm(std::int64_t rows, std::int64_t width) const override {
    if (rows < 1 || width < 1 || width > kMostWidth) return false;
    const std::int64_t slots =
        AllReduceNormSlots(rows, static_cast<int>(width), DataType::kFloat32, setup_.units);
    return slots > 0 && slots <= peers_.slots && IsPushed(static_cast<std::size_t>(rows * width));
  }

  Status AllReduceNorm(const SumAndNorm& what, ExchangeStream stream) override {
    AllReduceNormArgs args;
    args.peers = peers_;
    args.units = setup_.units;
    FusedNormArgs& norm = args.norm;
    norm.x = FromDevicePtr<const void>(what.x);
    norm.y = FromDevicePtr<const void>(what.residual);
    norm.x_type = DataType::kFloat32;
    norm.sum = FromDevicePtr<void>(what.sum);
    norm.gamma = FromDevicePtr<const void>(what.gamma->data_ptr);
    norm.gamma_type = what.gamma->type;
    norm.epsilon = what.epsilon;
    norm.out = FromDevicePtr<void>(what.out);
    norm.out_type = what.out_type;
    norm.to = {FromDevicePtr<std::uint8_t>(what.codes), FromDevicePtr<float>(what.scales)};
    norm.rows = what.rows;
    norm.width = static_cast<int>(what.width);
    return watch_->Guarded([&] {
      const DeviceScope scope(setup_.device);
      return CudaStatus(cuda_ops::AllReduceNorm(args, Of(stream)), "launching all_reduce_rms_norm");
    });
  }

  Status AllGather(DevicePtr x, DevicePtr all, std::int64_t rows, const RankParts& parts,
                   DevicePtr workspace, ExchangeStream stream) override {
    AllGatherArgs args = GatherArgs(rows, parts);
    args.x = FromDevicePtr<const float>(x);
    args.all = FromDevicePtr<float>(all);
    if (setup_.other != nullptr && !IsTaken(args)) {
      return setup_.other->AllGather(x, all, rows, parts, workspace, stream);
    }
    args.rows = 1;
    if (!IsTaken(args)) {
      return Refused("an all-gather", static_cast<std::size_t>(parts.all()));
    }
    return watch_->Guarded([&]() -> Status {
      const DeviceScope scope(setup_.device);
      LaunchStream launch = Of(stream);
      for (std::int64_t left = rows; left > 0; left -= args.rows) {
        args.rows = left;
        while (!IsTaken(args)) args.rows = (args.rows + 1) / 2;
        CULET_RETURN_IF_ERROR(
            CudaStatus(cuda_ops::AllGather(args, launch), "launching all_gather"));
        args.x += args.rows * parts.size_of(parts.rank);
        args.all += args.rows * parts.all();
        launch.overlap = overlap_;
      }
      return {};
    });
  }
  std::size_t GatherWorkspace(std::int64_t rows, const RankParts& parts) const override {
    // Values that the executor places are aligned; others may not be, and need the other's.
    return setup_.other == nullptr ? 0 : setup_.other->GatherWorkspace(rows, parts);
  }

  std::string name() const override { return "peers"; }
  std::string NameOf(const TensorNode& node) const override {
    if (setup_.other == nullptr) return name();
    const auto count = static_cast<std::size_t>(node.shape.rows * node.shape.cols);
    const bool own = node.op == TensorOp::kAllReduce
                         ? count % 4 == 0 && IsPushed(count)
                         : IsTaken(GatherArgs(node.shape.rows, node.params.parts));
    return own ? name() : setup_.other->NameOf(node);
  }

  Status status() override {
    const Status own = watch_->status();
    return own.ok() && setup_.other != nullptr ? setup_.other->status() : own;
  }
  bool is_watched() const override { return true; }
  void BeginWait() override {
    watch_->BeginWait();
    if (setup_.other != nullptr) setup_.other->BeginWait();
  }
  Status EndWait() override {
    const Status other = setup_.other != nullptr ? setup_.other->EndWait() : Status();
    const Status own = watch_->EndWait();
    return own.ok() ? other : own;
  }

 private:
  static constexpr std::int64_t kMostWidth = 1 << 20;

  LaunchStream Of(ExchangeStream stream) const {
    return {stream.stream, stream.overlap && overlap_};
  }
  ExchangeStatus* Shared() const { return static_cast<ExchangeStatus*>(shared_.get()); }
  // Elements of a push.
  std::int64_t MostPushed() const {
    return static_cast<std::int64_t>(MostBytesOfPush(ranks_.size()) / sizeof(float));
  }
  bool IsPushed(std::size_t count) const {
    return static_cast<std::int64_t>(count) <= MostPushed();
  }
  AllGatherArgs GatherArgs(std::int64_t rows, const RankParts& parts) const {
    AllGatherArgs args;
    args.peers = peers_;
    args.rows = rows;
    args.units = setup_.units;
    if (parts.ranks() > AllGatherArgs::kMostRanks) return args;
    std::ranges::copy(parts.bounds, args.bounds);
    return args;
  }
  // Equal on all ranks but for what is not aligned.
  bool IsTaken(const AllGatherArgs& args) const {
    const std::int64_t slots = AllGatherSlots(args);
    return slots > 0 && slots <= peers_.slots;
  }
  static Status Refused(const char* what, std::size_t count) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{} of {} floats that lie in no whole vectors of 16 bytes goes through "
                    "NCCL, which is not there; install NCCL (pip install "
                    "nvidia-nccl-cu12)",
                    what, count));
  }

  // What the kernels found.
  Status Look() const {
    ExchangeStatus& status = *Shared();
    const std::uint32_t late = std::atomic_ref(status.late).load(std::memory_order_acquire);
    if (late == 0) return {};
    return Status(
        StatusCode::kFailedPrecondition,
        fmt::format("rank {} did not come to exchange {} of the GPUs within {} s; it hangs "
                    "or is too slow: start all ranks again, with a longer "
                    "CULET_RANK_WAIT if need be",
                    late - 1, std::atomic_ref(status.epoch).load(), ranks_.options().wait_seconds));
  }

  Communicator& ranks_;
  PeerSetup setup_;
  DeviceBuffer buffer_;  // control, and the table of areas
  SharedBuffer shared_;  // status
  ExchangePeers peers_;
  bool overlap_ = false;
  std::optional<ExchangeWatch> watch_;
};

}  // namespace

std::size_t MostBytesOfPush(int ranks) {
  struct Most {
    int ranks;
    std::size_t bytes;
  };
  constexpr std::size_t kKilo = 1024;
  constexpr Most kTable[] = {
      {2, 8192 * kKilo}, {3, 2048 * kKilo}, {4, 1024 * kKilo}, {8, 256 * kKilo}, {16, 64 * kKilo}};
  for (const Most& each : kTable) {
    if (ranks <= each.ranks) return each.bytes;
  }
  return 16 * kKilo;
}

std::int64_t PeerSlots(int ranks) {
  const auto count = static_cast<std::int64_t>(MostBytesOfPush(ranks) / sizeof(float));
  // Rows are shared in whole warps: no more than twice as many.
  return std::max<std::int64_t>(AllReduceSlots(count, DataType::kFloat32), 16384);
}

Result<std::unique_ptr<RankExchange>> MakePeerExchangeOver(Communicator& ranks,
                                                           DeviceMemory& memory, PeerSetup setup) {
  auto made = std::make_unique<PeerExchange>(ranks, std::move(setup));
  CULET_RETURN_IF_ERROR(made->Prepare(memory));
  return std::unique_ptr<RankExchange>(std::move(made));
}

}  // namespace culet::cuda_ops
