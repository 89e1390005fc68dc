// Gemm::Pack: weights in the packed formats that kernels read.
#include <fmt/format.h>

#include <string>

#include "base/device_scope.h"
#include "culet/gemm.h"
#include "culet/packing.h"
#include "gemm/extent.h"

namespace culet {
namespace {

template <class... Args>
Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

Result<const PackFormat*> FormatFor(const MatrixLayout& weight, int number) {
  const PackFormat* const format = FindPackFormat(number);
  if (format == nullptr) {
    std::string known;
    for (const PackFormat* each : PackFormats()) {
      known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each->number(), each->name());
    }
    return Invalid("format is {}; the packed formats are {}", number, known);
  }
  if (weight.pack != 0) {
    return Invalid("the weight's layout has pack {}; give a plain one", weight.pack);
  }
  if (weight.rows < 1 || weight.cols < 1 || weight.ld < InnerOf(weight) || weight.num != 1) {
    return Invalid("the weight is {} x {} with ld {} and num {}; give one matrix B (k, n)",
                   weight.rows, weight.cols, weight.ld, weight.num);
  }
  if (const char* const reason = format->why(weight.type)) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("the weight is {}, but {} {}", ToString(weight.type), format->name(), reason));
  }
  return format;
}

}  // namespace

Result<std::size_t> Gemm::PackedSize(const MatrixLayout& weight, int format) const {
  const auto found = FormatFor(weight, format);
  if (!found) return found.status();
  const std::int64_t bytes = PackedBytes(PackedLayout(weight, **found));
  if (bytes < 0) {
    return Status(StatusCode::kOutOfRange, "the packed weight does not fit in 63 bits");
  }
  return static_cast<std::size_t>(bytes);
}

Result<MatrixLayout> Gemm::Pack(const void* weight, const MatrixLayout& layout, int format,
                                void* packed, std::size_t bytes, cudaStream_t stream) const {
  const auto needed = PackedSize(layout, format);
  if (!needed) return needed.status();
  if (weight == nullptr) return Invalid("weight is null; give the plain weight");
  if (packed == nullptr) return Invalid("packed is null; give {} bytes of memory", *needed);
  if (bytes < *needed) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("packed has {} bytes, the packed weight needs {}; see PackedSize",
                              bytes, *needed));
  }
  const PackFormat& packing = *FindPackFormat(format);
  if (device().arch == 0) {
    packing.Pack(weight, layout, packed);
  } else {
    const DeviceScope scope(device().ordinal);
    CULET_RETURN_IF_ERROR(packing.PackOnDevice(weight, layout, packed, stream));
  }
  return PackedLayout(layout, packing);
}

Status Gemm::Unpack(const void* packed, const MatrixLayout& packed_layout, void* weight,
                    const MatrixLayout& layout) const {
  const auto needed = PackedSize(layout, packed_layout.pack);
  if (!needed) return needed.status();
  if (weight == nullptr || packed == nullptr) return Invalid("weight or packed is null; give both");
  if (packed_layout.rows != layout.rows || packed_layout.cols != layout.cols ||
      packed_layout.type != layout.type) {
    return Invalid("the packed weight is {} x {} {}, the plain one {} x {} {}; give equal ones",
                   packed_layout.rows, packed_layout.cols, ToString(packed_layout.type),
                   layout.rows, layout.cols, ToString(layout.type));
  }
  if (device().arch != 0) {
    return Status(StatusCode::kUnsupported, "unpacks in host memory alone; use an engine of cpu");
  }
  FindPackFormat(packed_layout.pack)->Unpack(packed, layout, weight);
  return {};
}

}  // namespace culet
