// Products by codes for many rows of A: the weight becomes 16-bit numbers, a piece at a time, and a
// dense kernel multiplies each piece. That takes 2.5 bytes a weight more, which many rows hide.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/scales.h"
#include "kernels/catalog.h"
#include "kernels/cuda/codes.h"
#include "kernels/cuda_ops/ops.h"

namespace culet {
namespace {

constexpr int kLeastArch = 800;
constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;  // of a weight as numbers
constexpr int kPieceColumns = 256;                            // pieces are a multiple

// What a piece adds to its product: a launch, and bytes that go through the cache.
constexpr double kPieceUs = 3.0, kPieceGbps = 3500;

// Significant bits of a number that a weight is rounded to, less one for the rounding itself.
constexpr int kBits = 9;

int ColumnsOfPiece(int n, int k) noexcept {
  const std::int64_t fits = kPieceBytes / (std::int64_t{k} * 2 * kPieceColumns);
  const std::int64_t all = (n - 1) / kPieceColumns + 1;
  return static_cast<int>(std::clamp<std::int64_t>(fits, 1, all)) * kPieceColumns;
}

// The dense product of a piece of `columns` columns.
GemmDesc InnerDesc(const GemmDesc& p, int columns) noexcept {
  GemmDesc inner = p;
  inner.n = columns;
  inner.b = OperandDesc{.order = Order::kColMajor, .scale_order = Order::kColMajor};
  inner.b.type = p.a.type;
  inner.pdl = false;  // the kernel before writes B
  return inner;
}

// Its arguments: B is at `numbers`, the piece begins at column `first`.
GemmArgs InnerArgs(const GemmArgs& args, const void* numbers, int first, int columns) {
  const auto advanced = [&](auto* data, const MatrixLayout& layout) -> decltype(data) {
    if (data == nullptr || layout.type == DataType::kNull) return data;
    const std::int64_t elements = layout.order == Order::kRowMajor ? first : first * layout.ld;
    using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(data)>>,
                                     const std::byte*, std::byte*>;
    return reinterpret_cast<Bytes>(data) +
           elements * static_cast<std::int64_t>(SizeOf(layout.type));
  };
  GemmArgs inner = args;
  inner.operation.quant_b = {};
  inner.operation.zero_b = {};
  inner.operation.pdl = inner.operation.pdl_chain = false;
  inner.V = nullptr;
  inner.Vdesc = {};
  inner.B = numbers;
  inner.Bdesc = ColMajor(args.Adesc.type, args.Bdesc.rows, columns);
  inner.C = advanced(args.C, args.Cdesc);
  inner.D = advanced(args.D, args.Ddesc);
  inner.Ddesc.cols = columns;
  if (inner.Cdesc.type != DataType::kNull) inner.Cdesc.cols = columns;
  Bias& bias = inner.operation.bias;
  if (bias.data != nullptr && bias.axis == Bias::Axis::kN) {
    bias.data = static_cast<const std::byte*>(bias.data) +
                first * static_cast<std::int64_t>(SizeOf(bias.type));
  }
  return inner;
}

cuda_ops::CodesWeight WeightOf(const GemmArgs& args) {
  const bool rows = args.Vdesc.order == Order::kRowMajor;
  cuda_ops::CodesWeight weight;
  weight.data = args.B;
  weight.scales = args.V;
  weight.zeros = args.operation.zero_b.data;
  weight.type = args.Bdesc.type;
  weight.scales_type = args.Vdesc.type;
  weight.zeros_type = args.operation.zero_b.type;
  weight.rows = args.Bdesc.cols;
  weight.cols = args.Bdesc.rows;
  const ScaleGroup group = ScaleGroupOf(args.operation.quant_b, args.Bdesc.cols, args.Bdesc.rows);
  weight.group = group.k;
  weight.group_rows = group.outer;
  weight.row_bytes = BytesOf(args.Bdesc.type, args.Bdesc.ld);
  weight.scale_row = rows ? 1 : args.Vdesc.ld;
  weight.scale_column = rows ? args.Vdesc.ld : 1;
  return weight;
}

class AsNumbers final : public ArgsKernel {
 public:
  AsNumbers(std::vector<ArgsKernel*> dense, const DeviceInfo& device, KernelDesc desc,
            KernelInfo info)
      : ArgsKernel(std::move(desc), std::move(info)), dense_(std::move(dense)), device_(device) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (p.a.type != desc().type_a) return Feasibility::Refuse("A is of another 16-bit type");
    const bool blocks = p.b.type == DataType::kFloat8_e4m3;
    if (!IsCode(p.b.type) && !blocks) {
      return Feasibility::Refuse("takes codes of 4 and 8 bits");
    }
    if (const Feasibility codes = WhyNotCodes(p, kGroupStep, blocks); !codes.ok()) return codes;
    GemmDesc plain = WithoutCodes(p);
    plain.b.type = desc().type_b;
    if (const Feasibility base = Kernel::why(plain); !base.ok()) return base;
    if (Best(p, TypicalRates(device_, p.a.type)).kernel == nullptr) {
      return Feasibility::Refuse("no dense kernel takes the product");
    }
    return Feasibility::Ok();
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    WorkspaceSize size;
    size.partials = static_cast<std::size_t>(ColumnsOfPiece(p.n, p.k)) *
                    static_cast<std::size_t>(p.k) * SizeOf(p.a.type);
    return size;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo&, const HardwareRates& rates, int,
                   int) const noexcept override {
    const double columns = ColumnsOfPiece(p.n, p.k);
    const double bytes = (BitsOf(p.b.type) / 8.0 + static_cast<double>(SizeOf(p.a.type))) * p.k;
    const double piece = Best(p, rates).us + kPieceUs + bytes * columns / (kPieceGbps * 1e3);
    return piece * p.n / columns;
  }

  // Loads the dense kernel. Its B comes with a launch.
  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    const auto desc = Describe(args, this->desc().arch);
    if (!desc) return desc.status();
    const Choice best = Best(*desc, TypicalRates(device_, args.Adesc.type));
    if (best.kernel == nullptr) {
      return Status(StatusCode::kUnsupported, id() + ": no dense kernel takes the product");
    }
    const int columns = std::min(args.Bdesc.cols, ColumnsOfPiece(args.Bdesc.cols, args.Bdesc.rows));
    auto loaded = best.kernel->Prepare(InnerArgs(args, args.B, 0, columns), best.swizzle, 1);
    if (!loaded) return loaded.status();
    return ArgsKernel::Prepare(args, swizzle, splits);
  }

  int Run(const GemmArgs& args, int, int, Workspace& workspace, cudaStream_t stream) override {
    const auto desc = Describe(args, this->desc().arch);
    if (!desc) return static_cast<int>(desc.status().code());
    const Choice best = Best(*desc, TypicalRates(device_, args.Adesc.type));
    if (best.kernel == nullptr) return static_cast<int>(StatusCode::kUnsupported);
    const int n = args.Bdesc.cols, columns = ColumnsOfPiece(n, args.Bdesc.rows);
    cuda_ops::RowsOfCodesArgs numbers;
    numbers.weight = WeightOf(args);
    numbers.target = workspace.partials;
    numbers.target_type = args.Adesc.type;
    Workspace none;
    for (int first = 0; first < n; first += columns) {
      const int count = std::min(columns, n - first);
      numbers.first = first;
      numbers.rows = count;
      if (const cudaError_t error = cuda_ops::RowsOfCodes(numbers, {stream});
          error != cudaSuccess) {
        return -static_cast<int>(error);
      }
      const int error = best.kernel->Run(InnerArgs(args, workspace.partials, first, count),
                                         best.swizzle, 1, none, stream);
      if (error != 0) return error;
    }
    return 0;
  }

 private:
  static constexpr int kGroupStep = 1;

  struct Choice {
    ArgsKernel* kernel = nullptr;
    int swizzle = 0;
    double us = 0;
  };

  // The dense kernel that is predicted to be fastest for whole pieces and takes the last one, too.
  Choice Best(const GemmDesc& p, const HardwareRates& rates) const noexcept {
    const int columns = std::min(p.n, ColumnsOfPiece(p.n, p.k));
    const GemmDesc whole = InnerDesc(p, columns);
    const GemmDesc last = InnerDesc(p, (p.n - 1) % columns + 1);
    Choice best;
    best.us = std::numeric_limits<double>::infinity();
    for (ArgsKernel* kernel : dense_) {
      if (!kernel->why(whole).ok() || !kernel->why(last).ok()) continue;
      const int most = kernel->GetMaxSwizzle(ShapeOf(whole));
      for (int swizzle = 0; swizzle <= most; ++swizzle) {
        const double us = kernel->PredictUs(whole, device_, rates, swizzle, 1);
        if (us < best.us) best = {kernel, swizzle, us};
      }
    }
    return best;
  }

  const std::vector<ArgsKernel*> dense_;
  const DeviceInfo device_;
};

}  // namespace

void AddCudaCodesAsNumbers(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch < kLeastArch) return;
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16}) {
    const std::string name = type == DataType::kBfloat16 ? "bf16" : "f16";
    std::vector<ArgsKernel*> dense;
    for (const auto& kernel : kernels) {
      const std::string_view id = kernel->id();
      const bool named =
          id.starts_with("sm90_" + name + "_block/") || id.starts_with("cuda_any/" + name + "/");
      auto* const inner = dynamic_cast<ArgsKernel*>(kernel.get());
      if (named && inner != nullptr) dense.push_back(inner);
    }
    KernelDesc desc;
    desc.backend = Backend::kNative;
    desc.arch = device.arch;
    desc.type_a = desc.type_b = type;
    desc.zero_points = true;
    desc.accumulator_bits = kBits;
    desc.promotion_k = 1;
    desc.determinism = Determinism::kRepeatable;
    KernelInfo info;
    info.name = "cuda_codes/as_" + name;
    kernels.push_back(
        std::make_unique<AsNumbers>(std::move(dense), device, std::move(desc), std::move(info)));
  }
}

}  // namespace culet
