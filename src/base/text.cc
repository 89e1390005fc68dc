// Text names of all enums, in one table each: printing and parsing cannot drift apart.
#include <array>
#include <string_view>
#include <utility>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/types.h"

namespace culet {
namespace {

template <class Enum>
struct Names;  // kTable: pairs of value and name

template <>
struct Names<DataType> {
  static constexpr std::pair<DataType, const char*> kTable[] = {
      {DataType::kNull, "none"},
      {DataType::kFloat32, "float32"},
      {DataType::kFloat16, "float16"},
      {DataType::kBfloat16, "bfloat16"},
      {DataType::kFloat8_e4m3, "float8_e4m3"},
      {DataType::kFloat8_ue8m0, "float8_ue8m0"},
      {DataType::kInt32, "int32"},
      {DataType::kInt4, "int4"},
      {DataType::kUint4, "uint4"},
      {DataType::kFloat4_e2m1, "float4_e2m1"},
      {DataType::kInt8, "int8"},
  };
};
template <>
struct Names<Order> {
  static constexpr std::pair<Order, const char*> kTable[] = {
      {Order::kColMajor, "col"},
      {Order::kRowMajor, "row"},
  };
};
template <>
struct Names<Striding> {
  static constexpr std::pair<Striding, const char*> kTable[] = {
      {Striding::kFlat, "flat"},
      {Striding::kBlocked, "blocked"},
      {Striding::kIndexed, "indexed"},
  };
};
template <>
struct Names<Pitch> {
  static constexpr std::pair<Pitch, const char*> kTable[] = {
      {Pitch::kShort, "short"},
      {Pitch::kLong, "long"},
      {Pitch::kFar, "far"},
  };
};
template <>
struct Names<QuantType> {
  static constexpr std::pair<QuantType, const char*> kTable[] = {
      {QuantType::kNone, "none"},     {QuantType::kK, "k"},     {QuantType::kB, "block"},
      {QuantType::kTensor, "tensor"}, {QuantType::kRow, "row"},
  };
};
template <>
struct Names<Epilogue> {
  static constexpr std::pair<Epilogue, const char*> kTable[] = {
      {Epilogue::kNone, "none"},
      {Epilogue::kGatedSilu, "gated_silu"},
      {Epilogue::kGatedSiluQuant, "gated_silu_quant"},
  };
};
template <>
struct Names<GateOrder> {
  static constexpr std::pair<GateOrder, const char*> kTable[] = {
      {GateOrder::kEights, "eights"},
      {GateOrder::kHalves, "halves"},
  };
};
template <>
struct Names<DispatchPolicy> {
  static constexpr std::pair<DispatchPolicy, const char*> kTable[] = {
      {DispatchPolicy::kDefault, "default"},
      {DispatchPolicy::kMeasure, "measure"},
      {DispatchPolicy::kReuse, "reuse"},
  };
};
template <>
struct Names<Accumulate> {
  static constexpr std::pair<Accumulate, const char*> kTable[] = {
      {Accumulate::kPromoted, "promoted"},
      {Accumulate::kFast, "fast"},
      {Accumulate::kFull, "full"},
  };
};
template <>
struct Names<Determinism> {
  static constexpr std::pair<Determinism, const char*> kTable[] = {
      {Determinism::kFast, "fast"},
      {Determinism::kRepeatable, "repeatable"},
      {Determinism::kBatchInvariant, "batch_invariant"},
  };
};
template <>
struct Names<Backend> {
  static constexpr std::pair<Backend, const char*> kTable[] = {
      {Backend::kReference, "reference"},
      {Backend::kNative, "native"},
      {Backend::kLibrary, "library"},
      {Backend::kUser, "user"},
  };
};
template <>
struct Names<Origin> {
  static constexpr std::pair<Origin, const char*> kTable[] = {
      {Origin::kPredicted, "predicted"},
      {Origin::kMeasured, "measured"},
  };
};

template <class Enum>
const char* NameOf(Enum value) noexcept {
  for (const auto& [candidate, name] : Names<Enum>::kTable) {
    if (candidate == value) return name;
  }
  return "invalid";
}

}  // namespace

template <class Enum>
std::optional<Enum> FromString(std::string_view text) noexcept {
  for (const auto& [value, name] : Names<Enum>::kTable) {
    if (text == name) return value;
  }
  return std::nullopt;
}

#define CULET_TEXT(Enum)                                              \
  const char* ToString(Enum value) noexcept { return NameOf(value); } \
  template std::optional<Enum> FromString<Enum>(std::string_view) noexcept;

CULET_TEXT(DataType)
CULET_TEXT(Order)
CULET_TEXT(Striding)
CULET_TEXT(Pitch)
CULET_TEXT(QuantType)
CULET_TEXT(Epilogue)
CULET_TEXT(GateOrder)
CULET_TEXT(DispatchPolicy)
CULET_TEXT(Accumulate)
CULET_TEXT(Determinism)
CULET_TEXT(Backend)
CULET_TEXT(Origin)
#undef CULET_TEXT

}  // namespace culet
