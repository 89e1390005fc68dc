// Kernel: a hand-written kernel, a library call and a plain loop, all behind one interface.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/problem.h"
#include "culet/status.h"

namespace culet {

/// Yes, or a reason why not. The reason is a string literal: nothing is allocated.
class [[nodiscard]] Feasibility {
 public:
  static constexpr Feasibility Ok() noexcept { return Feasibility(nullptr); }
  /// `reason` must outlive every kernel; pass a literal.
  static constexpr Feasibility Refuse(const char* reason) noexcept { return Feasibility(reason); }

  constexpr bool ok() const noexcept { return reason_ == nullptr; }
  constexpr const char* reason() const noexcept { return reason_ != nullptr ? reason_ : ""; }

 private:
  explicit constexpr Feasibility(const char* reason) noexcept : reason_(reason) {}
  const char* reason_;
};

/// What Kernel::Prepare made: a launch with everything done that can be done once. Const, and
/// usable from several threads and streams at a time, each with its own Workspace.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  /// Returns as Kernel::Launch does. Shapes, B, V and the bias are those given to Prepare.
  virtual int Launch(float alpha, const void* A, const void* U, float beta, const void* C, void* D,
                     Workspace& workspace, cudaStream_t stream) const noexcept = 0;
  /// The same with D's scales at W instead of where the plan has them (Operation::quant_d). Kernels
  /// whose epilogues make scales override it; the default returns UNSUPPORTED.
  virtual int LaunchTo(void* W, float alpha, const void* A, const void* U, float beta,
                       const void* C, void* D, Workspace& workspace,
                       cudaStream_t stream) const noexcept;
};

/// The base of all kernels. Implement Launch, GetMaxSwizzle and GetMaxSplits, and override `why`
/// to add what KernelDesc cannot say. docs/adding-a-kernel.md walks through one.
/// Exceptions: what Launch, Prepare, Probe, GetVariants, GetMaxSwizzle and GetMaxSplits throw
/// becomes an INTERNAL error that names the kernel, and the kernel no candidate. `noexcept` members
/// must not throw.
class Kernel {
 public:
  Kernel(KernelDesc desc, KernelInfo info);
  virtual ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Runs the product. `swizzle` is the log2 of the tile rasterisation, `splits` the parts of K.
  /// Requires: is_feasible, and a workspace of workspace_size(). Asynchronous on `stream` where
  /// the device is a GPU, complete on return on the CPU.
  /// Returns 0, a positive StatusCode, or a negated cudaError_t of the launch call itself.
  virtual int Launch(const Operation& operation, float alpha,               //
                     const void* A, const MatrixLayout& Adesc,              //
                     const void* U, const MatrixLayout& Udesc,              //
                     const void* B, const MatrixLayout& Bdesc,              //
                     const void* V, const MatrixLayout& Vdesc,              //
                     float beta, const void* C, const MatrixLayout& Cdesc,  //
                     void* D, const MatrixLayout& Ddesc,                    //
                     int swizzle, int splits, Workspace& workspace, cudaStream_t stream) = 0;

  /// Does once what Launch would do every time. The default keeps the arguments and calls Launch.
  virtual Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                          int splits);

  /// Whether this kernel computes the problem: why(desc).ok().
  virtual bool is_feasible(const GemmDesc& desc) const noexcept;

  /// Ok, or the reason for the refusal. Every precondition of Launch lives here. The base compares
  /// what KernelDesc states: arch, types, scales, epilogue, determinism, packs, striding.
  virtual Feasibility why(const GemmDesc& desc) const noexcept;

  /// The packed formats of B that the kernel reads beside plain ones (PackFormat::number); none by
  /// default.
  virtual std::span<const int> packs() const noexcept;

  /// The largest useful swizzle for `shape` = (m, n, k, num).
  virtual int GetMaxSwizzle(const int4& shape) const = 0;

  /// The most parts K may be cut into with `bsize` bytes of barriers and `psize` of partials.
  virtual int GetMaxSplits(const int4& shape, int swizzle, std::size_t bsize,
                           std::size_t psize) const = 0;

  /// How many variants a launch of this problem has, counted from 0: a choice of the kernel's own
  /// beyond swizzle and splits, such as a library's algorithm. Variant 0 is what the kernel expects
  /// to be fastest. Asked when a problem is chosen or tuned, never when it is launched: it may
  /// allocate and ask a library's heuristic. Launch and Prepare find the variant in
  /// Operation::variant.
  /// Requires: is_feasible and available(). Errors: why there is none, e.g. that a library's
  /// heuristic gives no algorithm; the kernel is no candidate then.
  virtual Result<int> GetVariants(const GemmDesc& desc) const;

  /// Makes sure of what `why` cannot look for because it neither allocates nor fails: loads a
  /// library, compares its version. Errors: why the kernel cannot run in this process, for people;
  /// it is no candidate then. May be called by several threads at once. See available().
  virtual Status Probe() const;

  /// The version of the library that computes, as text that outlives the kernel; "" for a kernel
  /// that needs none. A variant means something for one version only, so the cache keeps both.
  /// Requires: available().
  virtual const char* provider_version() const noexcept;

  /// Workspace that a launch needs, whatever its variant; nothing by default.
  virtual WorkspaceSize workspace_size(const GemmDesc& desc, int swizzle,
                                       int splits) const noexcept;

  /// Predicted microseconds. The base turns KernelInfo's shares into a roofline with waves and
  /// per-tile overhead; a family that knows better overrides it.
  virtual double PredictUs(const GemmDesc& desc, const DeviceInfo& device,
                           const HardwareRates& rates, int swizzle, int splits) const noexcept;

  /// The result of Probe, which is called once in a kernel's life: when a problem that `why` allows
  /// is planned, tuned or explained, or a cache that names the kernel is read. INTERNAL with its
  /// words if it throws.
  const Status& available() const;

  /// Makes available() say `reason` without probing. Errors: FAILED_PRECONDITION when it was asked
  /// before.
  Status LeaveOut(Status reason);

  const KernelDesc& desc() const noexcept { return desc_; }
  const KernelInfo& info() const noexcept { return info_; }
  /// The stable id: key of caches, argument of the CLI, name in tests and benchmarks.
  const std::string& id() const noexcept { return info_.name; }

 protected:
  KernelDesc desc_;
  KernelInfo info_;

 private:
  mutable std::atomic<const Status*> available_ = nullptr;  // owned
};

/// A Kernel that takes its arguments as one struct. Most kernels derive from this.
class ArgsKernel : public Kernel {
 public:
  using Kernel::Kernel;
  int Launch(const Operation& operation, float alpha, const void* A, const MatrixLayout& Adesc,
             const void* U, const MatrixLayout& Udesc, const void* B, const MatrixLayout& Bdesc,
             const void* V, const MatrixLayout& Vdesc, float beta, const void* C,
             const MatrixLayout& Cdesc, void* D, const MatrixLayout& Ddesc, int swizzle, int splits,
             Workspace& workspace, cudaStream_t stream) final;

  /// As Launch.
  virtual int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
                  cudaStream_t stream) = 0;

  int GetMaxSwizzle(const int4&) const override { return 0; }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override { return 1; }
};

/// The Status of a Launch return value; `kernel` gives the id for the message.
Status LaunchStatus(int code, const Kernel& kernel);

/// Kernel::Launch with the fields of `args`, and its return value or exception as a Status.
Status LaunchKernel(Kernel& kernel, const GemmArgs& args, int swizzle, int splits,
                    Workspace& workspace, cudaStream_t stream);

/// Kernel::Prepare. Errors: as it returns; INTERNAL when it throws or gives nothing.
Result<std::unique_ptr<PreparedKernel>> PrepareKernel(Kernel& kernel, const GemmArgs& args,
                                                      int swizzle, int splits);

/// Kernel::GetMaxSwizzle and Kernel::GetMaxSplits. Errors: INTERNAL when they throw.
Result<int> MaxSwizzle(const Kernel& kernel, const int4& shape);
Result<int> MaxSplits(const Kernel& kernel, const int4& shape, int swizzle, std::size_t bsize,
                      std::size_t psize);

/// Kernel::GetVariants. Errors: as it returns; UNSUPPORTED when it gives none; INTERNAL when it
/// throws.
Result<int> Variants(const Kernel& kernel, const GemmDesc& problem);

/// Whether the kernel takes the problem and is available(): WhyNot(...).empty(), without words.
bool Takes(const Kernel& kernel, const GemmDesc& problem);

/// Why the kernel does not take the problem, or is not available(); empty when it does. A twin made
/// by transpose() speaks of D^T = B^T A^T, where rows are columns and A is B, and says so.
std::string WhyNot(const Kernel& kernel, const GemmDesc& problem);

/// Where a LaunchSpec's time comes from.
enum class Origin : std::uint8_t { kPredicted = 0, kMeasured = 1 };
const char* ToString(Origin) noexcept;

/// A kernel with its parameters, and what is known of its speed.
struct LaunchSpec {
  Kernel* kernel = nullptr;
  int swizzle = 0;
  int splits = 1;
  double time_us = 0;      ///< median, or the prediction
  double spread_us = 0;    ///< half the interquartile range of the samples
  double baseline_us = 0;  ///< the default choice's median in the same run
  Origin origin = Origin::kPredicted;
  std::int64_t when = 0;  ///< Unix seconds of the measurement
  /// Where the problem allows programmatic dependent launch (GemmDesc::pdl): launched without.
  bool serial = false;
  int variant = 0;  ///< below Kernel::GetVariants; means something for one provider_version() only
};

/// Whether the samples scattered so widely that their median says nothing: by more than itself.
/// Such an entry still serves, but is no anchor of predictions, never replaces a sound one, and
/// Gemm::Tune measures it again.
constexpr bool IsNoisy(double time_us, double spread_us) noexcept { return spread_us > time_us; }
constexpr bool IsNoisy(const LaunchSpec& spec) noexcept {
  return spec.origin == Origin::kMeasured && IsNoisy(spec.time_us, spec.spread_us);
}

/// Whether two specs launch the same kernel with the same parameters, whatever is known of their
/// speed.
constexpr bool SameLaunch(const LaunchSpec& a, const LaunchSpec& b) noexcept {
  return a.kernel == b.kernel && a.swizzle == b.swizzle && a.splits == b.splits &&
         a.serial == b.serial && a.variant == b.variant;
}

/// `problem` as `spec` launches it: without pdl where it is serial.
inline GemmDesc AsLaunched(GemmDesc problem, const LaunchSpec& spec) noexcept {
  problem.pdl = problem.pdl && !spec.serial;
  return problem;
}

/// `operation` as `spec` launches it: with its variant, and without pdl where it is serial.
inline Operation AsLaunched(Operation operation, const LaunchSpec& spec) noexcept {
  operation.pdl = operation.pdl && !spec.serial;
  operation.variant = spec.variant;
  return operation;
}

/// Groups specs whose kernels share tile, cluster, stages, backend and transposition and whose
/// splits and variants are equal; groups and members keep their order. A tuner measures one of each
/// group first.
std::vector<std::vector<LaunchSpec>> Cluster(std::span<const LaunchSpec> specs);

/// `kernel` computing D^T = B^T A^T: a kernel good at tall A serves wide A. `kernel` must outlive
/// the wrapper. The id is the kernel's with "/t" behind it.
std::unique_ptr<Kernel> transpose(Kernel& kernel);

}  // namespace culet
