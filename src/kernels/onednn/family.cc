// onednn: products of F32 and of BF16 by oneDNN, where it is installed. culet's pool cuts D into
// parts and runs oneDNN in one thread for each: no second set of threads spins beside the pool's, a
// budget of threads holds, and a child after fork finds no team of OpenMP threads missing.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "culet/scratch.h"
#include "kernels/catalog.h"
#include "kernels/onednn/matmul.h"

namespace culet {
namespace {

using onednn::Library;

constexpr bool IsStored(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

// Measured with AMX, n = k = 4096, m = 128 to 512; assumed without: its dot products are twice as
// fast as FP32 multiply-adds.
constexpr double kAmxShare = 3.8, kAmxShareByRows = 4.4, kAvx512Bf16Share = 1.4;

class OnednnKernel final : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (!IsStored(p.d.type))
      return Feasibility::Refuse("writes float32, float16 and bfloat16 only");
    if (p.d.order != Order::kRowMajor) {
      return Feasibility::Refuse("writes D in row-major order only");
    }
    if (p.c.type != DataType::kNull && (!IsStored(p.c.type) || p.c.order != Order::kRowMajor)) {
      return Feasibility::Refuse("reads C as row-major float32, float16 or bfloat16 only");
    }
    if (p.type_bias != DataType::kNull && !IsStored(p.type_bias)) {
      return Feasibility::Refuse("reads bias as float32, float16 or bfloat16 only");
    }
    // Seen with version 3.2 on a CPU with AVX-512 BF16 and no AMX: what lies there counts times
    // zero, so an infinity or a NaN of the next row, or beyond the matrix, makes NaNs.
    if (desc().type_a == DataType::kBfloat16 && p.k % 2 != 0) {
      return Feasibility::Refuse(
          "multiplies bfloat16 in pairs along K and reads one element behind a row of odd K");
    }
    return Feasibility::Ok();
  }

  Status Probe() const override {
    const Library& library = onednn::TheLibrary();
    if (!library.ok()) return Status(StatusCode::kNotFound, library.reason);
    if (desc().type_a == DataType::kBfloat16 && !library.has(onednn::kIsaAvx512Bf16)) {
      return Status(StatusCode::kUnsupported,
                    "multiplies bfloat16 on CPUs with AVX-512 BF16 only; elsewhere oneDNN converts "
                    "it and is slower than float32");
    }
    return {};
  }

  const char* provider_version() const noexcept override {
    return onednn::TheLibrary().version.c_str();
  }

  Result<int> GetVariants(const GemmDesc& p) const override {
    return onednn::WaysFor(p, Threads(p.sm_budget)).count;
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    const int threads = Threads(p.sm_budget);
    WorkspaceSize size;
    size.partials =
        static_cast<std::size_t>(threads) * onednn::ThreadBytes(onednn::TheLibrary(), p, threads);
    return size;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int) const noexcept override {
    constexpr double kPerUs = 1e3;  // 1e9 a second, as a number a microsecond
    // Converting a weight takes as long as multiplying it, at the FP32 rate, by so many rows of A.
    // Measured on two cores with AMX, n = k = 4096, m = 16 to 512.
    const double convert_rows = desc().type_a == DataType::kBfloat16 ? 12 : 18;
    const int units = std::max(1, device.units);
    const int threads = std::min(units, Threads(p.sm_budget));
    const double share = static_cast<double>(threads) / units;
    const onednn::Way way = onednn::WaysFor(p, threads).variants[0];
    // A call of the library for each part: products of a few microseconds go to culet's own kernels.
    constexpr double kCallUs = 2;
    const double parts = way.grid.parts(), turns = std::ceil(parts / threads);
    const double imbalance = turns * threads / parts;
    const double memory_us = MinimumBytes(p) / (rates.read_gbps * info().bandwidth_share *
                                                std::min(1.0, 2 * share) * kPerUs);
    const double row_us = 2.0 * p.n * p.k / (rates.gflops * share * kPerUs);
    const double compute_us = (p.m / MatrixShare(way.by_rows) + convert_rows) * row_us;
    return std::max(info().launch_us, rates.launch_us) + kCallUs * turns +
           (memory_us + compute_us) * imbalance;
  }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int, int) override {
    auto desc = Describe(args, /*arch=*/0);
    if (!desc.ok()) return desc.status();
    const int threads = Threads(desc->sm_budget);
    return onednn::PrepareMatmul(onednn::TheLibrary(), args, *desc, threads,
                                 onednn::ThreadBytes(onednn::TheLibrary(), *desc, threads));
  }

  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    const auto prepared = Prepare(args, swizzle, splits);
    if (!prepared.ok()) return static_cast<int>(prepared.status().code());
    return (*prepared)->Launch(args.alpha, args.A, args.U, args.beta, args.C, args.D, workspace,
                               stream);
  }

 private:
  // Of the FP32 rate of the vector units. Only asked after Probe.
  double MatrixShare(bool by_rows) const noexcept {
    if (desc().type_a != DataType::kBfloat16) return info().matrix_share;
    if (!onednn::TheLibrary().has(onednn::kIsaAmx)) return kAvx512Bf16Share;
    return by_rows ? kAmxShareByRows : kAmxShare;
  }

  static int Threads(int sm_budget) noexcept {
    const int threads = HostThreads();
    return sm_budget > 0 ? std::min(sm_budget, threads) : threads;
  }
};

}  // namespace

void AddOnednn(const DeviceInfo&, KernelList& kernels) {
  const auto add = [&](const char* name, DataType type) {
    KernelDesc desc;
    desc.backend = Backend::kLibrary;
    desc.provider = "onednn";
    desc.type_a = desc.type_b = type;
    desc.determinism = Determinism::kRepeatable;
    KernelInfo info;
    info.name = name;
    info.bandwidth_share = 0.9;
    info.matrix_share = 0.78;  // F32, measured as above
    info.launch_us = 4;
    kernels.push_back(std::make_unique<OnednnKernel>(desc, std::move(info)));
  };
  add("onednn/f32", DataType::kFloat32);
  add("onednn/bf16", DataType::kBfloat16);
}

}  // namespace culet
