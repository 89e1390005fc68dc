#include "kernels/cublaslt/lt_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/device_scope.h"
#include "cuda/relaxed_capture.h"

namespace culet::lt {
namespace {

// Problems whose size varies freely must not grow the memory of algorithms for ever.
constexpr std::size_t kMostRemembered = 4096;

// What the library's epilogues read at once; no class of a GemmDesc says where a bias lies.
constexpr int kBiasAlignment = 16;

class PreparedLt final : public PreparedKernel {
 public:
  explicit PreparedLt(const LtLaunch& launch) : launch_(launch) {}

  int Launch(float alpha, const void* A, const void* U, float beta, const void* C, void* D,
             Workspace& workspace, cudaStream_t stream) const noexcept override {
    return launch_.Start({alpha, beta, A, U, C, D}, workspace, stream);
  }

 private:
  const LtLaunch launch_;
};

KernelDesc DescOf(const Format& format, int arch) {
  KernelDesc desc;
  desc.backend = Backend::kLibrary;
  desc.provider = "cublaslt";
  desc.arch = arch;
  desc.type_a = desc.type_b = format.type;
  desc.quant_a = format.scaling.quant_a;
  desc.quant_b = format.scaling.quant_b;
  desc.determinism = Determinism::kRepeatable;
  if (format.type == DataType::kFloat8_e4m3) {
    // The tensor core's own bits; without fast accumulation sums move to FP32 as culet's do.
    desc.accumulator_bits = 14;
    desc.promotion_k = 128;
  }
  return desc;
}

KernelInfo InfoOf(const Format& format) {
  KernelInfo info;
  info.name = format.id;
  info.launch_us = format.costs.launch_us;
  info.bandwidth_share = format.costs.bandwidth_share;
  info.matrix_share = format.costs.matrix_share;
  return info;
}

std::size_t BiasBytes(const GemmDesc& problem) noexcept {
  const int length = problem.bias_axis == Bias::Axis::kN ? problem.n : problem.m;
  return static_cast<std::size_t>(length) * SizeOf(problem.type_bias);
}

// What does not change which algorithms the library offers.
GemmDesc Canonical(GemmDesc problem) noexcept {
  problem.batch_dim = 0;
  problem.pdl = false;
  problem.determinism = Determinism::kFast;
  problem.a.scale_order = problem.b.scale_order = Order::kRowMajor;
  problem.a.scale_align = problem.b.scale_align = 16;
  return problem;
}

}  // namespace

LtKernel::LtKernel(const Format& format, const DeviceInfo& device, LibrarySource source)
    : ArgsKernel(DescOf(format, device.arch), InfoOf(format)),
      format_(format),
      ordinal_(device.ordinal),
      source_(source) {}

Feasibility LtKernel::why(const GemmDesc& problem) const noexcept {
  if (const Feasibility base = Kernel::why(problem); !base.ok()) return base;
  return WhyNot(format_, problem);
}

Status LtKernel::Probe() const {
  const auto library = source_();
  if (!library.ok()) return library.status();
  if ((*library)->version() < format_.reach.least_version) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("cuBLASLt {} ({}) is too old for these scales; {} is the oldest that "
                              "has them",
                              (*library)->version_text(), (*library)->file(),
                              VersionText(format_.reach.least_version)));
  }
  const DeviceScope scope(ordinal_);
  return HandleOf(**library).status();
}

const char* LtKernel::provider_version() const noexcept {
  const auto library = source_();
  return library.ok() ? (*library)->version_text().c_str() : "";
}

Result<Handle> LtKernel::HandleOf(Library& library) const {
  const RelaxedCapture relaxed;
  return library.HandleOf(ordinal_);
}

Result<std::shared_ptr<LtKernel::Offer>> LtKernel::OfferOf(const GemmDesc& problem) const {
  const GemmDesc key = Canonical(problem);
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = offers_.find(key); it != offers_.end()) return it->second;
  }
  const auto library = source_();
  if (!library.ok()) return library.status();
  const DeviceScope scope(ordinal_);
  const RelaxedCapture relaxed;
  const auto handle = HandleOf(**library);
  if (!handle.ok()) return handle.status();
  const auto made = MakeProblem(**library, format_, key, PackedStrides(key));
  if (!made.ok()) return made.status();
  const auto preference = MakePreference(**library, key);
  if (!preference.ok()) return preference.status();
  auto found = FindAlgorithms(**library, *handle, *made, *preference);
  if (!found.ok()) return found.status();
  auto offer = std::make_shared<Offer>();
  offer->algorithms = *std::move(found);
  const std::lock_guard lock(mutex_);
  if (offers_.size() >= kMostRemembered) offers_.clear();
  return offers_.emplace(key, std::move(offer)).first->second;
}

Result<int> LtKernel::GetVariants(const GemmDesc& problem) const {
  const auto offer = OfferOf(problem);
  if (!offer.ok()) return offer.status();
  return static_cast<int>((*offer)->algorithms.size());
}

WorkspaceSize LtKernel::workspace_size(const GemmDesc& problem, int, int) const noexcept {
  WorkspaceSize size;
  size.partials = PartialBytes(ScalesOf(format_, problem, {}, {}), BiasBytes(problem));
  return size;
}

double LtKernel::PredictUs(const GemmDesc& p, const DeviceInfo&, const HardwareRates& rates, int,
                           int) const noexcept {
  const double a = static_cast<double>(p.m) * p.k * SizeOf(p.a.type);
  const double b = static_cast<double>(p.n) * p.k * SizeOf(p.b.type);
  const double d = static_cast<double>(p.m) * p.n * (SizeOf(p.d.type) + SizeOf(p.c.type));
  const double memory_us = (a + b + d) / (rates.read_gbps * 1e3 * info().bandwidth_share);
  const double compute_us =
      2.0 * p.m * p.n * (p.k + format_.costs.tile_k) / (rates.gflops * 1e3 * info().matrix_share);
  // Loads and products overlap but for a tile's begin and end, which count where K is short.
  return info().launch_us + std::max(memory_us, compute_us) + 0.3 * std::min(memory_us, compute_us);
}

Result<LtLaunch> LtKernel::MakeLaunch(const GemmArgs& args) const {
  const auto problem = Describe(args, desc().arch);
  if (!problem.ok()) return problem.status();
  const auto offer = OfferOf(*problem);
  if (!offer.ok()) return offer.status();
  return MakeLaunch(args, *problem, **offer);
}

Result<LtLaunch> LtKernel::MakeLaunch(const GemmArgs& args, const GemmDesc& problem,
                                      const Offer& offer) const {
  const auto& algorithms = offer.algorithms;
  const int variant = args.operation.variant;
  if (variant < 0 || variant >= static_cast<int>(algorithms.size())) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: variant is {}, but the library offers {} algorithms", id(),
                              variant, algorithms.size()));
  }
  const auto library = source_();
  if (!library.ok()) return library.status();
  const auto handle = HandleOf(**library);
  if (!handle.ok()) return handle.status();
  const auto made = MakeProblem(**library, format_, problem, StridesOf(args));
  if (!made.ok()) return made.status();

  LtLaunch launch;
  launch.library = *library;
  launch.handle = *handle;
  launch.problem = *made;
  launch.algorithm = algorithms[static_cast<std::size_t>(variant)];
  launch.scales = ScalesOf(format_, problem, args.Udesc, args.Vdesc);
  launch.scaled = IsScaled(format_);
  launch.has_c = args.beta != 0.0f;
  launch.b = args.B;
  launch.v = args.V;
  launch.bias_bytes = BiasBytes(problem);
  Pointers pointers;
  const void* const bias = args.operation.bias.data;
  const bool aligned = reinterpret_cast<std::uintptr_t>(bias) % kBiasAlignment == 0;
  (aligned ? pointers.bias : launch.bias) = bias;
  CULET_RETURN_IF_ERROR((*library)->StatusOf(
      SetPointers((*library)->functions(), made->swapped, pointers, &launch.problem.operation),
      "cublasLtMatmulDescSetAttribute"));
  CULET_RETURN_IF_ERROR(CheckAlgorithm(**library, *handle, launch.problem, launch.algorithm));
  return launch;
}

Result<LtLaunch> LtKernel::MakeRehearsed(const GemmArgs& args) const {
  const auto problem = Describe(args, desc().arch);
  if (!problem.ok()) return problem.status();
  const auto offer = OfferOf(*problem);
  if (!offer.ok()) return offer.status();
  auto launch = MakeLaunch(args, *problem, **offer);
  if (!launch.ok()) return launch;
  const std::uint32_t bit = std::uint32_t{1} << args.operation.variant;
  if (((*offer)->rehearsed.load(std::memory_order_acquire) & bit) == 0) {
    CULET_RETURN_IF_ERROR(launch->Rehearse());
    (*offer)->rehearsed.fetch_or(bit, std::memory_order_release);
  }
  return launch;
}

Result<std::unique_ptr<PreparedKernel>> LtKernel::Prepare(const GemmArgs& args, int, int) {
  const DeviceScope scope(ordinal_);
  const auto launch = MakeRehearsed(args);
  if (!launch.ok()) return launch.status();
  return std::unique_ptr<PreparedKernel>(std::make_unique<PreparedLt>(*launch));
}

int LtKernel::Run(const GemmArgs& args, int, int, Workspace& workspace, cudaStream_t stream) {
  const auto launch = MakeRehearsed(args);
  if (!launch.ok()) return static_cast<int>(launch.status().code());
  return launch->Start({args.alpha, args.beta, args.A, args.U, args.C, args.D}, workspace, stream);
}

std::vector<std::unique_ptr<Kernel>> LtKernels(const DeviceInfo& device, LibrarySource source) {
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const Format& format : Formats()) {
    if (device.arch < format.reach.least_arch || device.arch > format.reach.most_arch) continue;
    kernels.push_back(std::make_unique<LtKernel>(format, device, source));
  }
  return kernels;
}

}  // namespace culet::lt
