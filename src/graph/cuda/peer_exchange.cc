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

constexpr std::int64_t kFloat = sizeof(float);

// Bytes of a push for which there is room, in float32 or bfloat16: packets are as many.
std::int64_t RoomOfPush(int ranks) {
  // With more ranks a push of more than usual costs little memory, and may be found to be faster.
  return UsualExchange(ranks).push_bytes * (ranks > 2 ? 4 : 1);
}

// Packets of a rank in an area.
std::int64_t PeerSlots(int ranks) {
  const std::int64_t count = RoomOfPush(ranks) / kFloat;
  // Rows are shared in whole warps: no more than twice as many.
  return std::max<std::int64_t>(AllReduceSlots(count, DataType::kFloat32), 16384);
}

// Groups of tiles in an area.
std::int64_t PeerGroups(int ranks, const ExchangeChoice& choice) {
  const std::int64_t bytes = std::min(choice.two_shot_bytes, kMostTwoShotBytes);
  if (bytes <= 0) return 0;
  return (TwoShotGroups(bytes / kFloat, ranks) + 3) / 4 * 4;
}

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
    peers_.groups = PeerGroups(ranks_.size(), setup_.choice);
    CULET_RETURN_IF_ERROR(SetChoice(setup_.choice));
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
    args.wire = choice_.wire;
    args.units = setup_.units;
    const Way way = CanAllReduce(args) ? WayOf(args.count) : Way::kOther;
    if (way == Way::kOther) {
      return setup_.other != nullptr ? setup_.other->AllReduce(x, sum, count, stream)
                                     : Refused("an all-reduce", count);
    }
    return watch_->Guarded([&]() -> Status {
      const DeviceScope scope(setup_.device);
      LaunchStream launch = Of(stream);
      const std::int64_t piece = way == Way::kPush ? RoomOfPush(ranks_.size()) / kFloat
                                                   : kTwoShotTile * peers_.groups * ranks_.size();
      for (std::int64_t left = args.count; left > 0; left -= piece) {
        args.count = std::min(left, piece);
        CULET_RETURN_IF_ERROR(
            way == Way::kPush
                ? CudaStatus(cuda_ops::AllReduce(args, launch), "launching all_reduce")
                : CudaStatus(AllReduceTwoShot(args, launch), "launching all_reduce in two shots"));
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
        AllReduceNormSlots(rows, static_cast<int>(width), choice_.wire, setup_.units);
    return slots > 0 && slots <= peers_.slots && OnWire(rows * width) <= choice_.push_bytes;
  }

  Status AllReduceNorm(const SumAndNorm& what, ExchangeStream stream) override {
    AllReduceNormArgs args;
    args.peers = peers_;
    args.wire = choice_.wire;
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

  Status AllArgMax(DevicePtr x, DevicePtr local, DevicePtr all, std::int64_t rows,
                   const RankParts& parts, DevicePtr, ExchangeStream stream) override {
    AllArgMaxArgs args;
    args.peers = peers_;
    args.x = FromDevicePtr<const float>(x);
    args.local = FromDevicePtr<const std::int32_t>(local);
    args.all = FromDevicePtr<std::int32_t>(all);
    args.cols = parts.size_of(parts.rank);
    args.first = parts.first();
    return watch_->Guarded([&]() -> Status {
      const DeviceScope scope(setup_.device);
      LaunchStream launch = Of(stream);
      for (std::int64_t left = rows; left > 0; left -= args.rows) {
        args.rows = std::min({left, peers_.slots, kMostArgMaxRows});
        CULET_RETURN_IF_ERROR(
            CudaStatus(cuda_ops::AllArgMax(args, launch), "launching all_argmax"));
        args.x += args.rows * args.cols;
        args.local += args.rows;
        args.all += args.rows;
        launch.overlap = overlap_;
      }
      return {};
    });
  }

  std::string name() const override { return "peers"; }
  std::string NameOf(const TensorNode& node) const override {
    if (node.op == TensorOp::kAllArgMax) return name();
    if (node.op == TensorOp::kAllReduce) {
      const std::int64_t count = node.shape.rows * node.shape.cols;
      switch (count % 4 == 0 ? WayOf(count) : Way::kOther) {
        case Way::kPush:
          return name();
        case Way::kTwoShots:
          return name() + "_two_shots";
        case Way::kOther:
          break;
      }
    } else if (IsTaken(GatherArgs(node.shape.rows, node.params.parts))) {
      return name();
    }
    return setup_.other != nullptr ? setup_.other->NameOf(node) : name();
  }

  std::optional<ExchangeChoice> choice() const override { return choice_; }
  Status SetChoice(const ExchangeChoice& choice) override {
    choice_ = choice;
    choice_.push_bytes =
        std::min(choice.push_bytes, RoomOfPush(ranks_.size()) / kFloat * BytesOnWire());
    if (peers_.groups == 0) choice_.two_shot_bytes = 0;
    return {};
  }
  bool has_other() const override { return setup_.other != nullptr; }

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
  enum class Way { kPush, kTwoShots, kOther };
  // Of a sum that lies in whole vectors; equal on all ranks.
  Way WayOf(std::int64_t count) const {
    const std::int64_t bytes = OnWire(count);
    if (bytes <= choice_.push_bytes) return Way::kPush;
    const bool two_shots = peers_.groups > 0;
    if (two_shots && bytes <= choice_.two_shot_bytes) return Way::kTwoShots;
    if (setup_.other != nullptr) return Way::kOther;
    return two_shots ? Way::kTwoShots : Way::kPush;  // in pieces
  }
  std::int64_t BytesOnWire() const { return static_cast<std::int64_t>(SizeOf(choice_.wire)); }
  std::int64_t OnWire(std::int64_t count) const { return count * BytesOnWire(); }
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
  ExchangeChoice choice_;
  bool overlap_ = false;
  std::optional<ExchangeWatch> watch_;
};

}  // namespace

std::size_t PeerAreaBytes(int ranks, const ExchangeChoice& choice) {
  return ExchangeAreaBytes(ranks, PeerSlots(ranks), PeerGroups(ranks, choice));
}

Result<std::unique_ptr<RankExchange>> MakePeerExchangeOver(Communicator& ranks,
                                                           DeviceMemory& memory, PeerSetup setup) {
  auto made = std::make_unique<PeerExchange>(ranks, std::move(setup));
  CULET_RETURN_IF_ERROR(made->Prepare(memory));
  return std::unique_ptr<RankExchange>(std::move(made));
}

}  // namespace culet::cuda_ops
