// Ranks: processes of one host that hold a model together, how they meet and what they exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "culet/device_memory.h"
#include "culet/exchange_choice.h"
#include "culet/kernel_dispatch.h"
#include "culet/status.h"
#include "culet/tensor.h"
#include "culet/types.h"

namespace culet {

/// How ranks find each other, and how long they wait.
struct RankOptions {
  int rank = 0, size = 1;
  int local_rank = 0;          ///< among those of this host: the number of its GPU
  std::string meeting;         ///< a name that these ranks share, and no others of the host
  double start_seconds = 600;  ///< until all are there
  double wait_seconds = 60;    ///< in an exchange, for the slowest rank
  /// Asked again and again while rank 0 waits for the others; an error ends the wait. May be empty.
  std::function<Status()> still_coming;
};

/// What the launcher's variables say, in this order: CULET_RANK, CULET_RANKS, CULET_MEETING; RANK,
/// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT (torchrun); OMPI_COMM_WORLD_* and PMI_*
/// (mpirun); SLURM_* (srun). CULET_MEETING counts with each of them, and so does CULET_RANK_WAIT,
/// seconds for wait_seconds. None without any of them, and
/// where there is one rank. Errors: INVALID_ARGUMENT for a variable that
/// is missing beside the others, or has no number, and for ranks on several hosts.
Result<std::optional<RankOptions>> RanksOfLauncher();

/// What ranks exchange in memory of the host. All ranks make the same calls in the same order; each
/// waits for the others. Not for concurrent use.
/// Errors of all: FAILED_PRECONDITION that names the rank that died, left, gave up, made another
/// call, or did not come within the time limit; then all later calls fail alike.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// On all ranks the sum of their `x`, added in the order of the ranks. `sum` may be `x`.
  virtual Status AllReduce(std::span<const float> x, float* sum) = 0;
  /// On all ranks the parts of all, one behind the other; rank r's has bytes[r].
  virtual Status AllGather(const void* part, std::span<const std::size_t> bytes, void* all) = 0;
  /// What rank `root` has.
  virtual Status Broadcast(void* data, std::size_t bytes, int root) = 0;
  /// Returns once all ranks are there.
  virtual Status Barrier() = 0;
  /// What the ranks have in common, or an error on all of them that names a rank with another text
  /// (which it shows), or one whose `own` is an error.
  Status Agree(const Status& own, const std::string& text);
  /// Calls of the other ranks end with an error that names this one and `reason`.
  virtual void Abort(const std::string& reason) noexcept = 0;
  virtual const RankOptions& options() const noexcept = 0;
  /// How long the next calls wait for the slowest rank; options().wait_seconds at first.
  virtual void SetWait(double seconds) noexcept = 0;

  /// What is wrong with a rank, from any thread, without waiting: it died, left or gave up; with
  /// `late`, it has made less progress than this one. Of a failure all calls fail from then on.
  virtual Status Check(bool late) = 0;
  /// How far this rank is, in steps of its own, for Check on the others.
  virtual void SetProgress(std::uint64_t steps) noexcept = 0;

  /// Rank 0: sends bytes to all others. The others: the next of these, however long it takes.
  /// Errors: as above; NOT_FOUND when rank 0 left.
  virtual Status Tell(std::span<const std::byte> message) = 0;
  virtual Result<std::vector<std::byte>> Hear() = 0;

  /// On all ranks a file of each, by their ranks: descriptors that the caller closes, -1 for its
  /// own. Errors: as above.
  virtual Result<std::vector<int>> ShareFile(int file) = 0;
};

/// Meets the other ranks: processes of this host and user. They exchange by memory that all of them
/// map, which nothing outlives.
/// Errors: INVALID_ARGUMENT for an impossible rank, a rank that is there twice, another size or
/// another version of the library; FAILED_PRECONDITION for ranks that did not come, named; IO.
Result<std::unique_ptr<Communicator>> JoinRanks(const RankOptions& options);

/// An all-reduce of rows with what follows it at once: the residual sum, its RMS norm, and the E4M3
/// codes of that in groups of 128. Addresses of 0: no residual, or the value goes nowhere.
struct SumAndNorm {
  DevicePtr x = 0;         ///< float32 (rows, width)
  DevicePtr residual = 0;  ///< float32
  DevicePtr sum = 0;       ///< float32; may be x or the residual
  const Weight* gamma = nullptr;
  float epsilon = 0;
  DevicePtr out = 0;
  DataType out_type = DataType::kNull;  ///< float32 or bfloat16
  DevicePtr codes = 0, scales = 0;
  std::int64_t rows = 0, width = 0;
};

/// What an exchange is launched into.
struct ExchangeStream {
  cudaStream_t stream = nullptr;
  bool overlap = false;  ///< may begin before the launch before it has ended
};

/// Exchanges in memory of a device, in the order of a stream.
class RankExchange {
 public:
  virtual ~RankExchange() = default;
  /// As Communicator::AllReduce, of `count` floats.
  virtual Status AllReduce(DevicePtr x, DevicePtr sum, std::size_t count,
                           ExchangeStream stream) = 0;
  /// Whether AllReduceNorm takes so many rows; equal on all ranks.
  virtual bool TakesNorm(std::int64_t, std::int64_t) const { return false; }
  /// Requires: TakesNorm, and all pointers aligned to 16 bytes.
  virtual Status AllReduceNorm(const SumAndNorm&, ExchangeStream) {
    return Status(StatusCode::kUnsupported, name() + " exchanges sums alone");
  }
  /// (rows, parts.all()) of each rank's (rows, its part), float32. `workspace`: of that many bytes.
  virtual Status AllGather(DevicePtr x, DevicePtr all, std::int64_t rows, const RankParts& parts,
                           DevicePtr workspace, ExchangeStream stream) = 0;
  virtual std::size_t GatherWorkspace(std::int64_t rows, const RankParts& parts) const = 0;
  /// To `all` (rows) int32, as the graph's AllArgMax: x (rows, the rank's part) float32, `local`
  /// (rows) int32. One key of 64 bits a row crosses.
  virtual Status AllArgMax(DevicePtr x, DevicePtr local, DevicePtr all, std::int64_t rows,
                           const RankParts& parts, DevicePtr workspace, ExchangeStream stream) = 0;
  virtual std::size_t ArgMaxWorkspace(std::int64_t) const { return 0; }
  /// "shared_memory", "nccl", "peers".
  virtual std::string name() const = 0;
  /// How sums are made; none: in one way.
  virtual std::optional<ExchangeChoice> choice() const { return std::nullopt; }
  /// From the next sum on: equal on all ranks, before graphs are made. What is beyond the room that
  /// was made for it is cut. Errors: UNSUPPORTED where there is one way.
  virtual Status SetChoice(const ExchangeChoice&) {
    return Status(StatusCode::kUnsupported, name() + " makes all sums in one way");
  }
  /// Whether what is larger goes through NCCL.
  virtual bool has_other() const { return false; }
  /// Of what computes an exchange.
  virtual std::string NameOf(const TensorNode&) const { return name(); }
  /// Around each wait of the host for the device, where exchanges go on by themselves: a wait for a
  /// rank that is gone or late is ended. Errors: as Communicator, then of all later calls, and of
  /// status().
  virtual Status status() { return {}; }
  virtual bool is_watched() const { return false; }
  virtual void BeginWait() {}
  virtual Status EndWait() { return {}; }
};

/// Over memory that the host reads. Requires: a communicator that outlives it.
std::unique_ptr<RankExchange> MakeHostExchange(Communicator& ranks);
/// Through NCCL, which is loaded at run time: the file that CULET_NCCL names, a libnccl.so.2 that
/// the process has, else the system's. `memory` is that of the rank's own GPU. Usable in a stream
/// capture. All ranks make it together. Errors: NOT_FOUND that says what to install;
/// INVALID_ARGUMENT for two ranks on one GPU; UNSUPPORTED in a build without CUDA, and for a
/// version that is too old; as Communicator.
Result<std::unique_ptr<RankExchange>> MakeNcclExchange(Communicator& ranks, DeviceMemory& memory);

/// By kernels of this library that write into the other GPUs' memory, and through `other` what it
/// does faster; null: it is not there. All ranks make it together, of one `other` and one `choice`.
/// Errors: UNSUPPORTED that says which GPUs cannot reach each other, or that the build has no CUDA;
/// as Communicator.
Result<std::unique_ptr<RankExchange>> MakePeerExchange(Communicator& ranks, DeviceMemory& memory,
                                                       std::shared_ptr<RankExchange> other,
                                                       const ExchangeChoice& choice);

/// What decides how sums are made.
struct ExchangeOptions {
  DataType wire = DataType::kFloat32;  ///< as in ExchangeChoice; equal on all ranks
  /// Rank 0's cache file with what was measured, and the class of its device; empty: as usual.
  std::string cache, device_class;
  bool tuning = false;  ///< room for all ways, as TuneExchange needs it
};

/// The one that suits the memory; between GPUs peers', with NCCL where it is there, or NCCL's where
/// they cannot reach each other (a logged warning says why) or CULET_EXCHANGE is "nccl". All ranks
/// make it together. Errors: as MakeNcclExchange; with CULET_EXCHANGE "peers" as MakePeerExchange;
/// INVALID_ARGUMENT for another, and for ranks with unequal options.
Result<std::shared_ptr<RankExchange>> MakeExchange(Communicator& ranks, DeviceMemory& memory,
                                                   const ExchangeOptions& options = {});

/// What TuneExchange measured.
struct ExchangeTuning {
  ExchangeChoice choice;  ///< in force from now on
  std::vector<ExchangeTimes> times;
};
/// Measures all ways of sums of 64 KB to `most_bytes`, in launches that `dispatch` recorded where
/// it can. All ranks make it together, and have the same result. Takes a second or two. Errors:
/// UNSUPPORTED where there is one way; those of the exchange.
Result<ExchangeTuning> TuneExchange(Communicator& ranks, KernelDispatch& dispatch,
                                    RankExchange& exchange,
                                    std::int64_t most_bytes = std::int64_t{64} << 20);

/// `inner` with AllReduce and AllGather. `exchange`: of all dispatches of these ranks; null makes
/// one. Requires: a communicator that outlives it. Errors: as MakeExchange.
Result<std::unique_ptr<KernelDispatch>> MakeRankDispatch(
    std::unique_ptr<KernelDispatch> inner, Communicator& ranks,
    std::shared_ptr<RankExchange> exchange = nullptr);

}  // namespace culet
