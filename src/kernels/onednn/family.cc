// onednn: products of F32 and of BF16 by oneDNN, where it is installed. culet's pool cuts D into
// parts and runs oneDNN in one thread for each: no second set of threads spins beside the pool's, a
// budget of threads holds, and a child after fork finds no team of OpenMP threads missing.
#include <algorithm>
#include <memory>
#include <utility>

#include "culet/scratch.h"
#include "kernels/catalog.h"
#include "kernels/onednn/matmul.h"

namespace culet {
namespace {

using onednn::Grid;
using onednn::Library;

constexpr bool IsStored(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

class OnednnKernel final : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (!IsStored(p.type_d))
      return Feasibility::Refuse("writes float32, float16 and bfloat16 only");
    if (p.order_d != Order::kRowMajor) {
      return Feasibility::Refuse("writes D in row-major order only");
    }
    if (p.type_c != DataType::kNull && (!IsStored(p.type_c) || p.order_c != Order::kRowMajor)) {
      return Feasibility::Refuse("reads C as row-major float32, float16 or bfloat16 only");
    }
    if (p.type_bias != DataType::kNull && !IsStored(p.type_bias)) {
      return Feasibility::Refuse("reads bias as float32, float16 or bfloat16 only");
    }
    // Now a plan may come of it: only here the library is loaded.
    const Library& library = onednn::TheLibrary();
    if (!library.ok()) return Feasibility::Refuse(library.reason.c_str());
    if (p.type_a == DataType::kBfloat16 && !library.has(onednn::kIsaAvx512Bf16)) {
      return Feasibility::Refuse("takes bfloat16 on CPUs with AVX-512 BF16 only");
    }
    return Feasibility::Ok();
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    const int threads = Threads(p.sm_budget);
    const Grid grid = onednn::GridFor(p.m, p.n, threads);
    WorkspaceSize size;
    size.partials = static_cast<std::size_t>(std::min(threads, grid.parts())) *
                    onednn::ThreadBytes(onednn::TheLibrary(), p, grid);
    return size;
  }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int, int) override {
    auto desc = Describe(args, /*arch=*/0);
    if (!desc.ok()) return desc.status();
    const Grid grid = onednn::GridFor(desc->m, desc->n, Threads(desc->sm_budget));
    return onednn::PrepareMatmul(onednn::TheLibrary(), args, grid,
                                 onednn::ThreadBytes(onednn::TheLibrary(), *desc, grid));
  }

  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    const auto prepared = Prepare(args, swizzle, splits);
    if (!prepared.ok()) return static_cast<int>(prepared.status().code());
    return (*prepared)->Launch(args.alpha, args.A, args.U, args.beta, args.C, args.D, workspace,
                               stream);
  }

 private:
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
    desc.type_a = desc.type_b = type;
    desc.determinism = Determinism::kRepeatable;
    KernelInfo info;
    info.name = name;
    kernels.push_back(std::make_unique<OnednnKernel>(desc, std::move(info)));
  };
  add("onednn/f32", DataType::kFloat32);
  add("onednn/bf16", DataType::kBfloat16);
}

}  // namespace culet
