#include "culet/scratch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "culet/packing.h"
#include "gemm/runtime.h"
#include "gemm/scratch_compare.h"
#include "gemm/scratch_fill.h"
#include "gemm/scratch_layout.h"
#include "gemm/scratch_oracle.h"
#include "gemm/stop.h"

namespace culet {
namespace {

// Larger inputs are not compared with their image after each launch: it would take too long.
constexpr std::size_t kSmallInputsBytes = std::size_t{1} << 20;

// Larger outputs are fetched line by line, where the oracle looks.
constexpr std::size_t kSmallOutputBytes = std::size_t{1} << 20;

// What is copied and scanned between two looks at options.stop: some milliseconds of either.
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;

// Device memory that is freed with its owner.
class DeviceBlock {
 public:
  explicit DeviceBlock(Runtime& runtime) : runtime_(&runtime) {}
  ~DeviceBlock() { Release(); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  Status Allocate(std::size_t bytes) {
    Release();
    const auto block = runtime_->Allocate(bytes);
    if (!block.ok()) return block.status();
    data_ = static_cast<std::byte*>(*block);
    bytes_ = bytes;
    return {};
  }
  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void Release() noexcept {
    if (data_ != nullptr) runtime_->Free(data_);
    data_ = nullptr;
    bytes_ = 0;
  }

  Runtime* runtime_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Linux grants memory that it does not have and ends the process that touches it.
Status CheckHostMemory(const GemmDesc& desc, std::size_t bytes) {
  const std::size_t memory = HostDevice().memory_bytes;
  if (memory == 0 || bytes <= memory) return {};
  return Status(StatusCode::kResourceExhausted,
                fmt::format("inputs and outputs of {} take {} bytes, the host has {}; use a "
                            "smaller problem",
                            culet::ToString(desc), bytes, memory));
}

}  // namespace

struct ScratchProblem::Impl {
  explicit Impl(Runtime& device)
      : runtime(device), block(device), pristine_block(device), workspace_block(device) {}

  Runtime& runtime;
  GemmDesc desc;
  ScratchOptions options;
  Arrangement at;
  DeviceBlock image{GetRuntime(DeviceInfo{})};  // on the host: one set as it was made
  DeviceBlock block;                            // all sets
  DeviceBlock pristine_block;                   // D's region as it was made, unless on the host
  const std::byte* pristine = nullptr;
  int next_set = 0;
  std::vector<GemmArgs> sets;
  DeviceBlock workspace_block;
  Workspace workspace;
  std::optional<Oracle> oracle;  // made by the first Compare

  std::byte* set(int index) const noexcept {
    return block.data() + static_cast<std::size_t>(index) % sets.size() * at.bytes;
  }

  bool CompareInputs() const noexcept { return at.d.begin <= kSmallInputsBytes; }

  Result<std::vector<std::byte>> FetchOutput(int index) const {
    std::vector<std::byte> found(at.d.end - at.d.begin);
    CULET_RETURN_IF_ERROR(runtime.ToHost(found.data(), set(index) + at.d.begin, found.size()));
    return found;
  }

  // The lines of D that the oracle looks at; all in one piece where that is quicker.
  Result<DLines> FetchLines(int index) const {
    const Region& d = at.d;
    DLines lines{d.layout, {}, std::vector<std::size_t>(d.lines)};
    if (d.end - d.begin <= kSmallOutputBytes) {
      auto all = FetchOutput(index);
      if (!all.ok()) return all.status();
      lines.bytes = *std::move(all);
      for (std::size_t line = 0; line < d.lines; ++line) {
        lines.starts[line] = d.data - d.begin + line * d.pitch_bytes;
      }
      return lines;
    }
    const auto& wanted = d.layout.order == Order::kRowMajor ? oracle->rows : oracle->cols;
    lines.bytes.resize(wanted.size() * d.line_bytes);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto line = static_cast<std::size_t>(wanted[i]);
      lines.starts[line] = i * d.line_bytes;
      CULET_RETURN_IF_ERROR(runtime.ToHost(lines.bytes.data() + i * d.line_bytes,
                                           set(index) + d.data + line * d.pitch_bytes,
                                           d.line_bytes));
    }
    return lines;
  }

  // D's lines in pieces, each with the gap behind its lines; the first has the guard before them,
  // the last the one after.
  Result<OutputScan> ScanOutput(int index) const {
    const Region& d = at.d;
    Stop stop(options.stop);
    // A GPU scans in no time.
    const std::size_t step =
        desc.arch != 0 ? d.lines : std::max<std::size_t>(1, kPieceBytes / d.pitch_bytes);
    OutputScan all;
    for (std::size_t line = 0; line < d.lines; line += step) {
      if (stop()) return stop.status();
      const std::size_t count = std::min(step, d.lines - line);
      const std::size_t begin = line == 0 ? 0 : d.data - d.begin + line * d.pitch_bytes;
      const std::size_t data = line == 0 ? d.data - d.begin : 0;
      const std::size_t end =
          line + count == d.lines ? d.end - d.begin : begin + data + count * d.pitch_bytes;
      const OutputLines lines{end - begin,
                              data,
                              count,
                              d.line_bytes,
                              d.pitch_bytes,
                              SizeOf(d.layout.type),
                              PoisonWord(d.layout.type)};
      const auto scan = runtime.Scan(lines, set(index) + d.begin + begin, pristine + begin);
      if (!scan.ok()) return scan.status();
      all.unwritten += scan->unwritten;
      all.guards_intact = all.guards_intact && scan->guards_intact;
    }
    return all;
  }

  Status CopyOnDevice(std::byte* to, const std::byte* from, std::size_t bytes) const {
    return InPieces(bytes, [&](std::size_t begin, std::size_t piece) {
      return runtime.CopyOnDevice(to + begin, from + begin, piece);
    });
  }

  Status ToDevice(std::byte* to, const std::byte* from, std::size_t bytes) const {
    return InPieces(bytes, [&](std::size_t begin, std::size_t piece) {
      return runtime.ToDevice(to + begin, from + begin, piece);
    });
  }

  template <class Copy>
  Status InPieces(std::size_t bytes, Copy copy) const {
    Stop stop(options.stop);
    for (std::size_t begin = 0; begin < bytes; begin += kPieceBytes) {
      if (stop()) return stop.status();
      CULET_RETURN_IF_ERROR(copy(begin, std::min(kPieceBytes, bytes - begin)));
    }
    return {};
  }

  Result<bool> InputsIntact(int index) const {
    if (!CompareInputs()) return true;
    std::vector<std::byte> found(at.d.begin);
    CULET_RETURN_IF_ERROR(runtime.ToHost(found.data(), set(index), found.size()));
    return std::memcmp(found.data(), image.data(), found.size()) == 0;
  }
};

ScratchProblem::ScratchProblem(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ScratchProblem::~ScratchProblem() = default;
ScratchProblem::ScratchProblem(ScratchProblem&&) noexcept = default;
ScratchProblem& ScratchProblem::operator=(ScratchProblem&&) noexcept = default;

Result<ScratchProblem> ScratchProblem::Create(const DeviceInfo& device, const GemmDesc& desc,
                                              const ScratchOptions& options) {
  if (desc.arch != device.arch) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("desc.arch is {}, but the device's is {}; describe the problem for "
                              "this device",
                              desc.arch, device.arch));
  }
  if (options.sets < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("options.sets is {}; it must be >= 1", options.sets));
  }
  if (desc.c.type != DataType::kNull && options.beta == 0.0f) {
    return Status(StatusCode::kInvalidArgument,
                  "options.beta is 0 for a problem that reads C; give another beta, or set "
                  "desc.c.type to kNull");
  }
  auto arrangement = Arrange(desc, options.gap_bytes);
  if (!arrangement.ok()) return arrangement.status();
  // Only what Describe gives back unchanged is a key; pointers alone suffice to ask.
  const auto described = Describe(ArgsOver(*arrangement, desc, options.alpha, options.beta,
                                           reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20)),
                                  desc.arch);
  if (!described.ok()) return described.status();
  if (*described != desc || desc.epilogue != Epilogue::kNone) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is not the key of a plain product; take desc from Describe or "
                              "MakeDesc, without groups or a fused epilogue",
                              culet::ToString(desc)));
  }

  const std::size_t bytes = arrangement->bytes;
  const std::size_t sets =
      std::max(static_cast<std::size_t>(options.sets),
               options.rotate_bytes > 0 ? options.rotate_bytes / bytes + 1 : 0);
  std::size_t all_bytes = 0;
  if (__builtin_mul_overflow(sets, bytes, &all_bytes)) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} sets of {} bytes do not fit in memory; use fewer", sets, bytes));
  }
  auto impl = std::make_unique<Impl>(GetRuntime(device));
  impl->desc = desc;
  impl->options = options;
  impl->at = *arrangement;
  CULET_RETURN_IF_ERROR(CheckHostMemory(desc, device.arch == 0 ? all_bytes + bytes : bytes));
  CULET_RETURN_IF_ERROR(impl->block.Allocate(all_bytes));
  CULET_RETURN_IF_ERROR(impl->image.Allocate(bytes));
  impl->sets.reserve(sets);
  CULET_RETURN_IF_ERROR(FillBlock(desc, impl->at, options, impl->image.data()));
  if (const Region& packed = impl->at.packed_b; packed.present()) {
    FindPackFormat(desc.b.pack)
        ->Pack(impl->image.data() + impl->at.b.data, impl->at.b.layout,
               impl->image.data() + packed.data);
  }
  for (std::size_t i = 0; i < sets; ++i) {
    std::byte* base = impl->block.data() + i * bytes;
    CULET_RETURN_IF_ERROR(i == 0 ? impl->ToDevice(base, impl->image.data(), bytes)
                                 : impl->CopyOnDevice(base, impl->block.data(), bytes));
    impl->sets.push_back(ArgsOver(impl->at, desc, options.alpha, options.beta, base));
  }
  const Region& d = impl->at.d;
  if (device.arch == 0) {
    impl->pristine = impl->image.data() + d.begin;
  } else {
    const std::size_t d_bytes = d.end - d.begin;
    CULET_RETURN_IF_ERROR(impl->pristine_block.Allocate(d_bytes));
    impl->pristine = impl->pristine_block.data();
    CULET_RETURN_IF_ERROR(
        impl->CopyOnDevice(impl->pristine_block.data(), impl->set(0) + d.begin, d_bytes));
  }
  return ScratchProblem(std::move(impl));
}

int ScratchProblem::sets() const noexcept { return static_cast<int>(impl_->sets.size()); }

const GemmArgs& ScratchProblem::args(int index) const noexcept {
  return impl_->sets[static_cast<std::size_t>(index) % impl_->sets.size()];
}

const GemmDesc& ScratchProblem::desc() const noexcept { return impl_->desc; }

Result<Workspace*> ScratchProblem::workspace(const WorkspaceSize& size) {
  if (impl_->workspace_block.bytes() < size.total()) {
    CULET_RETURN_IF_ERROR(impl_->workspace_block.Allocate(size.total()));
  }
  auto workspace =
      InitWorkspace(size, impl_->workspace_block.data(), impl_->workspace_block.bytes());
  if (!workspace.ok()) return workspace.status();
  impl_->workspace = *workspace;
  return &impl_->workspace;
}

int ScratchProblem::NextSet() noexcept {
  impl_->next_set = (impl_->next_set + 1) % sets();
  return impl_->next_set;
}

Status ScratchProblem::PoisonOutput(int index) {
  // With what Compare looks at, so that one kernel's stray writes are not another's failure.
  const Region& d = impl_->at.d;
  if (impl_->CompareInputs()) {
    CULET_RETURN_IF_ERROR(impl_->runtime.ToDevice(impl_->set(index), impl_->image.data(), d.begin));
  }
  return impl_->CopyOnDevice(impl_->set(index) + d.begin, impl_->pristine, d.end - d.begin);
}

Result<ErrorReport> ScratchProblem::Compare(int index, const Accumulator&) const {
  CULET_RETURN_IF_ERROR(impl_->runtime.Synchronize());
  const auto scan = impl_->ScanOutput(index);
  if (!scan.ok()) return scan.status();
  const auto inputs_intact = impl_->InputsIntact(index);
  if (!inputs_intact.ok()) return inputs_intact.status();

  if (!impl_->oracle) {
    auto made = MakeOracle(impl_->desc, impl_->at, impl_->options, impl_->image.data());
    if (!made.ok()) return made.status();
    impl_->oracle = *std::move(made);
  }
  const auto lines = impl_->FetchLines(index);
  if (!lines.ok()) return lines.status();
  ErrorReport report;
  CompareValues(*impl_->oracle, *lines, report);
  report.unwritten = scan->unwritten;
  report.guards_intact = scan->guards_intact && *inputs_intact;
  return report;
}

Result<std::vector<std::byte>> ScratchProblem::OutputBytes(int index) const {
  CULET_RETURN_IF_ERROR(impl_->runtime.Synchronize());
  const auto found = impl_->FetchOutput(index);
  if (!found.ok()) return found.status();
  const Region& d = impl_->at.d;
  std::vector<std::byte> bytes;
  bytes.reserve(d.lines * d.line_bytes);
  for (std::size_t line = 0; line < d.lines; ++line) {
    const auto start =
        found->begin() + static_cast<std::ptrdiff_t>(d.data - d.begin + line * d.pitch_bytes);
    bytes.insert(bytes.end(), start, start + static_cast<std::ptrdiff_t>(d.line_bytes));
  }
  return bytes;
}

double MinimumBytes(const GemmDesc& desc) noexcept {
  const double m = desc.m, n = desc.n, k = desc.k;
  const auto bytes = [](DataType type, double elements) {
    return static_cast<double>(SizeOf(type)) * elements;
  };
  const auto scales = [&](const QuantDesc& quant, DataType type, int outer) {
    if (quant.type == QuantType::kNone) return 0.0;
    if (HasGroupSize(quant.type) && quant.group_size < 1) return 0.0;
    const ScaleGroup group = ScaleGroupOf(quant, outer, desc.k);
    return bytes(type,
                 std::ceil(static_cast<double>(outer) / group.outer) * std::ceil(k / group.k));
  };
  const double bias = bytes(desc.type_bias, desc.bias_axis == Bias::Axis::kN ? n : m);
  return desc.num * (bytes(desc.a.type, m * k) + scales(desc.a.quant, desc.a.scale_type, desc.m) +
                     bytes(desc.b.type, k * n) + scales(desc.b.quant, desc.b.scale_type, desc.n) +
                     bytes(desc.c.type, m * n) + bytes(desc.d.type, m * n) + bias);
}

double Operations(const GemmDesc& desc) noexcept {
  return 2.0 * desc.m * desc.n * desc.k * desc.num;
}

}  // namespace culet
