// Gemm: describe -> cache -> cost model -> (tuner) -> plan -> launch, and explain.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/dispatch_cache.h"
#include "culet/kernel.h"
#include "culet/packing.h"
#include "culet/registry.h"
#include "culet/status.h"
#include "culet/tuner.h"
#include "culet/untuned.h"

namespace culet {

/// What changes between two launches of a plan.
struct LaunchPointers {
  const void* A = nullptr;
  const void* U = nullptr;
  const void* C = nullptr;
  void* D = nullptr;
  float alpha = 1.0f;
  float beta = 0.0f;
  void* W = nullptr;  ///< D's scales; null: where the plan has them (Operation::quant_d)
};

struct PlanState;

/// A problem bound to a kernel: device, shapes, B and V are fixed, A, U, C and D come with each
/// launch. Launch does no allocation, no map look-up and no wait, so a stream that records a graph
/// takes it. Const plans serve several threads and streams at once, each stream (and each recorded
/// graph that runs beside others) with its own Workspace. Any device may be current at a launch;
/// the stream must be of the plan's. Must not outlive its Gemm's registry.
class GemmPlan {
 public:
  /// Errors: INVALID_ARGUMENT for a null or misaligned pointer, a beta that the plan was not made
  /// for or another device's stream (which cannot be noticed while that records a graph),
  /// RESOURCE_EXHAUSTED for a small workspace; nothing is written then.
  Status Launch(const LaunchPointers& pointers, Workspace& workspace,
                cudaStream_t stream = nullptr) const;

  const GemmDesc& desc() const noexcept;
  const LaunchSpec& spec() const noexcept;
  const WorkspaceSize& workspace_size() const noexcept;

  ~GemmPlan();
  GemmPlan(GemmPlan&&) noexcept;
  GemmPlan& operator=(GemmPlan&&) noexcept;

 private:
  friend class Gemm;
  explicit GemmPlan(std::unique_ptr<const PlanState> state);
  std::unique_ptr<const PlanState> state_;
};

/// Bytes of the one buffer that InitWorkspace(plan.workspace_size(), ...) takes.
inline std::size_t workspace_bytes(const GemmPlan& plan) noexcept {
  return plan.workspace_size().total();
}

/// Where a choice came from.
enum class ChoiceSource : std::uint8_t {
  kCacheExact,   ///< a measured entry of exactly this problem
  kCacheReused,  ///< the entry of the next smaller batch (DispatchPolicy::kReuse)
  kNeighbours,   ///< the cost model, anchored on measured neighbours
  kCostModel,    ///< the cost model alone
  kTuned,        ///< measured just now (DispatchPolicy::kMeasure)
};
const char* ToString(ChoiceSource) noexcept;

/// The choice for a problem, and for every other kernel why not.
struct Explanation {
  GemmDesc desc;
  LaunchSpec choice;
  ChoiceSource source = ChoiceSource::kCostModel;
  CacheLayer layer = CacheLayer::kUser;  ///< whose measurement it is
  double predicted_us = 0;               ///< the cost model's time of the choice
  double roofline_us = 0;                ///< the least time that the device's rates allow
  double roofline_share = 0;  ///< roofline_us over the choice's (measured or predicted) time
  struct Rejected {
    std::string kernel_id;
    bool feasible = false;
    std::string reason;  ///< the refusal, "predicted 31.2 us, 2.4 times the choice", or why it
                         ///< could not be prepared
  };
  std::vector<Rejected> rejected;  ///< in registry order
  /// For people, several lines.
  std::string ToString() const;
};

/// Options of Gemm::Tune.
struct TuneOptions {
  TunerOptions tuner;
  bool force =
      false;  ///< measure although a measured entry exists; a noisy one (IsNoisy) always is
  /// Called between measurements with the share done; returning false, or throwing, ends the
  /// tuning: the report holds what is known, and nothing is remembered. May be null.
  std::function<bool(double progress, const LaunchSpec& current)> on_progress;
  /// Called more often, also while inputs and their reference are made; true, or an exception, ends
  /// the tuning in the same way. May be null.
  std::function<bool()> stop;
  /// The stream of the later launch: while it records a graph, measuring is refused, because it
  /// allocates and waits.
  cudaStream_t stream = nullptr;
};

/// What tuning a problem found.
struct TuneReport {
  LaunchSpec winner;
  bool from_cache = false;  ///< a measured entry existed; nothing was measured
  bool complete = true;     ///< false: on_progress ended it; the winner was not remembered
  int measurements = 0;
  std::vector<LaunchSpec> standings;
  std::vector<Dropped> dropped;
};

struct GemmOptions {
  std::string device = "cpu";  ///< "cpu", "cuda" or "cuda:N"
  HardwareRates rates = {};    ///< used when `measured`; else TypicalRates
  std::string providers = {};  ///< as in Registry::Builtin
  /// A file to which each problem is appended that gets a choice which was not measured
  /// (ReadUntuned, `culet tune --from`). Empty: the environment's CULET_RECORD, else none; "off":
  /// none.
  std::string record = {};
};

/// The engine of one device. Safe for concurrent use, except for Register.
class Gemm {
 public:
  /// Errors: NOT_FOUND for a device that is not there; as Registry::Builtin.
  static Result<Gemm> Create(const GemmOptions& options = {});
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;

  /// Chooses, prepares and launches. Errors: as Describe, GemmPlan::Launch, and UNSUPPORTED with
  /// every kernel's reason when none takes the problem; FAILED_PRECONDITION when `stream` records a
  /// graph and the problem would have to be tuned first (kMeasure).
  Status Run(const GemmArgs& args, Workspace& workspace, cudaStream_t stream = nullptr);

  /// Bytes of workspace that Run on `stream` needs for this problem with today's choice.
  /// Errors: as Choose.
  Result<WorkspaceSize> RunWorkspaceSize(const GemmArgs& args, cudaStream_t stream = nullptr);

  /// Chooses and prepares once. A, U, C and D may be null here. `stream`: as in Choose. Where the
  /// choice cannot be prepared, the next candidate takes its place; explain() then says so.
  /// Errors: as Choose; the choice's own when none can be prepared.
  Result<GemmPlan> Plan(const GemmArgs& args, cudaStream_t stream = nullptr);
  /// The same with a given kernel alone. Errors: UNSUPPORTED with the kernel's reason; as
  /// Kernel::Prepare.
  Result<GemmPlan> Plan(const GemmArgs& args, const LaunchSpec& spec);

  /// Bytes that Pack fills for a plain weight, B (k, n). `format` is a PackFormat::number.
  /// Errors: INVALID_ARGUMENT for a format or layout that is none, UNSUPPORTED for a type that the
  /// format does not take.
  Result<std::size_t> PackedSize(const MatrixLayout& weight, int format) const;

  /// Packs a plain weight, both in the memory of this engine's device: the layout to give for B
  /// instead of the plain one, with `packed` for B. Whether it pays depends on the kernels that
  /// read the format (Kernel::packs); explain() compares problems. On a GPU asynchronous on
  /// `stream`. Errors: as PackedSize; INVALID_ARGUMENT for a null pointer, RESOURCE_EXHAUSTED when
  /// `bytes` is too small; as PackFormat::PackOnDevice.
  Result<MatrixLayout> Pack(const void* weight, const MatrixLayout& layout, int format,
                            void* packed, std::size_t bytes, cudaStream_t stream = nullptr) const;

  /// The plain weight again, in host memory. Errors: as Pack; UNSUPPORTED on a GPU.
  Status Unpack(const void* packed, const MatrixLayout& packed_layout, void* weight,
                const MatrixLayout& layout) const;

  /// The kernel for a problem; kMeasure tunes when there is no measured entry, until SetStop's
  /// question ends it. `stream` is the one that it is about to be launched on. Errors: UNSUPPORTED
  /// with every kernel's reason; FAILED_PRECONDITION when it would have to be tuned while `stream`
  /// records a graph; RESOURCE_EXHAUSTED when the stop came before any sample.
  Result<LaunchSpec> Choose(const GemmDesc& desc, DispatchPolicy policy = DispatchPolicy::kDefault,
                            cudaStream_t stream = nullptr);

  /// The choice and one reason for each other kernel. Measures nothing.
  Result<Explanation> explain(const GemmDesc& desc);

  /// Measures the feasible kernels on synthetic inputs in its own memory, each first checked
  /// against the reference on a poisoned output, and remembers the winner. A budget counts from the
  /// call; work predicted not to fit into the rest is not begun. Errors: UNSUPPORTED with every
  /// kernel's reason; FAILED_PRECONDITION when options.stream records a graph; RESOURCE_EXHAUSTED
  /// when the budget leaves no time for a sample of the default; as ScratchProblem::Create and
  /// Tuner::Winner.
  Result<TuneReport> Tune(const GemmDesc& desc, const TuneOptions& options = {});

  /// A function that kMeasure calls while it tunes, in Choose, Plan, Run and RunWorkspaceSize. True
  /// ends the tuning, and the best choice so far is remembered. Null for none. Called on the tuning
  /// thread; one that throws counts as true. Not while another thread uses this Gemm.
  void SetStop(std::function<bool()> stop);

  /// Feasible kernels with their parameters, best predicted first.
  std::vector<LaunchSpec> Candidates(const GemmDesc& desc) const;

  /// The problems that Choose, Plan and Run were asked for so far.
  Coverage coverage() const;

  const DeviceInfo& device() const noexcept;
  const HardwareRates& rates(DataType type) const noexcept;
  const Registry& registry() const noexcept;
  DispatchCache& cache() noexcept;

  /// Adds a kernel of the user's own; it competes from the next choice on.
  /// Errors: as Registry::Add. Not while another thread uses this Gemm.
  Status Register(std::unique_ptr<Kernel> kernel);

 private:
  struct Impl;
  Result<LaunchSpec> ChooseNow(const GemmDesc& desc, DispatchPolicy policy, cudaStream_t stream);
  // Prepares a launch of a problem that its kernel takes.
  Result<GemmPlan> Bind(const GemmArgs& args, const GemmDesc& desc, const LaunchSpec& spec);
  explicit Gemm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
