#include "culet/kernel.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/caught.h"
#include "base/log.h"
#include "base/made_once.h"

namespace culet {
namespace {

// What a launch that threw returns: no StatusCode and no cudaError_t. The words follow on the side,
// since a launch's return value has no room for them; in fixed memory, since a thread-local object
// with a destructor needs memory to begin, and the C library ends a process that has none.
constexpr int kThrew = 1 << 30;
constexpr std::size_t kMostWords = 256;
thread_local char thrown_words[kMostWords];

Status StatusOf(const Thrown& thrown, const Kernel& kernel, const char* function) {
  return thrown.StatusOf(fmt::format("{}: {}", kernel.id(), function));
}

template <class Launch>
int CaughtLaunch(Launch launch) {
  return Caught(launch, [](const Thrown& thrown) {
    if (thrown.code != StatusCode::kInternal) return static_cast<int>(thrown.code);
    const std::size_t length = std::min(std::strlen(thrown.words), kMostWords - 1);
    std::memcpy(thrown_words, thrown.words, length);
    thrown_words[length] = '\0';
    return kThrew;
  });
}

// What the default Prepare returns: the arguments, kept, and a call of Launch.
class KeptArguments final : public PreparedKernel {
 public:
  KeptArguments(Kernel& kernel, const GemmArgs& args, int swizzle, int splits)
      : kernel_(kernel), args_(args), swizzle_(swizzle), splits_(splits) {}

  int Launch(float alpha, const void* A, const void* U, float beta, const void* C, void* D,
             Workspace& workspace, cudaStream_t stream) const noexcept override {
    return LaunchTo(args_.operation.quant_d.scales, alpha, A, U, beta, C, D, workspace, stream);
  }
  int LaunchTo(void* W, float alpha, const void* A, const void* U, float beta, const void* C,
               void* D, Workspace& workspace, cudaStream_t stream) const noexcept override {
    return CaughtLaunch([&] {
      Operation operation = args_.operation;
      operation.quant_d.scales = W;
      return kernel_.Launch(operation, alpha, A, args_.Adesc, U, args_.Udesc, args_.B, args_.Bdesc,
                            args_.V, args_.Vdesc, beta, C, args_.Cdesc, D, args_.Ddesc, swizzle_,
                            splits_, workspace, stream);
    });
  }

 private:
  Kernel& kernel_;
  GemmArgs args_;
  int swizzle_;
  int splits_;
};

}  // namespace

int PreparedKernel::LaunchTo(void*, float, const void*, const void*, float, const void*, void*,
                             Workspace&, cudaStream_t) const noexcept {
  return static_cast<int>(StatusCode::kUnsupported);
}

Kernel::Kernel(KernelDesc desc, KernelInfo info) : desc_(desc), info_(std::move(info)) {}
Kernel::~Kernel() { delete available_.load(); }

bool Kernel::is_feasible(const GemmDesc& desc) const noexcept { return why(desc).ok(); }

Feasibility Kernel::why(const GemmDesc& problem) const noexcept {
  const auto differs = [](DataType wanted, DataType given) {
    return wanted != DataType::kNull && wanted != given;
  };
  if (problem.arch != desc_.arch) return Feasibility::Refuse("runs on another architecture");
  if (differs(desc_.type_a, problem.a.type)) return Feasibility::Refuse("A has another type");
  if (differs(desc_.type_b, problem.b.type)) return Feasibility::Refuse("B has another type");
  if (differs(desc_.type_d, problem.d.type)) return Feasibility::Refuse("D has another type");
  // "Any type" does not include elements that share a byte, which came later.
  const bool reads_any = desc_.backend == Backend::kReference;
  if ((IsSubByte(problem.a.type) && desc_.type_a == DataType::kNull && !reads_any) ||
      (IsSubByte(problem.b.type) && desc_.type_b == DataType::kNull && !reads_any)) {
    return Feasibility::Refuse("takes no elements of 4 bits");
  }
  // Nor integers of 8 bits. Kernels of such weights ask for a plain type in their place.
  if ((problem.a.type == DataType::kInt8 || problem.b.type == DataType::kInt8) && !reads_any &&
      desc_.type_a != DataType::kInt8 && desc_.type_b != DataType::kInt8) {
    return Feasibility::Refuse("takes no elements of int8");
  }
  if (desc_.type_a != DataType::kNull && desc_.quant_a != problem.a.quant) {
    return Feasibility::Refuse("A's scales have another granularity");
  }
  if (desc_.type_b != DataType::kNull && desc_.quant_b != problem.b.quant) {
    return Feasibility::Refuse("B's scales have another granularity");
  }
  if (!desc_.any_epilogue && desc_.epilogue != problem.epilogue) {
    return Feasibility::Refuse("has no such epilogue");
  }
  if (problem.gate_order != GateOrder::kEights && !desc_.gate_halves) {
    return Feasibility::Refuse("takes gate and up by eights, not one behind the other");
  }
  if (desc_.accumulator_bits < 24 && desc_.promotion_k == 0 &&
      problem.accumulate == Accumulate::kPromoted) {
    return Feasibility::Refuse("keeps fewer than 24 bits over all of K; accumulate=fast allows it");
  }
  if (desc_.accumulator_bits < 24 && problem.accumulate == Accumulate::kFull) {
    return Feasibility::Refuse("keeps fewer than 24 bits of a sum; accumulate=promoted allows it");
  }
  if (desc_.determinism < problem.determinism) {
    return Feasibility::Refuse("does not keep the determinism asked for");
  }
  if (problem.group_axis >= 0 && !desc_.grouped) {
    return Feasibility::Refuse("takes flat matrices, no groups");
  }
  if (problem.group_axis < 0 && desc_.grouped) {
    return Feasibility::Refuse("computes grouped products alone");
  }
  if (problem.num != 1 && !desc_.strided_batch && !desc_.grouped) {
    return Feasibility::Refuse("takes one matrix, no batch");
  }
  for (const OperandDesc* operand : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    if (operand->striding != Striding::kFlat && !desc_.grouped) {
      return Feasibility::Refuse("takes flat matrices, no groups");
    }
    const bool weight = operand == &problem.b;
    if ((operand->pack != 0 && !weight) || operand->scale_pack != 0) {
      return Feasibility::Refuse("takes packed weights in place of B alone");
    }
    if (operand->pack != 0 && std::ranges::find(packs(), operand->pack) == packs().end()) {
      return Feasibility::Refuse("reads no weights of this packed format");
    }
    if (operand->zero_type != DataType::kNull && !desc_.zero_points) {
      return Feasibility::Refuse("takes no zero points");
    }
  }
  return Feasibility::Ok();
}

Result<std::unique_ptr<PreparedKernel>> Kernel::Prepare(const GemmArgs& args, int swizzle,
                                                        int splits) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<KeptArguments>(*this, args, swizzle, splits));
}

std::span<const int> Kernel::packs() const noexcept { return {}; }

Result<int> Kernel::GetVariants(const GemmDesc&) const { return 1; }

Status Kernel::Probe() const { return {}; }

const char* Kernel::provider_version() const noexcept { return ""; }

const Status& Kernel::available() const {
  const auto failed = [&](const Thrown& thrown) -> Status {
    // A want of memory may pass, and what is made here stays.
    if (thrown.code == StatusCode::kResourceExhausted) throw;
    return StatusOf(thrown, *this, "Probe");
  };
  const bool known = available_.load(std::memory_order_acquire) != nullptr;
  const Status& said = MadeOnce(available_, [&] {
    return std::make_unique<const Status>(Caught([&] { return Probe(); }, failed));
  });
  if (!known && !said.ok()) {
    Log(LogLevel::kInfo, "{} is not available: {}", id(), said.message());
  } else if (!known && *provider_version() != '\0') {
    Log(LogLevel::kInfo, "{} runs on {} {}", id(), desc().provider, provider_version());
  }
  return said;
}

Status Kernel::LeaveOut(Status reason) {
  auto given = std::make_unique<const Status>(std::move(reason));
  const Status* known = nullptr;
  if (!available_.compare_exchange_strong(known, given.get())) {
    return Status(StatusCode::kFailedPrecondition,
                  id() + ": asked before whether it is available; leave it out first");
  }
  static_cast<void>(given.release());
  return {};
}

WorkspaceSize Kernel::workspace_size(const GemmDesc&, int, int) const noexcept { return {}; }

int ArgsKernel::Launch(const Operation& operation, float alpha, const void* A,
                       const MatrixLayout& Adesc, const void* U, const MatrixLayout& Udesc,
                       const void* B, const MatrixLayout& Bdesc, const void* V,
                       const MatrixLayout& Vdesc, float beta, const void* C,
                       const MatrixLayout& Cdesc, void* D, const MatrixLayout& Ddesc, int swizzle,
                       int splits, Workspace& workspace, cudaStream_t stream) {
  const GemmArgs args{operation, alpha, A,    Adesc, U,     Udesc, B,    Bdesc,
                      V,         Vdesc, beta, C,     Cdesc, D,     Ddesc};
  return Run(args, swizzle, splits, workspace, stream);
}

Status LaunchStatus(int code, const Kernel& kernel) {
  if (code == 0) return {};
  if (code == kThrew) return StatusOf({StatusCode::kInternal, thrown_words}, kernel, "Launch");
  if (code < 0) {
    return Status(StatusCode::kInternal,
                  kernel.id() + ": the CUDA launch failed with error " + std::to_string(-code));
  }
  if (code > static_cast<int>(StatusCode::kInternal)) {
    return Status(StatusCode::kInternal,
                  fmt::format("{}: Launch returned {}, which is no StatusCode", kernel.id(), code));
  }
  return Status(static_cast<StatusCode>(code), kernel.id() + " refused the launch (" +
                                                   ToString(static_cast<StatusCode>(code)) + ")");
}

Status LaunchKernel(Kernel& kernel, const GemmArgs& args, int swizzle, int splits,
                    Workspace& workspace, cudaStream_t stream) {
  const int code = CaughtLaunch([&] {
    return kernel.Launch(args.operation, args.alpha, args.A, args.Adesc, args.U, args.Udesc, args.B,
                         args.Bdesc, args.V, args.Vdesc, args.beta, args.C, args.Cdesc, args.D,
                         args.Ddesc, swizzle, splits, workspace, stream);
  });
  return code == 0 ? Status() : LaunchStatus(code, kernel);
}

Result<std::unique_ptr<PreparedKernel>> PrepareKernel(Kernel& kernel, const GemmArgs& args,
                                                      int swizzle, int splits) {
  using Prepared = Result<std::unique_ptr<PreparedKernel>>;
  Prepared prepared =
      Caught([&] { return kernel.Prepare(args, swizzle, splits); },
             [&](const Thrown& thrown) { return Prepared(StatusOf(thrown, kernel, "Prepare")); });
  if (prepared.ok() && *prepared == nullptr) {
    return Status(StatusCode::kInternal, kernel.id() + ": Prepare gave no launch");
  }
  return prepared;
}

Result<int> MaxSwizzle(const Kernel& kernel, const int4& shape) {
  return Caught(
      [&] { return Result<int>(kernel.GetMaxSwizzle(shape)); },
      [&](const Thrown& thrown) { return Result<int>(StatusOf(thrown, kernel, "GetMaxSwizzle")); });
}

Result<int> MaxSplits(const Kernel& kernel, const int4& shape, int swizzle, std::size_t bsize,
                      std::size_t psize) {
  return Caught(
      [&] { return Result<int>(kernel.GetMaxSplits(shape, swizzle, bsize, psize)); },
      [&](const Thrown& thrown) { return Result<int>(StatusOf(thrown, kernel, "GetMaxSplits")); });
}

Result<int> Variants(const Kernel& kernel, const GemmDesc& problem) {
  auto variants = Caught(
      [&] { return kernel.GetVariants(problem); },
      [&](const Thrown& thrown) { return Result<int>(StatusOf(thrown, kernel, "GetVariants")); });
  if (variants.ok() && *variants < 1) {
    return Status(StatusCode::kUnsupported, kernel.id() + ": has no variant for this problem");
  }
  return variants;
}

bool Takes(const Kernel& kernel, const GemmDesc& problem) {
  return kernel.is_feasible(problem) && kernel.available().ok();
}

std::string WhyNot(const Kernel& kernel, const GemmDesc& problem) {
  const Feasibility feasible = kernel.why(problem);
  if (feasible.ok()) {
    const Status& available = kernel.available();
    return available.ok() ? std::string() : available.message();
  }
  return kernel.desc().transpose ? fmt::format("for D^T = B^T A^T: {}", feasible.reason())
                                 : feasible.reason();
}

}  // namespace culet
