#include "gemm/cache_rules.h"

#include <cmath>
#include <compare>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "gemm/desc_fields.h"

namespace culet {
namespace {

// Finds a value that is not one of its type's, or out of its range.
struct RangeCheck {
  bool ok = true;
  template <class T>
  void operator()(const char*, const T& value, const FieldRange& range) {
    ok = ok && InRange(value, range);
  }
  template <class T>
  void operator()(const char*, const T& value) {
    if constexpr (std::is_same_v<T, Bias::Axis>) {
      ok = ok && (value == Bias::Axis::kN || value == Bias::Axis::kM);
    } else if constexpr (std::is_enum_v<T>) {
      ok = ok && FromString<T>(ToString(value)) == value;
    }
  }
};

}  // namespace

bool IsTime(double us) noexcept { return std::isfinite(us) && us >= 0; }

bool IsRecordable(const GemmDesc& desc, const LaunchSpec& spec) noexcept {
  RangeCheck check;
  VisitFields(desc, check);
  return check.ok && InRange(spec.swizzle, {.max = kMaxSwizzle}) &&
         InRange(spec.splits, {.min = 1, .max = kMaxSplits}) &&
         InRange(spec.variant, {.max = kMaxVariant}) && IsTime(spec.time_us) &&
         IsTime(spec.spread_us) && IsTime(spec.baseline_us) && spec.when >= 0 &&
         spec.when <= kMaxWhen && FromString<Origin>(ToString(spec.origin)) == spec.origin;
}

bool IsLaunchable(const GemmDesc& desc, const LaunchSpec& spec) {
  // Splits that need more workspace than this are refused by any caller.
  constexpr std::size_t kAmpleBytes = std::size_t{1} << 30;
  if (!Takes(*spec.kernel, desc)) return false;
  if (spec.variant > 0) {
    const auto variants = Variants(*spec.kernel, desc);
    if (!variants.ok() || spec.variant >= *variants) return false;
  }
  if (spec.swizzle > 0) {
    const auto max_swizzle = MaxSwizzle(*spec.kernel, ShapeOf(desc));
    if (!max_swizzle.ok() || spec.swizzle > *max_swizzle) return false;
  }
  if (spec.splits <= 1) return true;
  const auto max_splits =
      MaxSplits(*spec.kernel, ShapeOf(desc), spec.swizzle, kAmpleBytes, kAmpleBytes);
  return max_splits.ok() && spec.splits <= *max_splits;
}

ResolvedRecord Resolve(const CacheFile::Record& record, const DispatchCache& cache) {
  if (record.device_class != cache.device_class()) return {Usability::kOtherDevice, {}};
  Kernel* const kernel = cache.FindKernel(record.kernel_id);
  if (kernel == nullptr) return {Usability::kUnknownKernel, {}};
  if (!kernel->available().ok()) return {Usability::kUnavailable, {}};
  if (record.provider_version != kernel->provider_version()) return {Usability::kOtherProvider, {}};
  const LaunchSpec spec{kernel,           record.swizzle,     record.splits, record.time_us,
                        record.spread_us, record.baseline_us, record.origin, record.when,
                        record.serial,    record.variant};
  if (!IsLaunchable(record.desc, spec)) return {Usability::kInfeasible, {}};
  return {Usability::kUsable, spec};
}

namespace {

std::string_view IdOf(const LaunchSpec& spec) noexcept { return spec.kernel->id(); }
std::string_view IdOf(const CacheFile::Record& record) noexcept { return record.kernel_id; }

int Sign(std::strong_ordering order) noexcept { return order < 0 ? -1 : order > 0 ? 1 : 0; }
int Sign(std::partial_ordering order) noexcept { return order < 0 ? -1 : order > 0 ? 1 : 0; }

// Whether it is measured, and whether that says anything.
template <class Entry>
auto Soundness(const Entry& entry) noexcept {
  return std::pair(entry.origin,
                   entry.origin != Origin::kMeasured || !IsNoisy(entry.time_us, entry.spread_us));
}

template <class Entry>
int Compare(const Entry& a, const Entry& b) noexcept {
  const auto rank = [](const Entry& entry) {
    return std::tuple(Soundness(entry), entry.when, -entry.time_us, -entry.spread_us,
                      -entry.baseline_us, -entry.splits, -entry.swizzle, !entry.serial,
                      -entry.variant, IdOf(entry));
  };
  return Sign(rank(a) <=> rank(b));
}

}  // namespace

int ComparePrecedence(const LaunchSpec& a, const LaunchSpec& b) noexcept { return Compare(a, b); }

int ComparePrecedence(const CacheFile::Record& a, const CacheFile::Record& b) noexcept {
  return Compare(a, b);
}

int ComparePrecedence(const LaunchSpec& a, CacheLayer layer_a, const LaunchSpec& b,
                      CacheLayer layer_b) noexcept {
  const int order = Sign(std::tuple(Soundness(a), layer_a) <=> std::tuple(Soundness(b), layer_b));
  return order != 0 ? order : Compare(a, b);
}

}  // namespace culet
