#include "gemm/grouped_host.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "culet/grouped_class.h"

namespace culet {
namespace {

// Rows [begin, end) of D that are a group's.
struct Range {
  int begin, end;
};
Range RangeOf(const GroupedArgs& args, int group) noexcept {
  const std::int64_t start = args.starts[group];
  const std::int64_t end = args.counts != nullptr ? start + std::max(args.counts[group], 0)
                                                  : std::int64_t{args.starts[group + 1]};
  return {static_cast<int>(std::max<std::int64_t>(start, 0)),
          static_cast<int>(std::clamp<std::int64_t>(end, 0, args.rows))};
}

const std::byte* At(const void* data, std::int64_t bytes) noexcept {
  return static_cast<const std::byte*>(data) + bytes;
}

class HostGroups {
 public:
  HostGroups(Gemm& gemm, const GroupedArgs& args) : gemm_(gemm), args_(args) {}

  Status Run() {
    for (int group = 0; group < args_.groups; ++group) {
      const Range range = RangeOf(args_, group);
      if (range.begin < range.end) CULET_RETURN_IF_ERROR(RunGroup(group, range));
    }
    return {};
  }

 private:
  Status RunGroup(int group, const Range& range) {
    const int m = range.end - range.begin, rows_b = RowsOfGroup(args_),
              blocks = GroupedBlocks(args_.k);
    GemmArgs product;
    product.operation.sm_budget = args_.sm_budget;
    product.Adesc = RowMajor(args_.type, m, args_.k, args_.lda);
    const std::int64_t matrix = std::int64_t{group} * rows_b;
    product.B = At(args_.B, matrix * BytesOf(args_.type, args_.k));
    product.Bdesc = ColMajor(args_.type, args_.k, rows_b);
    if (IsScaledGroup(args_)) {
      product.operation.quant_a = {QuantType::kK, kGroupedBlock};
      product.operation.quant_b = {QuantType::kB, kGroupedBlock};
      product.Udesc = args_.u_block == 1 ? RowMajor(DataType::kFloat32, m, blocks, args_.u_row)
                                         : ColMajor(DataType::kFloat32, m, blocks, args_.u_block);
      product.V = args_.V + std::int64_t{group} * GroupedBlocks(rows_b) * blocks;
      product.Vdesc = ColMajor(DataType::kFloat32, blocks, GroupedBlocks(rows_b));
    }
    if (args_.index != nullptr) {
      Gather(range, product);
    } else {
      product.A = At(args_.A, range.begin * BytesOf(args_.type, args_.lda));
      if (IsScaledGroup(args_)) product.U = args_.U + range.begin * args_.u_row;
    }
    if (args_.bias != nullptr) {
      product.operation.bias = {At(args_.bias, matrix * BytesOf(args_.bias_type, 1)),
                                args_.bias_type, Bias::Axis::kN};
    }
    if (IsGatedGroup(args_)) {
      product.operation.epilogue = Epilogue::kGatedSilu;
      product.operation.gate_order = GateOrder::kHalves;
    }
    // The kernel is chosen for the group's own rows, whatever the others have.
    product.D = static_cast<std::byte*>(args_.D) + range.begin * BytesOf(args_.d_type, args_.ldd);
    product.Ddesc = RowMajor(args_.d_type, m, args_.n, args_.ldd);
    const auto desc = Describe(product, gemm_.device().arch);
    if (!desc) return desc.status();
    auto known = choices_.find(*desc);
    if (known == choices_.end()) {
      const auto spec = gemm_.Choose(*desc);
      if (!spec) return spec.status();
      known = choices_.emplace(*desc, *spec).first;
    }
    const LaunchSpec& spec = known->second;
    const WorkspaceSize need = spec.kernel->workspace_size(*desc, spec.swizzle, spec.splits);
    auto workspace = WorkspaceOf(need);
    if (!workspace) return workspace.status();
    return LaunchKernel(*spec.kernel, product, spec.swizzle, spec.splits, *workspace, nullptr);
  }

  // Rows of A as the index names them, and their scales, row by row.
  void Gather(const Range& range, GemmArgs& product) {
    const auto count = static_cast<std::size_t>(range.end - range.begin);
    const auto row_bytes = static_cast<std::size_t>(BytesOf(args_.type, args_.k));
    const auto blocks = static_cast<std::size_t>(GroupedBlocks(args_.k));
    rows_.assign(count * row_bytes, std::byte{0});
    scales_.assign(IsScaledGroup(args_) ? count * blocks : 0, 0.0f);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t source = args_.index[static_cast<std::size_t>(range.begin) + i];
      if (source < 0 || source >= args_.a_rows) continue;
      std::memcpy(rows_.data() + i * row_bytes,
                  At(args_.A, source * BytesOf(args_.type, args_.lda)), row_bytes);
      for (std::size_t b = 0; b < blocks && IsScaledGroup(args_); ++b) {
        scales_[i * blocks + b] =
            args_.U[source * args_.u_row + static_cast<std::int64_t>(b) * args_.u_block];
      }
    }
    product.A = rows_.data();
    product.Adesc.ld = args_.k;
    if (!IsScaledGroup(args_)) return;
    product.U = scales_.data();
    product.Udesc = RowMajor(DataType::kFloat32, product.Adesc.rows, GroupedBlocks(args_.k));
  }

  Result<Workspace> WorkspaceOf(const WorkspaceSize& size) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t bytes = size.total();
    if (bytes == 0) return Workspace{};
    if (memory_.size() < bytes + kAlignment) memory_.resize(bytes + kAlignment);
    void* begin = memory_.data();
    std::size_t room = memory_.size();
    return InitWorkspace(size, std::align(kAlignment, bytes, begin, room), bytes);
  }

  Gemm& gemm_;
  const GroupedArgs& args_;
  std::map<GemmDesc, LaunchSpec> choices_;
  std::vector<std::byte> rows_, memory_;
  std::vector<float> scales_;
};

class HostGrouped final : public GroupedKernel {
 public:
  using GroupedKernel::GroupedKernel;

  int GetMaxSwizzle(const int4&) const override { return 0; }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override { return 1; }

  // A launch for each group, and what memory and arithmetic take.
  double PredictUs(const GemmDesc& p, const DeviceInfo&, const HardwareRates& rates, int,
                   int) const noexcept override {
    const double read = GroupedBytes(p) / std::max(1e3 * rates.read_gbps, 1.0);
    const double rows = ExpectedRows(p).rows;
    const double computed = 2 * rows * p.n * p.k / std::max(1e3 * rates.gflops, 1.0);
    return ExpectedRows(p).reached * info_.launch_us + std::max(read, computed);
  }

  Status LaunchGrouped(Gemm& gemm, const GroupedArgs& args, const LaunchSpec&,
                       cudaStream_t) const override {
    return HostGroups(gemm, args).Run();
  }
};

}  // namespace

std::unique_ptr<GroupedKernel> MakeHostGrouped() {
  KernelDesc desc;
  desc.backend = Backend::kNative;
  desc.grouped = true;
  desc.any_epilogue = true;
  desc.gate_halves = true;
  KernelInfo info;
  info.name = "cpu_grouped/products";
  return std::make_unique<HostGrouped>(desc, std::move(info));
}

}  // namespace culet
