// Packed weights and quantised operands of the C interface.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/device_scope.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/versioned.h"
#include "culet/culet.h"
#include "culet/gemm.h"
#include "culet/quantize.h"

using culet::MatrixLayout;
using culet::Status;
using culet::StatusCode;
using culet::capi::Guarded;
using culet::capi::Null;

namespace culet::capi {
namespace {

Status ReadLayout(const char* name, const culet_matrix* matrix, MatrixLayout& layout) {
  if (matrix == nullptr) return Null(name);
  return ToLayout(name, *matrix, layout);
}

struct Quantizing {
  const void* source;
  MatrixLayout source_layout;
  void* values;
  MatrixLayout values_layout;
  float* scales;
  MatrixLayout scales_layout;
};

Status QuantizeOnHost(const Quantizing& q, std::int32_t quant, std::int32_t group) {
  const int rows = q.source_layout.rows, cols = q.source_layout.cols;
  const auto by_group = [&](int along_row) {
    return QuantizeGroups(q.source, q.source_layout, q.values, q.values_layout, q.scales,
                          q.scales_layout, along_row);
  };
  const auto by_block = [&](int block) {
    return QuantizeBlocks(q.source, q.source_layout, q.values, q.values_layout, q.scales,
                          q.scales_layout, block);
  };
  switch (quant) {
    case CULET_QUANT_K:
      return by_group(group);
    case CULET_QUANT_B:
      return by_block(group);
    case CULET_QUANT_ROW:
      return by_group(cols);
    default:
      return by_block(std::max(rows, cols));
  }
}

Status CheckGranularity(std::int32_t quant, std::int32_t group) {
  const bool grouped = quant == CULET_QUANT_K || quant == CULET_QUANT_B;
  if (!grouped && quant != CULET_QUANT_TENSOR && quant != CULET_QUANT_ROW) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("quant is {}; give CULET_QUANT_K, _B, _TENSOR or _ROW", quant));
  }
  if (!grouped && group != 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("group is {}; it is 0 for one scale a row or a tensor", group));
  }
  return {};
}

Status Quantize(const culet_engine& engine, const Quantizing& q, std::int32_t quant,
                std::int32_t group, void* stream) {
  CULET_RETURN_IF_ERROR(CheckGranularity(quant, group));
  if (engine.gemm.device().arch == 0) return QuantizeOnHost(q, quant, group);
  if (quant != CULET_QUANT_K || group != 128) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("quant is {} and group {}; a GPU quantises along k in groups of 128 "
                              "alone: CULET_QUANT_K, 128, or quantise with an engine of the CPU",
                              quant, group));
  }
  const int ordinal = engine.gemm.device().ordinal;
  auto* const on = static_cast<cudaStream_t>(stream);
  if (!IsStreamOf(on, ordinal)) return StreamOfAnother(ordinal);
  const DeviceScope scope(ordinal);
  return QuantizeGroupsCuda(q.source, q.source_layout, q.values, q.values_layout, q.scales,
                            q.scales_layout, on);
}

}  // namespace
}  // namespace culet::capi

culet_status culet_packed_bytes(const culet_engine* engine, const culet_matrix* layout,
                                int32_t format, uint64_t* bytes) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    if (bytes == nullptr) return Null("bytes");
    MatrixLayout plain;
    CULET_RETURN_IF_ERROR(culet::capi::ReadLayout("layout", layout, plain));
    const auto size = engine->gemm.PackedSize(plain, format);
    if (!size.ok()) return size.status();
    *bytes = *size;
    return {};
  });
}

culet_status culet_pack(const culet_engine* engine, const void* weight, const culet_matrix* layout,
                        int32_t format, void* packed, uint64_t bytes, void* stream,
                        culet_matrix* packed_layout) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    if (packed_layout == nullptr) return Null("packed_layout");
    MatrixLayout plain;
    CULET_RETURN_IF_ERROR(culet::capi::ReadLayout("layout", layout, plain));
    const auto made =
        engine->gemm.Pack(weight, plain, format, packed, bytes, static_cast<cudaStream_t>(stream));
    if (!made.ok()) return made.status();
    *packed_layout = culet::capi::ToMatrix(*made);
    return {};
  });
}

culet_status culet_unpack(const culet_engine* engine, const void* packed,
                          const culet_matrix* packed_layout, void* weight,
                          const culet_matrix* layout) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    MatrixLayout from, to;
    CULET_RETURN_IF_ERROR(culet::capi::ReadLayout("packed_layout", packed_layout, from));
    CULET_RETURN_IF_ERROR(culet::capi::ReadLayout("layout", layout, to));
    return engine->gemm.Unpack(packed, from, weight, to);
  });
}

culet_status culet_quantize(const culet_engine* engine, int32_t quant, int32_t group,
                            const void* source, const culet_matrix* source_layout, void* values,
                            const culet_matrix* values_layout, float* scales,
                            const culet_matrix* scales_layout, void* stream) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    culet::capi::Quantizing q{source, {}, values, {}, scales, {}};
    CULET_RETURN_IF_ERROR(culet::capi::ReadLayout("source_layout", source_layout, q.source_layout));
    CULET_RETURN_IF_ERROR(culet::capi::ReadLayout("values_layout", values_layout, q.values_layout));
    CULET_RETURN_IF_ERROR(culet::capi::ReadLayout("scales_layout", scales_layout, q.scales_layout));
    return culet::capi::Quantize(*engine, q, quant, group, stream);
  });
}
