#include "culet/scratch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "culet/grouped_class.h"
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

// What is copied and scanned between two looks at options.stop: some milliseconds of either.
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;

std::byte* DataOf(const DeviceBuffer& buffer) noexcept {
  return FromDevicePtr<std::byte>(buffer.get());
}

// Gives back what `buffer` had first.
Status Renew(DeviceMemory& memory, std::size_t bytes, DeviceBuffer& buffer) {
  buffer = DeviceBuffer();
  auto made = DeviceBuffer::Create(memory, bytes);
  if (!made.ok()) return made.status();
  buffer = *std::move(made);
  return {};
}

// Linux grants memory that it does not have and ends the process that touches it.
Status CheckHostMemory(const GemmDesc& desc, std::size_t bytes) {
  const std::size_t memory = HostDevice().memory_bytes;
  if (memory == 0 || bytes <= memory) return {};
  return Status(StatusCode::kResourceExhausted,
                fmt::format("inputs and outputs of {} take {} bytes, the host has {}; use a "
                            "smaller problem",
                            culet::ToString(desc), bytes, memory));
}

// Where an element of an output lies in a set. Row r is row r % rows of matrix r / rows.
std::size_t OffsetOf(const Region& region, int row, int col) {
  const MatrixLayout& layout = region.layout;
  const std::int64_t element =
      BatchOffset(layout, row / layout.rows) + IndexOf(layout, row % layout.rows, col);
  return region.data + static_cast<std::size_t>(element) * SizeOf(layout.type);
}

// What Compare expects, and where.
struct Expected {
  Oracle oracle;
  std::vector<Interval> allowed;  // of D, unless that is quantised
  std::vector<std::size_t> d, w;  // the elements of D and its scales

  Expected(Oracle made, const Arrangement& at, int group) : oracle(std::move(made)) {
    for (const int row : oracle.rows) {
      for (const int col : oracle.cols) {
        const std::size_t i = d.size();
        d.push_back(OffsetOf(at.d, row, col));
        if (!at.w.present()) {
          allowed.push_back(AllowedAround(oracle.reference[i], oracle.slack[i], at.d.layout.type));
        } else if (col % group == 0) {
          w.push_back(OffsetOf(at.w, row, col / group));
        }
      }
    }
  }
};

}  // namespace

struct ScratchProblem::Impl {
  explicit Impl(Runtime& device) : runtime(device), memory(device.memory()) {}

  Runtime& runtime;
  DeviceMemory& memory;
  GemmDesc desc;
  ScratchOptions options;
  Arrangement at;
  DeviceBuffer image;           // on the host: one set as it was made
  DeviceBuffer block;           // all sets
  DeviceBuffer pristine_block;  // D's region as it was made, unless on the host
  const std::byte* pristine = nullptr;
  int next_set = 0;
  std::vector<GemmArgs> sets;
  DeviceBuffer workspace_block;
  Workspace workspace;
  std::map<Accumulator, Expected> expected;  // made by the first Compare with each

  std::byte* set(int index) const noexcept {
    return DataOf(block) + static_cast<std::size_t>(index) % sets.size() * at.bytes;
  }

  // D's region and that of its scales.
  std::size_t OutputBytes() const noexcept { return at.bytes - at.d.begin; }

  bool CompareInputs() const noexcept { return at.d.begin <= kSmallInputsBytes; }

  Result<std::vector<std::byte>> FetchOutput(const Region& region, int index) const {
    std::vector<std::byte> found(region.end - region.begin);
    CULET_RETURN_IF_ERROR(ToHost(found.data(), set(index) + region.begin, found.size()));
    return found;
  }

  // What lies at `offsets` of a set.
  Result<std::vector<double>> Found(DataType type, std::span<const std::size_t> offsets,
                                    int index) const {
    std::vector<std::byte> bytes(offsets.size() * SizeOf(type));
    CULET_RETURN_IF_ERROR(runtime.Gather(set(index), offsets, SizeOf(type), bytes.data()));
    std::vector<double> found(offsets.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i] = LoadAsDouble(bytes.data(), type, static_cast<std::int64_t>(i));
    }
    return found;
  }

  // D's lines in pieces, each with the gap behind its lines; the first has the guard before them,
  // the last the one after.
  Result<OutputScan> ScanOutput(const Region& d, int index) const {
    const std::byte* const before = pristine + (d.begin - at.d.begin);
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
      const auto scan = runtime.Scan(lines, set(index) + d.begin + begin, before + begin);
      if (!scan.ok()) return scan.status();
      all.unwritten += scan->unwritten;
      all.guards_intact = all.guards_intact && scan->guards_intact;
    }
    return all;
  }

  // Complete on return, as the recorded launches of another stream need it.
  Status CopyOnDevice(std::byte* to, const std::byte* from, std::size_t bytes) const {
    return InPieces(bytes, [&](std::size_t begin, std::size_t piece) -> Status {
      CULET_RETURN_IF_ERROR(
          memory.Copy(ToDevicePtr(to + begin), ToDevicePtr(from + begin), piece, nullptr));
      return memory.Synchronize(nullptr);
    });
  }

  Status ToDevice(std::byte* to, const std::byte* from, std::size_t bytes) const {
    return InPieces(bytes, [&](std::size_t begin, std::size_t piece) -> Status {
      CULET_RETURN_IF_ERROR(memory.Upload(ToDevicePtr(to + begin), from + begin, piece, nullptr));
      return memory.Synchronize(nullptr);
    });
  }

  Status ToHost(std::byte* to, const std::byte* from, std::size_t bytes) const {
    return memory.Download(to, ToDevicePtr(from), bytes, nullptr);
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
    CULET_RETURN_IF_ERROR(ToHost(found.data(), set(index), found.size()));
    return std::memcmp(found.data(), DataOf(image), found.size()) == 0;
  }
};

namespace {

// Rows that lie gigabytes apart are measured side by side: nobody has the memory between them.
GemmDesc WithShortPitches(GemmDesc desc) {
  for (OperandDesc* operand : {&desc.a, &desc.b, &desc.c, &desc.d}) {
    operand->pitch = operand->scale_pitch = Pitch::kShort;
  }
  return desc;
}

}  // namespace

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
  auto arrangement = Arrange(desc, options.gap_bytes, options.as_allocated);
  if (!arrangement.ok()) return arrangement.status();
  // Only what Describe gives back unchanged is a key; pointers alone suffice to ask.
  const auto described = Describe(ArgsOver(*arrangement, desc, options.alpha, options.beta,
                                           reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20)),
                                  desc.arch);
  if (!described.ok()) return described.status();
  if (*described != WithShortPitches(desc)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is not the key of a plain product; take desc from Describe or "
                              "MakeDesc, without groups",
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
  CULET_RETURN_IF_ERROR(Renew(impl->memory, all_bytes, impl->block));
  CULET_RETURN_IF_ERROR(Renew(HostMemory(), bytes, impl->image));
  impl->sets.reserve(sets);
  CULET_RETURN_IF_ERROR(FillBlock(desc, impl->at, options, DataOf(impl->image)));
  if (const Region& packed = impl->at.packed_b; packed.present()) {
    FindPackFormat(desc.b.pack)
        ->Pack(DataOf(impl->image) + impl->at.b.data, impl->at.b.layout,
               DataOf(impl->image) + packed.data);
  }
  for (std::size_t i = 0; i < sets; ++i) {
    std::byte* base = DataOf(impl->block) + i * bytes;
    CULET_RETURN_IF_ERROR(i == 0 ? impl->ToDevice(base, DataOf(impl->image), bytes)
                                 : impl->CopyOnDevice(base, DataOf(impl->block), bytes));
    impl->sets.push_back(ArgsOver(impl->at, desc, options.alpha, options.beta, base));
  }
  const Region& d = impl->at.d;
  if (device.arch == 0) {
    impl->pristine = DataOf(impl->image) + d.begin;
  } else {
    const std::size_t d_bytes = impl->OutputBytes();
    CULET_RETURN_IF_ERROR(Renew(impl->memory, d_bytes, impl->pristine_block));
    impl->pristine = DataOf(impl->pristine_block);
    CULET_RETURN_IF_ERROR(
        impl->CopyOnDevice(DataOf(impl->pristine_block), impl->set(0) + d.begin, d_bytes));
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
    CULET_RETURN_IF_ERROR(Renew(impl_->memory, size.total(), impl_->workspace_block));
  }
  auto workspace =
      InitWorkspace(size, DataOf(impl_->workspace_block), impl_->workspace_block.bytes());
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
    CULET_RETURN_IF_ERROR(impl_->ToDevice(impl_->set(index), DataOf(impl_->image), d.begin));
  }
  return impl_->CopyOnDevice(impl_->set(index) + d.begin, impl_->pristine, impl_->OutputBytes());
}

Result<ErrorReport> ScratchProblem::Compare(int index, const Accumulator& accumulator) const {
  Impl& impl = *impl_;
  CULET_RETURN_IF_ERROR(impl.runtime.Synchronize());
  ErrorReport report;
  for (const Region* region : {&impl.at.d, &impl.at.w}) {
    if (!region->present()) continue;
    const auto scan = impl.ScanOutput(*region, index);
    if (!scan.ok()) return scan.status();
    report.unwritten += scan->unwritten;
    report.guards_intact = report.guards_intact && scan->guards_intact;
  }
  const auto inputs_intact = impl.InputsIntact(index);
  if (!inputs_intact.ok()) return inputs_intact.status();
  report.guards_intact = report.guards_intact && *inputs_intact;

  const int group = impl.desc.d.quant.group_size;
  auto expected = impl.expected.find(accumulator);
  if (expected == impl.expected.end()) {
    auto made = MakeOracle(impl.desc, impl.at, impl.options, DataOf(impl.image), accumulator);
    if (!made.ok()) return made.status();
    expected = impl.expected.try_emplace(accumulator, *std::move(made), impl.at, group).first;
  }
  const auto& [oracle, allowed, at_d, at_w] = expected->second;
  const auto d = impl.Found(impl.at.d.layout.type, at_d, index);
  if (!d.ok()) return d.status();
  if (!impl.at.w.present()) {
    CompareValues(oracle, allowed, *d, report);
    return report;
  }
  const auto w = impl.Found(impl.at.w.layout.type, at_w, index);
  if (!w.ok()) return w.status();
  CompareQuantised(oracle, *d, *w, group, impl.at.d.layout.cols, report);
  return report;
}

Result<std::vector<std::byte>> ScratchProblem::OutputBytes(int index) const {
  CULET_RETURN_IF_ERROR(impl_->runtime.Synchronize());
  const Region& d = impl_->at.d;
  const Region& w = impl_->at.w;
  const auto found = impl_->FetchOutput(d, index);
  if (!found.ok()) return found.status();
  std::vector<std::byte> scales;
  if (w.present()) {
    auto fetched = impl_->FetchOutput(w, index);
    if (!fetched.ok()) return fetched.status();
    scales = *std::move(fetched);
  }
  std::vector<std::byte> bytes;
  bytes.reserve(d.lines * d.line_bytes + scales.size());
  const auto append = [&](const std::vector<std::byte>& from, std::size_t begin,
                          std::size_t count) {
    const auto start = from.begin() + static_cast<std::ptrdiff_t>(begin);
    bytes.insert(bytes.end(), start, start + static_cast<std::ptrdiff_t>(count));
  };
  // The scales of row `row` of matrix `matrix`.
  const auto append_scales = [&](std::size_t matrix, std::size_t row) {
    const std::size_t size = SizeOf(w.layout.type);
    for (int col = 0; col < w.layout.cols; ++col) {
      const std::int64_t element = BatchOffset(w.layout, static_cast<std::int64_t>(matrix)) +
                                   IndexOf(w.layout, static_cast<std::int64_t>(row), col);
      append(scales, w.data - w.begin + static_cast<std::size_t>(element) * size, size);
    }
  };
  const auto rows = static_cast<std::size_t>(d.layout.rows);
  for (std::size_t line = 0; line < d.lines; ++line) {
    append(*found, d.data - d.begin + line * d.pitch_bytes, d.line_bytes);
    if (w.present() && d.layout.order == Order::kRowMajor) {
      append_scales(line / rows, line % rows);
    }
  }
  if (w.present() && d.layout.order == Order::kColMajor) {
    for (std::size_t row = 0; row < rows * static_cast<std::size_t>(d.layout.num); ++row) {
      append_scales(row / rows, row % rows);
    }
  }
  return bytes;
}

double MinimumBytes(const GemmDesc& desc) noexcept {
  if (IsGrouped(desc)) return GroupedBytes(desc);
  const double m = desc.m, n = desc.n;
  const auto bytes = [](DataType type, double elements) {
    return static_cast<double>(BitsOf(type)) / 8 * elements;
  };
  // All matrices of an operand of `outer` lines of `inner` elements, with scales and zero points.
  const auto operand = [&](const OperandDesc& o, int outer, int inner) {
    double all = bytes(o.type, static_cast<double>(outer) * inner);
    const bool grouped = !HasGroupSize(o.quant.type) || o.quant.group_size >= 1;
    if (o.quant.type != QuantType::kNone && grouped) {
      const ScaleGroup group = ScaleGroupOf(o.quant, outer, inner);
      const double scales = std::ceil(static_cast<double>(outer) / group.outer) *
                            std::ceil(static_cast<double>(inner) / group.k);
      all += bytes(o.scale_type, scales) + bytes(o.zero_type, scales);
    }
    return o.num * all;
  };
  return operand(desc.a, desc.m, desc.k) + operand(desc.b, desc.n, desc.k) +
         operand(desc.d, desc.m, ColumnsOfD(desc)) + desc.c.num * bytes(desc.c.type, m * n) +
         bytes(desc.type_bias, desc.bias_axis == Bias::Axis::kN ? n : m);
}

double Operations(const GemmDesc& desc) noexcept {
  if (IsGrouped(desc)) return 2.0 * ExpectedRows(desc).rows * desc.n * desc.k;
  return 2.0 * desc.m * desc.n * desc.k * desc.num;
}

}  // namespace culet
