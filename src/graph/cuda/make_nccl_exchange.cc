// MakeNcclExchange: exchanges between GPUs through NCCL, which is loaded at run time.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/device_scope.h"
#include "base/exchange_watch.h"
#include "cuda/error.h"
#include "cuda/rank_device.h"
#include "culet/ranks.h"
#include "kernels/cuda_ops/exchange.h"

namespace culet {
namespace {

// What this file uses of nccl.h; these have not changed since NCCL 2.
struct UniqueId {
  char bytes[128];
};
using Comm = void*;
constexpr int kFloat = 7, kUint64 = 5, kSum = 0, kMaximum = 2, kSuccess = 0, kInProgress = 7;
constexpr int kOldest = 21400;  // 2.14: whose communicators live beside CUDA graphs

struct Nccl {
  int (*GetVersion)(int*) = nullptr;
  int (*GetUniqueId)(UniqueId*) = nullptr;
  int (*CommInitRank)(Comm*, int, UniqueId, int) = nullptr;
  int (*AllReduce)(const void*, void*, std::size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*AllGather)(const void*, void*, std::size_t, int, Comm, cudaStream_t) = nullptr;
  int (*CommGetAsyncError)(Comm, int*) = nullptr;
  int (*CommAbort)(Comm) = nullptr;
  int (*CommDestroy)(Comm) = nullptr;
  const char* (*GetErrorString)(int) = nullptr;
  std::string file;
};

constexpr const char* kInstall =
    "install NCCL (pip install nvidia-nccl-cu12, or the package libnccl2), or let CULET_NCCL name "
    "its libnccl.so.2";

// One that the process has already, as PyTorch's, is taken before the system's.
Result<Nccl> Load() {
  Nccl nccl;
  void* library = nullptr;
  if (const char* const given = std::getenv("CULET_NCCL"); given != nullptr && *given != '\0') {
    nccl.file = given;
    library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
  } else {
    nccl.file = "libnccl.so.2";
    library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* const reason = dlerror();
    return Status(StatusCode::kNotFound,
                  fmt::format("ranks on GPUs need NCCL, and {} could not be loaded ({}); {}",
                              nccl.file, reason != nullptr ? reason : "no reason given", kInstall));
  }
  const auto find = [&](const char* name, auto& function) {
    void* const address = dlsym(library, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    return address != nullptr;
  };
  const bool all =
      find("ncclGetVersion", nccl.GetVersion) && find("ncclGetUniqueId", nccl.GetUniqueId) &&
      find("ncclCommInitRank", nccl.CommInitRank) && find("ncclAllReduce", nccl.AllReduce) &&
      find("ncclAllGather", nccl.AllGather) &&
      find("ncclCommGetAsyncError", nccl.CommGetAsyncError) &&
      find("ncclCommAbort", nccl.CommAbort) && find("ncclCommDestroy", nccl.CommDestroy) &&
      find("ncclGetErrorString", nccl.GetErrorString);
  int version = 0;
  if (all && nccl.GetVersion(&version) == kSuccess && version >= kOldest) return nccl;
  return Status(StatusCode::kUnsupported,
                fmt::format("{} is version {} of NCCL, and ranks need {} or later; {}", nccl.file,
                            version, kOldest, kInstall));
}

class NcclExchange final : public RankExchange {
 public:
  NcclExchange(Nccl nccl, Communicator& ranks, int device)
      : nccl_(std::move(nccl)), ranks_(ranks), device_(device) {}
  // Graphs that were recorded with the communicator are gone by now: a dispatch outlives them.
  ~NcclExchange() override {
    watch_.reset();
    const DeviceScope scope(device_);
    if (comm_ != nullptr) nccl_.CommDestroy(comm_);
  }

  Status Connect() {
    const DeviceScope scope(device_);
    UniqueId id{};
    Status own = ranks_.rank() == 0 ? Checked(nccl_.GetUniqueId(&id), "ncclGetUniqueId") : Status();
    // All ranks have one version, or none begins.
    int version = 0;
    nccl_.GetVersion(&version);
    CULET_RETURN_IF_ERROR(ranks_.Agree(own, fmt::format("NCCL {}", version)));
    CULET_RETURN_IF_ERROR(ranks_.Broadcast(&id, sizeof id, 0));
    own = Checked(nccl_.CommInitRank(&comm_, ranks_.size(), id, ranks_.rank()), "ncclCommInitRank");
    CULET_RETURN_IF_ERROR(ranks_.Agree(own, "connected"));
    // NCCL's kernels wait for ever for a rank that is gone; the end of the communicator ends them.
    watch_.emplace(
        ranks_, device_,
        ExchangeWatch::Hooks{[this] {
                               int state = kSuccess;
                               const int asked = nccl_.CommGetAsyncError(comm_, &state);
                               return Checked(asked == kSuccess ? state : asked, "NCCL");
                             },
                             [this] { nccl_.CommAbort(std::exchange(comm_, nullptr)); }});
    return {};
  }

  Status AllReduce(DevicePtr x, DevicePtr sum, std::size_t count, ExchangeStream stream) override {
    return watch_->Guarded([&] {
      const DeviceScope scope(device_);
      return Checked(nccl_.AllReduce(FromDevicePtr<const void>(x), FromDevicePtr<void>(sum), count,
                                     kFloat, kSum, comm_, stream.stream),
                     "ncclAllReduce");
    });
  }

  // Parts of one width, the widest one's, lie one behind the other in the workspace: first the own
  // one, then those of all.
  Status AllGather(DevicePtr x, DevicePtr all, std::int64_t rows, const RankParts& parts,
                   DevicePtr workspace, ExchangeStream stream) override {
    return watch_->Guarded([&] { return Gather(x, all, rows, parts, workspace, stream.stream); });
  }

  std::size_t GatherWorkspace(std::int64_t rows, const RankParts& parts) const override {
    return static_cast<std::size_t>(rows * Widest(parts) * (parts.ranks() + 1)) * sizeof(float);
  }

  Status AllArgMax(DevicePtr x, DevicePtr local, DevicePtr all, std::int64_t rows,
                   const RankParts& parts, DevicePtr workspace, ExchangeStream stream) override {
    return watch_->Guarded([&]() -> Status {
      const DeviceScope scope(device_);
      cuda_ops::AllArgMaxArgs args;
      args.x = FromDevicePtr<const float>(x);
      args.local = FromDevicePtr<const std::int32_t>(local);
      args.rows = rows;
      args.cols = parts.size_of(parts.rank);
      args.first = parts.first();
      auto* const keys = FromDevicePtr<std::uint64_t>(workspace);
      const cuda_ops::LaunchStream launch{stream.stream, false};
      CULET_RETURN_IF_ERROR(CudaStatus(KeysOfArgMax(args, keys, launch), "launching all_argmax"));
      CULET_RETURN_IF_ERROR(Checked(nccl_.AllReduce(keys, keys, static_cast<std::size_t>(rows),
                                                    kUint64, kMaximum, comm_, stream.stream),
                                    "ncclAllReduce"));
      return CudaStatus(
          cuda_ops::ArgMaxOfKeys(keys, FromDevicePtr<std::int32_t>(all), rows, launch),
          "launching all_argmax");
    });
  }
  std::size_t ArgMaxWorkspace(std::int64_t rows) const override {
    return static_cast<std::size_t>(rows) * sizeof(std::uint64_t);
  }
  std::string name() const override { return "nccl"; }

  Status status() override { return watch_->status(); }
  bool is_watched() const override { return true; }
  void BeginWait() override { watch_->BeginWait(); }
  Status EndWait() override { return watch_->EndWait(); }

 private:
  Status Gather(DevicePtr x, DevicePtr all, std::int64_t rows, const RankParts& parts,
                DevicePtr workspace, cudaStream_t stream) {
    const DeviceScope scope(device_);
    const std::int64_t widest = Widest(parts);
    const auto each = static_cast<std::size_t>(rows * widest);
    if (rows == 1 && widest * parts.ranks() == parts.all()) {
      return Checked(nccl_.AllGather(FromDevicePtr<const void>(x), FromDevicePtr<void>(all), each,
                                     kFloat, comm_, stream),
                     "ncclAllGather");
    }
    float* const own = FromDevicePtr<float>(workspace);
    float* const gathered = own + each;
    const std::int64_t width = parts.size_of(parts.rank);
    CULET_RETURN_IF_ERROR(
        CopyRows(own, widest, FromDevicePtr<const float>(x), width, width, rows, stream));
    CULET_RETURN_IF_ERROR(
        Checked(nccl_.AllGather(own, gathered, each, kFloat, comm_, stream), "ncclAllGather"));
    for (int r = 0; r < parts.ranks(); ++r) {
      const auto of = static_cast<std::size_t>(r);
      CULET_RETURN_IF_ERROR(CopyRows(FromDevicePtr<float>(all) + parts.bounds[of], parts.all(),
                                     gathered + of * each, widest, parts.size_of(r), rows, stream));
    }
    return {};
  }

  static std::int64_t Widest(const RankParts& parts) {
    std::int64_t widest = 0;
    for (int r = 0; r < parts.ranks(); ++r) widest = std::max(widest, parts.size_of(r));
    return widest;
  }

  static Status CopyRows(float* to, std::int64_t to_pitch, const float* from,
                         std::int64_t from_pitch, std::int64_t width, std::int64_t rows,
                         cudaStream_t stream) {
    const auto bytes = [](std::int64_t floats) {
      return static_cast<std::size_t>(floats) * sizeof(float);
    };
    return CudaStatus(
        cudaMemcpy2DAsync(to, bytes(to_pitch), from, bytes(from_pitch), bytes(width),
                          static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpy2DAsync");
  }

  Status Checked(int result, const char* what) {
    if (result == kSuccess || result == kInProgress) return {};
    return Status(StatusCode::kInternal, fmt::format("{} failed: {}; NCCL_DEBUG=INFO says more",
                                                     what, nccl_.GetErrorString(result)));
  }

  Nccl nccl_;
  Communicator& ranks_;
  int device_;
  Comm comm_ = nullptr;
  std::optional<ExchangeWatch> watch_;
};

}  // namespace

Result<std::unique_ptr<RankExchange>> MakeNcclExchange(Communicator& ranks, DeviceMemory& memory) {
  auto nccl = Load();
  // Whoever lacks it says so on all ranks.
  CULET_RETURN_IF_ERROR(ranks.Agree(nccl.status(), "NCCL is there"));
  const auto device = DeviceOfRank(ranks, memory);
  if (!device) return device.status();
  auto exchange = std::make_unique<NcclExchange>(*std::move(nccl), ranks, *device);
  CULET_RETURN_IF_ERROR(exchange->Connect());
  return std::unique_ptr<RankExchange>(std::move(exchange));
}

}  // namespace culet
