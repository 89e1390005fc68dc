#include "kernels/cublaslt/lt_problem.h"

#include <algorithm>
#include <limits>

namespace culet::lt {
namespace {

constexpr DataType kF32 = DataType::kFloat32, kF16 = DataType::kFloat16,
                   kBf16 = DataType::kBfloat16, kE4m3 = DataType::kFloat8_e4m3;

constexpr Scaling kUnscaled = {};
constexpr Scaling kTensors = {{QuantType::kTensor, 0}, {QuantType::kTensor, 0}};
constexpr Scaling kRows = {{QuantType::kRow, 0}, {QuantType::kRow, 0}, kOuterVec32F, kOuterVec32F};
constexpr Scaling kBlocks = {
    {QuantType::kK, 128}, {QuantType::kB, 128}, kVec128_32F, kBlk128x128_32F};

constexpr int kLatest = std::numeric_limits<int>::max();
constexpr Reach kAmpere = {800, kLatest, kLeastVersion};
constexpr Reach kAda = {890, kLatest, kLeastVersion};
constexpr Reach kHopper = {900, 900, 120900};

// Near what PyTorch's calls take on one H200 (12 layers of bench/llm_shapes.txt, M from 1 to 8192);
// a test holds them within a factor of 1.5. F32 is a guess.
constexpr Costs kCosts16 = {4, 0.95, 0.90}, kCosts32 = {4, 0.80, 0.70},
                kCostsTensors = {4, 0.95, 0.85}, kCostsRows = {8, 0.60, 0.85},
                kCostsBlocks = {6, 0.70, 0.88, 300};

constexpr Format kFormats[] = {
    {"cublaslt/bf16", kBf16, kUnscaled, kAmpere, kCosts16},
    {"cublaslt/f16", kF16, kUnscaled, kAmpere, kCosts16},
    {"cublaslt/f32", kF32, kUnscaled, kAmpere, kCosts32},
    {"cublaslt/fp8", kE4m3, kUnscaled, kAda, kCostsTensors},
    {"cublaslt/fp8_tensor", kE4m3, kTensors, kAda, kCostsTensors},
    {"cublaslt/fp8_row", kE4m3, kRows, kHopper, kCostsRows},
    {"cublaslt/fp8_block", kE4m3, kBlocks, kHopper, kCostsBlocks},
};

// What a descriptor holds where the real pointer is not known yet: not null, which would mean
// "absent", and aligned.
const void* const kPlaceholder = reinterpret_cast<const void*>(std::uintptr_t{1} << 20);

CudaType CudaTypeOf(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat16:
      return kR16F;
    case DataType::kBfloat16:
      return kR16BF;
    case DataType::kFloat8_e4m3:
      return kR8FE4M3;
    default:
      return kR32F;
  }
}

// The one type of bias for a D, by the library's tables.
DataType BiasTypeFor(DataType a, DataType d) noexcept {
  return a == kE4m3 && d == DataType::kFloat32 ? DataType::kBfloat16 : d;
}

int InnerOf(Order order, int rows, int cols) noexcept {
  return order == Order::kRowMajor ? cols : rows;
}

std::int64_t PackedStride(DataType type, Order order, int rows, int cols, int align) noexcept {
  const auto step = std::max<std::int64_t>(1, align / static_cast<std::int64_t>(SizeOf(type)));
  return (InnerOf(order, rows, cols) + step - 1) / step * step;
}

// Collects the first failure of a series of calls.
class Calls {
 public:
  Calls(const Library& library, const char* name) : library_(library), name_(name) {}
  void Add(int status) noexcept {
    if (status_ == kSuccess) status_ = status;
  }
  Status status() const { return library_.StatusOf(status_, name_); }

 private:
  const Library& library_;
  const char* name_;
  int status_ = kSuccess;
};

// A matrix as the column-major one that its memory is.
int InitLayout(const Functions& f, DataType type, Order order, int rows, int cols, std::int64_t ld,
               Layout* layout) noexcept {
  if (order == Order::kRowMajor) std::swap(rows, cols);
  return f.MatrixLayoutInit(layout, sizeof *layout, CudaTypeOf(type),
                            static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols), ld);
}

template <class T>
int Set(const Functions& f, Operation* operation, OperationAttribute attribute, T value) noexcept {
  return f.MatmulDescSetAttribute(operation, attribute, &value, sizeof value);
}

}  // namespace

std::span<const Format> Formats() { return kFormats; }

Feasibility WhyNot(const Format& format, const GemmDesc& p) noexcept {
  if (p.sm_budget > 0) return Feasibility::Refuse("cannot keep to a budget of multiprocessors");
  if (p.d.type != kBf16 && p.d.type != kF16 && p.d.type != kF32) {
    return Feasibility::Refuse("writes D in BF16, F16 or F32");
  }
  const bool halves = format.type == kBf16 || format.type == kF16;
  if (halves && p.d.type != format.type && p.d.type != kF32) {
    return Feasibility::Refuse("writes D in the type of A or in F32");
  }
  if (format.type == kF32 && p.d.type != kF32) {
    return Feasibility::Refuse("writes D of an F32 product in F32");
  }
  if (p.c.type != DataType::kNull && (p.c.type != p.d.type || p.c.order != p.d.order)) {
    return Feasibility::Refuse("takes C in the type and the order of D");
  }
  if (p.type_bias != DataType::kNull) {
    // Seen with 13.1.0 on an H200: some algorithms add it to a sum that was rounded already.
    if (halves && p.d.type != kF32) {
      return Feasibility::Refuse("adds a bias to a sum of 16 bits, rounded before");
    }
    if (p.type_bias != BiasTypeFor(p.a.type, p.d.type)) {
      return Feasibility::Refuse(
          "takes a bias of D's type (for FP8 with D in F32: a BF16 one) and no other");
    }
    // The bias runs along the library's rows, which are D's contiguous direction.
    const bool along_n = p.bias_axis == Bias::Axis::kN;
    if (along_n != (p.d.order == Order::kRowMajor)) {
      return Feasibility::Refuse("adds a bias along the contiguous direction of D only");
    }
  }
  if (format.type != kE4m3) return Feasibility::Ok();

  if (p.a.order != Order::kRowMajor || p.b.order != Order::kColMajor) {
    return Feasibility::Refuse(
        "takes FP8 operands contiguous along K: A row-major, B column-major");
  }
  if (std::min({p.a.align, p.b.align, p.d.align}) < 16 ||
      (p.c.type != DataType::kNull && p.c.align < 16)) {
    return Feasibility::Refuse("FP8: A, B, C and D, pointers and rows, are aligned to 16 bytes");
  }
  const auto row_bytes = static_cast<std::int64_t>(InnerOf(p.d.order, p.m, p.n)) * SizeOf(p.d.type);
  if (p.k % 16 != 0 || row_bytes % 16 != 0) {
    return Feasibility::Refuse("FP8: k, and the bytes of a row of D, are multiples of 16");
  }
  if (!IsScaled(format)) return Feasibility::Ok();
  if (p.a.scale_type != kF32 || p.b.scale_type != kF32) {
    return Feasibility::Refuse("takes FP32 scales");
  }
  if (format.scaling.mode_a == kVec128_32F && (p.m % 4 != 0 || p.n % 4 != 0)) {
    return Feasibility::Refuse("block scales: m and n are multiples of 4");
  }
  return Feasibility::Ok();
}

Strides PackedStrides(const GemmDesc& p) noexcept {
  return {PackedStride(p.a.type, p.a.order, p.m, p.k, p.a.align),
          PackedStride(p.b.type, p.b.order, p.k, p.n, p.b.align),
          p.c.type != DataType::kNull ? PackedStride(p.c.type, p.c.order, p.m, p.n, p.c.align) : 0,
          PackedStride(p.d.type, p.d.order, p.m, p.n, p.d.align)};
}

Strides StridesOf(const GemmArgs& args) noexcept {
  return {args.Adesc.ld, args.Bdesc.ld, args.beta != 0.0f ? args.Cdesc.ld : 0, args.Ddesc.ld};
}

Result<Problem> MakeProblem(const Library& library, const Format& format, const GemmDesc& p,
                            const Strides& strides) {
  const Functions& f = library.functions();
  Problem made{};
  made.swapped = p.d.order == Order::kRowMajor;
  // An operand contiguous along the library's rows needs no transposition.
  const auto transposition = [&](Order order) {
    const Order plain = made.swapped ? Order::kRowMajor : Order::kColMajor;
    return order == plain ? kPlain : kTransposed;
  };
  Layout a, b;
  Calls layouts(library, "cublasLtMatrixLayoutInit");
  layouts.Add(InitLayout(f, p.a.type, p.a.order, p.m, p.k, strides.a, &a));
  layouts.Add(InitLayout(f, p.b.type, p.b.order, p.k, p.n, strides.b, &b));
  layouts.Add(InitLayout(f, p.d.type, p.d.order, p.m, p.n, strides.d, &made.d));
  if (p.c.type != DataType::kNull) {
    layouts.Add(InitLayout(f, p.c.type, p.c.order, p.m, p.n, strides.c, &made.c));
  } else {
    made.c = made.d;
  }
  CULET_RETURN_IF_ERROR(layouts.status());
  made.left = made.swapped ? b : a;
  made.right = made.swapped ? a : b;

  Operation* operation = &made.operation;
  Calls init(library, "cublasLtMatmulDescInit");
  init.Add(f.MatmulDescInit(operation, sizeof *operation, kCompute32F, kR32F));
  CULET_RETURN_IF_ERROR(init.status());
  Calls set(library, "cublasLtMatmulDescSetAttribute");
  set.Add(Set(f, operation, kTransA, transposition(made.swapped ? p.b.order : p.a.order)));
  set.Add(Set(f, operation, kTransB, transposition(made.swapped ? p.a.order : p.b.order)));
  Pointers placeholders;
  if (p.type_bias != DataType::kNull) {
    set.Add(Set(f, operation, kEpilogue, kEpilogueBias));
    set.Add(Set(f, operation, kBiasDataType, CudaTypeOf(p.type_bias)));
    placeholders.bias = kPlaceholder;
  }
  if (format.type == kE4m3) {
    // Sums of blocks are promoted anyway, since each block has a scale.
    const bool blocks = format.scaling.mode_a == kVec128_32F;
    const std::int8_t fast = p.accumulate == Accumulate::kFast && !blocks ? 1 : 0;
    set.Add(Set(f, operation, kFastAccum, fast));
  }
  if (IsScaled(format)) {
    // The scalar mode is the default, which older libraries have no attribute for.
    if (format.scaling.mode_a != kScalar32F) {
      set.Add(Set(f, operation, kAScaleMode,
                  made.swapped ? format.scaling.mode_b : format.scaling.mode_a));
      set.Add(Set(f, operation, kBScaleMode,
                  made.swapped ? format.scaling.mode_a : format.scaling.mode_b));
    }
    placeholders.scale_a = placeholders.scale_b = kPlaceholder;
  }
  set.Add(SetPointers(f, made.swapped, placeholders, operation));
  CULET_RETURN_IF_ERROR(set.status());
  return made;
}

Result<Preference> MakePreference(const Library& library, const GemmDesc& p) {
  const Functions& f = library.functions();
  Preference preference{};
  Calls init(library, "cublasLtMatmulPreferenceInit");
  init.Add(f.PreferenceInit(&preference, sizeof preference));
  CULET_RETURN_IF_ERROR(init.status());
  Calls set(library, "cublasLtMatmulPreferenceSetAttribute");
  const auto put = [&](PreferenceAttribute attribute, auto value) {
    set.Add(f.PreferenceSetAttribute(&preference, attribute, &value, sizeof value));
  };
  const bool swapped = p.d.order == Order::kRowMajor;
  const std::uint32_t a = p.a.align, b = p.b.align, d = p.d.align;
  put(kMaxWorkspaceBytes, std::uint64_t{kWorkspaceBytes});
  put(kReductionSchemeMask, std::uint32_t{kReduceComputeType});
  put(kMinAlignmentA, swapped ? b : a);
  put(kMinAlignmentB, swapped ? a : b);
  put(kMinAlignmentC, p.c.type != DataType::kNull ? std::uint32_t{p.c.align} : d);
  put(kMinAlignmentD, d);
  CULET_RETURN_IF_ERROR(set.status());
  return preference;
}

int SetPointers(const Functions& f, bool swapped, const Pointers& pointers,
                Operation* operation) noexcept {
  const void* const left = swapped ? pointers.scale_b : pointers.scale_a;
  const void* const right = swapped ? pointers.scale_a : pointers.scale_b;
  int status = kSuccess;
  const auto put = [&](OperationAttribute attribute, const void* pointer) {
    if (pointer != nullptr && status == kSuccess) status = Set(f, operation, attribute, pointer);
  };
  put(kAScalePointer, left);
  put(kBScalePointer, right);
  put(kBiasPointer, pointers.bias);
  return status;
}

}  // namespace culet::lt
